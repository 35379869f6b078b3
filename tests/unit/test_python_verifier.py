"""Programs are judged by what they do: right ones pass, wrong ones and cheats get nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.checks import SANDBOXED
from rlvr.records import Status, Verdict
from rlvr.rewards import Sample, programs, registry
from rlvr.rewards.python import check_options, python
from rlvr.rewards.test_suite import test_suite as suite_verifier

SHARED = Path(__file__).resolve().parents[3] / "shared"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no {SHARED}: the shared cases are not checked out")
ADD = "assert add(1,2)==3\nassert add(-1,1)==0\nassert add(10,20)==30\nassert add(0,0)==0"


def fenced(code: str) -> str:
    return f"Here it is.\n```python\n{code}\n```\n"


def judged(code: str, reference: str = ADD, **options: object) -> Verdict:
    return python(Sample(fenced(code), reference), **options)  # type: ignore[arg-type]


def shared_programs() -> list[object]:
    if not SHARED.is_dir():
        return []
    cases = json.loads((SHARED / "cases" / "code_exploits.json").read_text())
    return [pytest.param(case, id=case["name"]) for case in cases["programs"]]


@needs_shared
@pytest.mark.parametrize("case", shared_programs())
def test_collected_exploits_earn_nothing(case):
    tests = json.loads((SHARED / "cases" / "code_exploits.json").read_text())["tests"]
    assert judged(case["code"], json.dumps(tests)).score == case["want"]


@needs_shared
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["name"])
        for case in json.loads((SHARED / "cases" / "testgen_suites.json").read_text())["suites"]
    ]
    if SHARED.is_dir()
    else [],
)
def test_vacuous_suites_earn_nothing_and_good_ones_nearly_everything(case):
    solution = json.loads((SHARED / "cases" / "testgen_suites.json").read_text())["reference"]
    reference = json.dumps({"solution": solution, "tests": TRUSTED})
    found = suite_verifier(Sample(fenced(case["code"]), reference))
    if case["vacuous"]:
        assert found.score is not None and found.score <= 0.1
    elif case["name"].startswith("good"):
        assert found.score is not None and found.score > 0.8


TRUSTED = [
    "assert clamp_sum([1, 5, 9], 2, 8) == 15",
    "assert clamp_sum([], 0, 1) == 0",
    "assert clamp_sum([3], 3, 3) == 3",
    "assert clamp_sum([0, 10, 4], 1, 5) == 10",
    "assert clamp_sum([-5, 2, 7, 7], -1, 6) == 13",
]


@pytest.mark.parametrize(
    ("test", "code", "score"),
    [
        ("assert f(3)", "def f(x): return x > 2", 1.0),
        ("assert not f(3)", "def f(x): return x > 2", 0.0),
        ("assert f(1) is None", "def f(x): pass", 1.0),
        ("assert 3 == f(x=3)", "def f(x): return x", 1.0),
        ("assert sorted(f([2, 1])) == [1, 2]", "def f(x): return x", 1.0),
        ("assert set(f('ab')) == {'a', 'b'}", "def f(x): return list(x) * 2", 1.0),
        ("assert math.isclose(f(1), 0.3)", "def f(x): return 0.1 + 0.2", 1.0),
        ("assert abs(f(1) - 0.3) < 1e-6", "def f(x): return 0.30000001", 1.0),
        ("assert f(1) == 0.3", "def f(x): return 0.1 + 0.2", 0.0),
        ("assert f(1) == (1, [2], {'a': {3}})", "def f(x): return (1, [2], {'a': {3}})", 1.0),
        ("assert f(1) == (1, 2)", "def f(x): return [1, 2]", 0.0),
        ("assert f(1) == {'a': 1}", "import collections\ndef f(x): return collections.Counter('a')", 1.0),
        ("assert f(1) == 1", "def f(x): return True", 0.0),
        ("assert f(1) == 10**30", "def f(x): return 10**30", None),  # no literal
        ("assert f(1) == 1000000000000000000000000000000", "def f(x): return 10**30", 1.0),
        ("assert f(-1) == -0.5", "def f(x): return x / 2", 1.0),
        ("assert Solution().f(1) == 2", "class Solution:\n    def f(self, x): return x + 1", 1.0),
        ("assert f(f(1)) == 1", "def f(x): return x", None),
        ("assert f(open('x')) == 1", "def f(x): return x", None),
        ("import os", "def f(x): return x", None),
        ("", "def f(x): return x", None),
    ],
)
def test_asserts_are_read_as_data(test, code, score):
    found = judged(code, test)
    assert found.score == score, found.parts[""].evidence
    if score is None:
        assert found.status is Status.BAD_REFERENCE


def test_standard_input_and_output():
    tests = json.dumps({"tests": [{"stdin": f"{n} 2\n", "stdout": f"{n + 2}\n"} for n in range(4)]})
    assert judged("a, b = map(int, input().split())\nprint(a + b)", tests).score == 1.0
    assert (
        judged("import sys\nfor l in sys.stdin:\n    print(sum(map(int, l.split())), ' ')\nexit()", tests).score == 1.0
    )
    assert (
        judged("def main():\n    print(2 + int(input()[0]))\nif __name__ == '__main__':\n    main()", tests).score
        == 1.0
    )
    thread = (
        "import threading\ndef main(): print(sum(map(int, input().split())))\nthreading.Thread(target=main).start()"
    )
    assert judged(thread, tests).score == 1.0
    assert judged("print(2)", tests).score == 0.0  # the same to everything, right once
    assert judged("print(int(input()[0]) + 2)\nraise SystemExit(1)", tests).score == 0.0
    assert judged("while True: print('x' * 10**6)", tests).score == 0.0
    floats = json.dumps({"tests": [{"stdin": "1", "stdout": "0.333333 x"}]})
    assert judged("print(1 / 3, 'x')", floats, output="tokens", tolerance=1e-4).score == 1.0
    assert judged("print(1 / 3, 'x')", floats).score == 0.0


def test_weights_hidden_tests_and_random_inputs():
    tests = {
        "function": "f",
        "tests": [{"args": [1], "expected": 1, "weight": 3}, {"args": [-2], "expected": 2, "hidden": True}],
    }
    half = judged("def f(x): return x", json.dumps(tests))
    assert half.score == 0.75 and "0 of 1 hidden" in half.parts[""].evidence
    assert judged("def f(x): return x", json.dumps(tests), credit="all").score == 0.0
    tests |= {"solution": "def f(x): return abs(x)", "random": {"count": 16, "args": [{"int": [-9, -1]}]}}
    assert judged("def f(x): return abs(x)", json.dumps(tests)).score == 1.0
    memorised = judged("def f(x): return {1: 1, -2: 2}.get(x, 0)", json.dumps(tests))
    assert memorised.score is not None and memorised.score < 0.5
    tests["solution"] = "def f(x): return g(x)"
    assert judged("def f(x): return abs(x)", json.dumps(tests)).status is Status.BAD_REFERENCE


def test_form_never_outweighs_function():
    options = {"compiles": 0.1, "runs": 0.1, "lint": 0.1}
    tests = "\n".join(f"assert f({n}) == {n * n}" for n in range(1, 11))
    scores = [
        judged("def f(x): return x * (", tests, **options).score,
        judged("def f(x): return x + 100", tests, **options).score,
        judged("def f(x): return x * x if x < 2 else x", tests, **options).score,
        judged("def f(x): return x * x if x < 3 else x", tests, **options).score,
        judged("import os, sys\ndef f(x):\n  y = 1; return x * x", tests, **options).score,
        judged("def f(x):\n    return x * x\n", tests, **options).score,
    ]
    assert scores == sorted(scores) and len(set(scores)) == 6 and scores[0] == 0.0 and scores[-1] == 1.0
    assert scores[1] is not None and scores[1] < 0.1 * 0.7
    noqa = judged("import os, sys  # noqa\n# ruff: noqa\ndef f(x):\n  y = 1; return x * x", tests, **options)
    assert noqa.score is not None and noqa.score < 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"credit": "some"},
        {"lint": 0.5},
        {"compiles": -0.1},
        {"output": "x"},
        {"time_s": 0},
        {"tests": 3},
        {"memory_mb": 1},
    ],
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(ValueError):
        check_options(**options)


@pytest.mark.parametrize(
    ("completion", "score", "status"),
    [
        ("def f(x): return x", 1.0, Status.OK),
        (" def f(x):\n    return x\n", 1.0, Status.OK),
        ("1. So:\n   ```python\n   def f(x):\n       return x\n   ```\n", 1.0, Status.OK),
        ("```\ndef f(x): return x\n```", 1.0, Status.OK),
        ("~~~py\ndef f(x): return x\n~~~", 1.0, Status.OK),
        ("```bash\nls\n```\n```python\ndef f(x): return x\n```\n```text\n1\n```", 1.0, Status.OK),
        ("```python\ndef f(x): return x\n```\nno:\n```python\ndef f(x): return -x\n```", 0.0, Status.WRONG),
        ("<think>```python\ndef f(x): return x\n```</think>", 0.0, Status.NO_ANSWER),
        ("<think>```python\ndef f(x): return x\n```", 0.0, Status.NO_ANSWER),
        ("<think>no</think>```python\ndef f(x): return x\n```", 1.0, Status.OK),
        ("", 0.0, Status.NO_ANSWER),
        ("I cannot do that.", 0.0, Status.WRONG),
    ],
)
def test_the_program_is_the_last_block_after_thinking(completion, score, status):
    found = python(Sample(completion, "assert f(1) == 1\nassert f(2) == 2"))
    assert (found.score, found.status) == (score, status)


def test_a_program_that_was_cut_off_is_none():
    for completion in ("```python\ndef f(x): return x\n", "def f(x): return x"):
        assert python(Sample(completion, "assert f(1) == 1", truncated=True)).status is Status.TRUNCATED
    whole = "```python\ndef f(x): return x\n```\nThis program"
    assert python(Sample(whole, "assert f(1) == 1", truncated=True)).score == 1.0


def test_endless_programs_are_timeouts_and_keep_what_they_have_passed():
    tests = "assert f(1) == 1\nassert f(2) == 2"
    assert judged("while True: pass", tests, time_s=0.3).status is Status.TIMEOUT
    code = "def f(x):\n    while x == 2: pass\n    return x"
    assert judged(code, tests, time_s=0.3).score == 0.5


def test_packages_can_be_had_and_are_not_there_otherwise():
    code = "import numpy\ndef f(x): return numpy.arange(x).tolist()"
    assert judged(code, "assert f(2) == [0, 1]").score == 0.0
    try:
        programs.configure(packages=["numpy"])
        assert judged(code, "assert f(2) == [0, 1]").score == 1.0
        late = "def f(x):\n    import numpy.polynomial.chebyshev as c\n    return c.chebval(1, [x]).item()"
        assert judged(late, "assert f(2.0) == 2.0").score == 1.0
    finally:
        programs.configure()


def test_the_configuration_knows_which_verifiers_run_programs():
    sandboxed = [name for name in registry.names() if registry.resolve(name, "").level is not None]
    assert sorted(SANDBOXED) == sandboxed
