"""A form is asked for beside the answer: the same polynomial is factored in one writing and expanded in another."""

from __future__ import annotations

import pytest

from rlvr.errors import ConfigError
from rlvr.records import Status
from rlvr.rewards import Sample
from rlvr.rewards.answer_form import answer_form
from rlvr.rewards.composite import CriterionSpec, Reward

HAVE = {
    "factored": [
        "(x-1)(x+1)",
        "(x+1)^2",
        "2(x+1)",
        "x(x+2)(x-2)",
        "x^2+1",
        "x^2-2",
        "x",
        "-3(x-y)",
        "\\frac{(x+2)}{3}",
    ],
    "expanded": ["x^2-1", "x^2+2x+1", "2x+2", "x", "-3x+3y", "x^2y+xy^2", "\\frac{1}{2}x+1", "\\sin x+1"],
    "reduced_fraction": ["\\frac{1}{2}", "-\\frac{3}{4}", "3", "-3", "22/7", "\\dfrac{7}{2}"],
    "simplified": [
        "2\\sqrt{2}",
        "\\frac{\\sqrt{2}}{2}",
        "\\frac{1}{2}",
        "x+1",
        "(x-1)(x+1)",
        "2\\pi",
        "\\frac{x+2}{3}",
        "3x",
    ],
}
LACK = {
    "factored": ["x^2-1", "x^2+2x+1", "2x+2", "(2x+2)(x+3)", "(x+1)(x+1)", "x(x^2-4)", "x^2+x", "\\frac{2x+4}{6}"],
    "expanded": ["(x-1)(x+1)", "(x+1)^2", "2(x+1)", "x^2+x+x", "x(x+1)+1", "3+4"],
    "reduced_fraction": ["\\frac{2}{4}", "\\frac{2}{1}", "0.5", "1.5", "x", "\\frac{-2}{-4}", "\\sqrt{2}", "1/(2/3)"],
    "simplified": [
        "\\sqrt{8}",
        "\\frac{1}{\\sqrt{2}}",
        "\\frac{2}{4}",
        "x+x",
        "1x",
        "0+x",
        "2 \\cdot 3 x",
        "\\frac{x+1}{x+1}",
        "\\frac{2x+4}{6}",
        "x^1",
        "2^3",
        "5!",
        "\\sqrt{2}\\sqrt{3}",
        "\\sqrt{4}",
    ],
}


def score(answer: str, form: str) -> float | None:
    return answer_form(Sample(f"\\boxed{{{answer}}}"), form=form).score


@pytest.mark.parametrize(("form", "answer"), [(form, answer) for form, answers in HAVE.items() for answer in answers])
def test_it_has_the_form(form: str, answer: str) -> None:
    assert score(answer, form) == 1.0, answer_form(Sample(f"\\boxed{{{answer}}}"), form=form).parts[""].evidence


@pytest.mark.parametrize(("form", "answer"), [(form, answer) for form, answers in LACK.items() for answer in answers])
def test_it_has_not(form: str, answer: str) -> None:
    verdict = answer_form(Sample(f"\\boxed{{{answer}}}"), form=form)
    assert (verdict.score, verdict.status) == (0.0, Status.WRONG)


@pytest.mark.parametrize("form", HAVE)
@pytest.mark.parametrize("answer", ["9^{9^{9^9}}", "(10^6)!", "(x+1)^{10^6}", "?", "x" * 900, "\\begin{x}"])
def test_hostile_answers_earn_nothing_and_cost_nothing(form: str, answer: str) -> None:
    assert score(answer, form) == 0.0 or answer == "(x+1)^{10^6}"


def test_no_answer_and_several() -> None:
    assert answer_form(Sample("x+1"), form="expanded").status is Status.NO_ANSWER
    assert answer_form(Sample("\\boxed{x+1} \\boxed{x+2}"), form="expanded").status is Status.WRONG


def test_equality_and_form_are_criteria_side_by_side() -> None:
    reward = Reward.of(
        [
            CriterionSpec("answer", "math_answer"),
            CriterionSpec("form", "answer_form", 0.5, {"form": "factored"}),
        ]
    )
    assert reward.grade(Sample("\\boxed{(x-1)(x+1)}", "x^2-1")).score == 1.5
    assert reward.grade(Sample("\\boxed{x^2-1}", "x^2-1")).score == 1.0
    assert reward.grade(Sample("\\boxed{(x-1)(x+2)}", "x^2-1")).score == 0.5


def test_there_are_no_other_forms() -> None:
    with pytest.raises(ConfigError, match="form must be one of"):
        Reward.of([CriterionSpec("form", "answer_form", 1.0, {"form": "pretty"})])
