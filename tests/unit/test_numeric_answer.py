"""The one final answer is found, compared exactly, and nothing else passes for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.records import Status, Verdict
from rlvr.rewards import Sample, last_number_verdict
from rlvr.rewards.extract import candidates
from rlvr.rewards.numbers import parse_number
from rlvr.rewards.numeric_answer import bare_reference, numeric_answer

SHARED = Path(__file__).resolve().parents[3] / "shared"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no {SHARED}: the shared cases are not checked out")


def judged(completion: str, reference: str = "7", *, truncated: bool = False, **options: object) -> Verdict:
    return numeric_answer(Sample(completion, reference, truncated=truncated), **options)  # type: ignore[arg-type]


RIGHT = [
    "#### 7",
    "3+4=7\n#### 7",
    "####7",
    "#### $7",
    "#### 7 clips",
    "#### 7.",
    "#### 7. So she has 7 clips.",
    "####\n7",
    "#### **7**",
    "\\boxed{7}",
    "The total is $\\boxed{7}$.",
    "\\[ \\boxed{7} \\]",
    "\\boxed{7}\n#### 7",
    "\\boxed{\\boxed{7}}",
    "\\boxed{x = 7}",
    "\\boxed{7 \\text{ cm}}",
    "\\fbox{7}",
    "\\boxed{\\frac{14}{2}}",
    "The answer is 7",
    "The answer is 7.",
    "the final answer is: 7",
    "The answer is $7$.",
    "The answer is **7**.",
    "**The answer is 7**",
    "The answer is 7 because 3+4=7.",
    "The answer is 7, because 3+4=7.",
    "The answer is \\[\n7\n\\]",
    "The correct answer should be 7!",
    "The answer to the question is 7 clips.",
    "So the answer = 7",
    "Answer: 7",
    "**Answer:** 7",
    "**Final Answer**\n\n7",
    "Final answer: 7 apples",
    "ANSWER: 7",
    "<answer>7</answer>",
    "<answer> 7 clips\n</answer>",
    "<answer>The answer is 7</answer>",
    "<answer>She has \\boxed{7} clips</answer>",
    "<answer>#### 7</answer>",
    "<think>maybe \\boxed{8}</think>\\boxed{7}",
    "so I think 8</think>The answer is 7",
    "<think>8</think><think>9</think>#### 7",
    "The answer is 7. I checked it: the answer is 7.",
    "\\boxed{7}. I repeat: \\boxed{07}",
    "Answer: first we add 3 and 4.\n#### 7",
    "#### Step 1: add 3 and 4\n#### Step 2\n#### 7",
    "The answer is not obvious. \\boxed{7}",
    "\\boxed{8}### Response\n\\boxed{7}",
]

WRONG = [
    "#### 7 is not the answer, the answer is none",
    "#### 7 is wrong",
    "The answer is 7 isn't it? No",
    "La respuesta es 7 no es correcto",
    "$\\boxed{7}$ is not the answer",
    "#### 8",
    "#### -7",
    "#### 7 or 8",
    "#### 7, 8",
    "#### 7\n#### 8",
    "#### 8\n#### 7",
    "#### 8 #### 7",
    "#### 7. Or 8.",
    "\\boxed{7} or \\boxed{8}",
    "\\boxed{7}, or maybe 8",
    "\\boxed{7} (or 8)",
    "\\boxed{7 \\text{ or } 8}",
    "\\boxed{\\boxed{7} \\text{ or } 8}",
    "\\boxed{7, 8}",
    "\\boxed{\\{7\\}}",
    "\\boxed{[0, 10]}",
    "\\boxed{8=7}",
    "\\boxed{3+5=7}",
    "\\boxed{3+4}",
    "\\boxed{7x}",
    "\\boxed{?}",
    "\\boxed{} \\boxed{8}",
    "\\boxed{7.0001}",
    "\\boxed{7}. Wait, actually \\boxed{8}",
    "\\boxed{7}. Wait, that is wrong. The answer is 8.",
    "The answer is 7 or 8.",
    "The answer is 7, or 8.",
    "The answer is 7 (or 8).",
    "The answer is 7, no, 8.",
    "The answer is 7. The answer is 8.",
    "The answer is 3+5=7.",
    "<answer>7</answer><answer>8</answer>",
    "<answer>7 or 8</answer>",
    "<think>\\boxed{7}</think>The answer is \\boxed{8}",
    "Answer: 8 \\boxed{7}",
    " ".join(f"\\boxed{{{i}}}" for i in range(200)),
    "\\boxed{7} " * 1000,
]

NO_ANSWER = [
    "",
    "I have 7 apples",
    "7",
    "I don't know.",
    "\\boxed{7",
    "#### ",
    "####",
    "##### 7",
    "### 7",
    "\\boxed{}",
    "<answer>7",
    "<answer></answer>",
    "<think>\\boxed{7}",
    "<think>x</think>\n<think>#### 7",
    "#### 7\n### Response: I am not sure",
    "The answer is not known.",
]


@pytest.mark.parametrize("completion", RIGHT)
def test_the_final_answer_is_found(completion: str) -> None:
    verdict = judged(completion)
    assert (verdict.score, verdict.status) == (1.0, Status.OK), verdict
    assert verdict.normalized.split()[0] == "7"
    assert verdict.extracted


@pytest.mark.parametrize("completion", WRONG, ids=lambda text: text[:40])
def test_anything_but_one_right_answer_is_wrong(completion: str) -> None:
    verdict = judged(completion)
    assert (verdict.score, verdict.status) == (0.0, Status.WRONG), verdict
    assert verdict.parts[""].evidence


@pytest.mark.parametrize("completion", NO_ANSWER)
def test_an_answer_that_is_not_marked_is_none(completion: str) -> None:
    verdict = judged(completion)
    assert (verdict.score, verdict.status) == (0.0, Status.NO_ANSWER), verdict


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("first we add 3 and", Status.TRUNCATED),
        ("<think>first we add", Status.TRUNCATED),
        ("\\boxed{7", Status.TRUNCATED),
        ("#### 7", Status.TRUNCATED),
        ("the answer is 7", Status.TRUNCATED),
        ("#### 7\nand so", Status.OK),
        ("the answer is 7. And so", Status.OK),
        ("\\boxed{7}", Status.OK),
        ("\\boxed{8} and so", Status.WRONG),
    ],
)
def test_a_truncated_completion_is_judged_by_the_answer_that_it_completed(completion: str, status: Status) -> None:
    verdict = judged(completion, truncated=True)
    assert verdict.status is status
    assert verdict.score == float(status is Status.OK)


@pytest.mark.parametrize(
    "reference", ["", "seven", "1, 2", "x < 5", "\\pi", "9" * 400, "#### ", "\\boxed{1}\\boxed{2}"]
)
def test_a_reference_that_is_no_number_gives_no_score(reference: str) -> None:
    verdict = judged("#### 7", reference)
    assert verdict.score is None
    assert verdict.status is Status.BAD_REFERENCE
    assert last_number_verdict("7", reference) is None


def test_a_reference_may_be_a_whole_solution() -> None:
    assert judged("#### 1,200", "He has 600*2 = <<600*2=1200>>1200.\n#### 1200").score == 1.0
    assert judged("#### 7", "so \\boxed{7}").score == 1.0


@pytest.mark.parametrize(
    "completion",
    [
        "\\boxed{" * 200_000,
        "\\boxed{7}" * 100_000,
        "#### ab\n" * 100_000,
        "<answer>" * 100_000 + "</answer>",
        "answer is " * 100_000,
        "answer " * 150_000,
        "#### " + "9" * 10**6,
        "\\boxed{" + "9" * 10**6 + "}",
        "#### 9e999999999",
        "\\boxed{9^{9^{9^9}}}",
        "#### 7" + " " * 10**6,
        "**" + " " * 10**6,
        "<think>" * 100_000,
        "##" * 300_000,
        "{" * 10**6,
        "7" * 10**6,
        "1/" * 300_000,
        "\u00bd" * 300_000,
    ],
    ids=lambda text: f"{text[:12]!r} x {len(text)}",
)
@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.timeout(20)
def test_no_completion_is_expensive(completion: str, anywhere: bool) -> None:
    assert judged(completion, "72", anywhere=anywhere).score == 0.0


@pytest.mark.parametrize(
    ("completion", "reference", "right"),
    [
        ("I have 7 apples", "7", True),
        ("The answer is 8. No, it must be 7", "7", True),
        ("#### 7\nThat took 5 minutes", "7", False),
        ("the total is $1,234.50.", "1234.5", True),
        ("I don't know", "7", False),
        ("<think>8</think> 7", "7", True),
        ("<think>it may be 7", "7", True),
        ("so half: 50%", "0.5", True),
    ],
)
def test_anywhere_judges_the_last_number_whatever_the_format(completion: str, reference: str, right: bool) -> None:
    assert last_number_verdict(completion, reference) is right
    assert judged(completion, reference, anywhere=True).score == float(right)


def test_options_change_what_counts() -> None:
    assert judged("\\boxed{50\\%}", "50").score == 0.0
    assert judged("\\boxed{50\\%}", "50", percent="either").score == 1.0
    assert judged("\\boxed{50\\%}", "50", percent="fraction").score == 0.0
    assert judged("\\boxed{5 m}", "5 km").score == 0.0
    assert judged("\\boxed{5 m}", "5 km", compare_units=False).score == 1.0
    assert judged("\\boxed{\uff17}").score == 0.0
    assert judged("\\boxed{\uff17}", unicode_digits=True).score == 1.0


def _cases(name: str) -> list[dict[str, object]]:
    path = SHARED / "cases" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else []


#: References that are no plain number: symbols, sets, intervals, ratios, equations, letters. For `math_answer`.
SYMBOLIC = {
    "Math-Verify#14a",
    "Math-Verify#14c",
    "Math-Verify#14e",
    "Math-Verify#14f",
    "Math-Verify#14h",
    "Math-Verify#14j",
    "Math-Verify#14k",
    "Math-Verify#60",
    "Math-Verify#26",
    "Math-Verify#64b",
    "Math-Verify#71",
    "Math-Verify#69b",
    "Math-Verify#69d",
    "Math-Verify#69a boxed",
    "Math-Verify#47",
    "Math-Verify#16w",
    "Qwen2.5-Math#50",
    "lm-eval#4030a",
    "lm-eval#4030b",
    "sieval#68",
    "prm800k#19",
    "pi 3.14",
    "ratio",
    "unordered set",
    "ordered tuple",
    "ineq strict",
    "comma list dup",
    "sqrt8",
    "factor wrong",
}
#: Right where numbers are written 1.234,56; wrong under the only locale there is so far, where 1.200 is 1.2.
OTHER_LOCALE = {"es thousands", "es decimal", "es dec3"}
#: What our documented defaults say about the cases that are a matter of policy.
POLICY = {
    "fullwidth": 0.0,  # digits are ASCII unless unicode_digits=true
    "arabic": 0.0,
    "expr unevaluated": 1.0,  # a/b of integers is a number, whatever its form
    "expr unevaluated2": 1.0,  # a power of ten is scientific notation
    "trig": 0.0,  # any other expression has not been worked out
    "spam last": 0.0,  # several different answers
    "then retract": 0.0,  # taking an answer back in words does not unsay it
    "unclosed": 0.0,  # a box that is never closed is no answer
    "no answer number": 0.0,  # an answer must be marked, unless anywhere=true
    "box text": 0.0,  # words are not read as numbers
}


@needs_shared
@pytest.mark.parametrize(
    "case", [*_cases("reported_math"), *_cases("edge_math")], ids=lambda case: str(case["src"]).replace(" ", "_")
)
def test_cases_that_break_other_verifiers(case: dict[str, object]) -> None:
    name, verdict = str(case["src"]), judged(str(case["response"]), str(case["gold"]))
    if name in SYMBOLIC:
        assert verdict.status is Status.BAD_REFERENCE, "a reference that we cannot read must never be scored"
    elif name in OTHER_LOCALE:
        assert (case["verdict"], verdict.score) == ("es", 0.0)
    elif name in POLICY:
        assert (case["verdict"], verdict.score) == ("policy", POLICY[name])
    else:
        assert verdict.score == case["verdict"], verdict


@needs_shared
@pytest.mark.parametrize(("split", "size"), [("train", 7473), ("test", 1319)])
def test_every_gsm8k_reference_verifies_against_itself(split: str, size: int) -> None:
    lines = (SHARED / "data" / "gsm8k" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == size
    for line in lines:
        solution = json.loads(line)["answer"]
        final = solution.rpartition("####")[2].strip()
        value = parse_number(bare_reference(solution)).value
        assert value == parse_number(final).value
        for right in (solution, f"\\boxed{{{final}}}", f"The answer is ${final}.", f"#### {value}.00"):
            assert judged(right, solution).score == 1.0, (right, solution)
        assert last_number_verdict(solution, final) is True
        for wrong in (f"#### {value + 1}", f"\\boxed{{{-value if value else 1}}}", f"{final} or {value + 1}"):
            assert judged(wrong, solution).score == 0.0, (wrong, solution)


@given(st.text(alphabet="answer is:#\\boxed{}<>/7 8\n.$*orthink", max_size=300))
def test_any_completion_gets_a_verdict(text: str) -> None:
    verdict = judged(text)
    assert verdict.score in (0.0, 1.0)
    for candidate in candidates(text):
        assert 0 <= candidate.start < candidate.end <= len(text)
        assert candidate.text in text


@given(st.integers(-(10**6), 10**6), st.text(alphabet="abc xyz,;()'\n", max_size=80))
def test_prose_around_an_answer_changes_nothing(value: int, prose: str) -> None:
    assert judged(f"{prose}\n#### {value}\n{prose}", str(value)).score == 1.0
    assert judged(f"{prose} \\boxed{{{value}}}\n{prose}", str(value)).score == 1.0
