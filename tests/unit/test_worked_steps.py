"""The arithmetic of a worked solution is checked step by step, exactly, and padding earns nothing."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.records import Status, Verdict
from rlvr.rewards import Sample
from rlvr.rewards.worked_steps import MAX_STEPS, steps, verified_annotations, worked_steps

GSM8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k"


def judged(completion: str, **options: object) -> Verdict:
    return worked_steps(Sample(completion, "7"), **options)  # type: ignore[arg-type]


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"no {GSM8K}")
@pytest.mark.parametrize(("split", "solutions", "annotated"), [("train", 7473, 23716), ("test", 1319, 4282)])
def test_every_annotation_of_gsm8k_verifies(split: str, solutions: int, annotated: int) -> None:
    lines = (GSM8K / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == solutions
    found = [item for line in lines for item in verified_annotations(json.loads(line)["answer"])]
    assert [text for text, right in found if not right] == []
    assert len(found) == annotated


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"no {GSM8K}")
def test_reference_solutions_hardly_ever_have_a_wrong_step() -> None:
    lines = (GSM8K / "test.jsonl").read_text(encoding="utf-8").splitlines()
    scores = [judged(json.loads(line)["answer"]).score for line in lines]
    assert sum(score == 1.0 for score in scores) > 0.95 * len(scores)


@pytest.mark.parametrize(
    "text",
    [
        "48 / 2 = 24",
        "48/2 = <<48/2=24>>24",
        "5 x 3 = 15. Then 15 - 4 = 11",
        "- 3 + 4 = 7",
        "1. 3 + 4 = 7",
        "$5 * 3 = $15",
        "1,200 + 300 = 1,500",
        "10/3 = 3.33",
        "2/3 = 0.667",
        "20% * 50 = 10",
        "18/450*100 = 4%",
        "(3+4)*2 = 14",
        "half (3 + 4 = 7) and",
        ".20*50 = 10",
        "5 \u00d7 3 = 15 and 15 \u00f7 5 = 3",
        "1 + 2 = 3 + 0",
        "7 // 2 = 3",
        "27(1/3) = 9",
        "<<560//10=56>>",
        "12 = 3 * 4",
    ],
)
def test_right_arithmetic_is_right(text: str) -> None:
    verdict = judged(text)
    assert (verdict.score, verdict.status) == (1.0, Status.OK), verdict.parts[""].evidence


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("48 / 2 = 25", 0.0),
        ("3+4 = 7+2 = 9", 0.5),
        ("10/3 = 3", 0.0),
        ("10/3 = 3.3", 0.0),
        ("10/3 = 3.34", 0.0),
        ("<<48/2=25>>25 and 1+1=2", 0.5),
        ("48/2 = <<48/2=24>>25", 0.5),
        ("1+1=2. " * 50 + "3+3=7", 0.5),
        ("2 * 3 = 5\n3 + 3 = 6\n1 + 1 = 2\n1 + 2 = 3", 0.75),
        ("5 - 8 = 3", 0.0),
    ],
)
def test_the_score_is_the_share_of_right_steps(text: str, score: float) -> None:
    verdict = judged(text)
    assert (verdict.score, verdict.status) == (score, Status.WRONG), verdict.parts[""].evidence


@pytest.mark.parametrize(
    "text", ["", "x = 5", "2x + 60 = 100", "5 = 5", "a + b = c", "= 7", "3 + 4", "9^{9^{9^9}} = 1", "1/0 = 1"]
)
def test_what_is_no_arithmetic_is_not_judged(text: str) -> None:
    verdict = judged(text)
    assert (verdict.score, verdict.status) == (0.0, Status.NO_ANSWER), verdict.parts[""].evidence


def test_variables_around_arithmetic_are_passed_over() -> None:
    assert [step.text for step in steps("8+4*m=40\n4*m=40-8=32\nx - 5 + 3 = 10")] == ["40-8=32"]


def test_a_contradiction_with_the_final_answer_is_said() -> None:
    text = "3 + 4 = 7\n#### 8"
    assert judged(text).score == 1.0
    assert "contradiction" in judged(text).parts[""].evidence
    assert judged(text, contradiction="wrong").score == 0.5
    assert "contradiction" not in judged("3 + 4 = 7\n#### 7").parts[""].evidence


def test_options() -> None:
    assert judged("10/3 = 3.33", decimals=None).score == 0.0
    assert judged("10/3 = 3.3", decimals=1).score == 1.0
    assert judged("3 + 4 = 7", at_least=4).score == 0.25
    assert judged("1.200 + 0,5 = 1.200,5.", locale="ES").score == 1.0
    assert judged("1.200 * 2 = 2.400", locale="ES").score == 1.0


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["1+1=2 " * 10**5, "=" * 10**6, "1+" * 10**5 + "=2", "<<" * 10**5, "(" * 10**5 + "1=1", "1+1=2\n" * 10**5]
)
def test_no_completion_is_expensive(text: str) -> None:
    assert judged(text).score in (0.0, 1.0)
    assert len(list(steps("\n".join(f"1+{i}={i + 1}" for i in range(1000))))) == MAX_STEPS


@given(st.integers(-999, 999), st.integers(1, 999), st.sampled_from("+-*/"))
def test_exact_results_are_right_and_others_wrong(a: int, b: int, sign: str) -> None:
    value = {"+": Fraction(a + b), "-": Fraction(a - b), "*": Fraction(a * b), "/": Fraction(a, b)}[sign]
    right = str(value)
    assert judged(f"{a} {sign} {b} = {right}").score == 1.0
    assert judged(f"{a} {sign} {b} = {value + 1}").score == 0.0
