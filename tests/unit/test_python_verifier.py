"""Programs are judged by what they do: right ones pass, wrong ones and cheats get nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.records import Verdict
from rlvr.rewards import Sample
from rlvr.rewards.python import python
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
    print(case["name"], found.score, found.parts[""].evidence)
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
