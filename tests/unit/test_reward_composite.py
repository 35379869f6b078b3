"""A verdict adds up its criteria, and never lets a failure of ours pass for a score."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rlvr.records import Completion, FinishReason, Group, Part, Prompt, Status, Verdict
from rlvr.rewards import Reward, Sample, samples_of, strictly_right
from rlvr.rewards.composite import CriterionSpec
from rlvr.rewards.judgement import judge
from rlvr.rewards.registry import Verifier


def reward_of(*functions: Any, weights: tuple[float, ...] = ()) -> Reward:
    specs = tuple(CriterionSpec(f"c{i}", f"m:f{i}", (weights or (1.0,) * 9)[i]) for i in range(len(functions)))
    return Reward(specs, tuple(Verifier(spec.verifier, "0", f) for spec, f in zip(specs, functions, strict=True)))


def returns(value: Any) -> Any:
    return lambda sample: value


def test_criteria_are_added_up_with_their_weights_as_they_are() -> None:
    verdict = reward_of(returns(1.0), returns(0.5), returns(1), weights=(1.0, 0.4, -0.1)).grade(Sample("x"))
    assert verdict.score == pytest.approx(1.0 + 0.2 - 0.1)
    assert verdict.status is Status.OK
    assert list(verdict.parts) == ["c0", "c1", "c2"]
    assert [part.weight for part in verdict.parts.values()] == [1.0, 0.4, -0.1]
    assert verdict.verifier.count("+") == 2
    assert verdict.seconds > 0


def test_the_first_criterion_gives_status_and_answer() -> None:
    reward = Reward.of([CriterionSpec("answer", "numeric_answer"), CriterionSpec("form", "answer_format", 0.5)])
    right, wrong, none = (reward.grade(Sample(text, "7")) for text in ("#### $7", "\\boxed{8}", "no idea"))
    assert (right.score, right.status, right.extracted, right.normalized) == (1.5, Status.OK, "$7", "7 $")
    assert (wrong.score, wrong.status, wrong.extracted) == (0.0, Status.WRONG, "8")
    assert (none.score, none.status) == (0.0, Status.NO_ANSWER)
    assert [strictly_right(verdict) for verdict in (right, wrong, none)] == [True, False, False]
    bad = reward.grade(Sample("#### 7", "seven"))
    assert (bad.score, bad.status, bad.parts["form"].score) == (None, Status.BAD_REFERENCE, 1.0)
    assert strictly_right(bad) is None


def _raises(sample: Sample) -> float:
    raise ValueError("boom")


def _exits(sample: Sample) -> float:
    raise SystemExit(1)


def _recurses(sample: Sample) -> float:
    return _recurses(sample)


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _raises_unprintable(sample: Sample) -> float:
    raise _Unprintable


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_raises, "ValueError: boom"),
        (_raises, "test_reward_composite.py"),
        (_exits, "SystemExit"),
        (_recurses, "RecursionError"),
        (_raises_unprintable, "_Unprintable"),
        (returns(None), "None"),
        (returns(float("nan")), "nan"),
        (returns(float("inf")), "inf"),
        (returns(10**400), "too large"),
        (returns("1.0"), "str"),
        (returns(1j), "complex"),
        (returns([1.0, 0.0]), "2 values"),
        (returns([1.0]), "1 values"),
        (returns({"score": 1}), "dict"),
        (returns(np.ones(3)), "3 values"),
        (returns(object()), "object"),
        (returns(Part(float("nan"), 1.0, Status.OK)), "nan"),
        (returns(Part("1", 1.0, Status.OK)), "str"),  # type: ignore[arg-type]
        (returns(Part(1.0, 1.0, "good")), "good"),  # type: ignore[arg-type]
        (returns(Part(1.0, 1.0, Status.VERIFIER_ERROR)), "verifier_error"),
        (returns(Part(None, 1.0, Status.WRONG, "lost")), "lost"),
        (lambda: 1.0, "TypeError"),
    ],
)
def test_a_verifier_that_fails_gives_no_score_and_says_why(function: Any, says: str) -> None:
    for reward in (reward_of(function), reward_of(returns(1.0), function)):
        verdict = reward.grade(Sample("x"))
        assert verdict.score is None
        assert verdict.status is Status.VERIFIER_ERROR
        assert says in list(verdict.parts.values())[-1].evidence


@pytest.mark.parametrize(
    "value", [True, 1, 1.0, np.float32(1), np.float64(1), np.int64(1), np.bool_(True), np.array(1.0), Fraction(1)]
)
def test_every_kind_of_number_is_a_score(value: Any) -> None:
    verdict = reward_of(returns(value)).grade(Sample("x"))
    assert (verdict.score, verdict.status) == (1.0, Status.OK)
    assert type(verdict.score) is float


def test_only_full_marks_are_ok() -> None:
    assert reward_of(returns(0.99)).grade(Sample("x")).status is Status.WRONG


def test_a_verifier_may_return_a_part_or_a_verdict() -> None:
    part = Part(0.0, 99.0, Status.TAMPERED, "wrote to the tests")
    verdict = reward_of(returns(part)).grade(Sample("x"))
    assert (verdict.status, verdict.parts["c0"].weight, verdict.parts["c0"].evidence) == (
        Status.TAMPERED,
        1.0,
        "wrote to the tests",
    )
    whole = Verdict(0.5, Status.WRONG, {"a": Part(0.5, 1.0, Status.WRONG, "half")}, extracted="e", normalized="n")
    verdict = reward_of(returns(whole)).grade(Sample("x"))
    assert (verdict.score, verdict.extracted, verdict.normalized, verdict.parts["c0"].evidence) == (
        0.5,
        "e",
        "n",
        "half",
    )


def test_evidence_stays_short() -> None:
    def shouts(sample: Sample) -> float:
        raise ValueError("x" * 10**6)

    assert len(judge(shouts, Sample("x"), {}).evidence) <= 500


def test_samples_of_a_group_carry_what_the_task_knows() -> None:
    prompt = Prompt("p1", "7", category="easy", messages=({"role": "user", "content": "3+4?"},), extra={"level": 2})
    done = Completion((1, 2), np.zeros(2, np.float32), "#### 7", FinishReason.STOP, ((0, 2),))
    cut = Completion((3,), np.zeros(1, np.float32), "####", FinishReason.LENGTH, ((0, 1),))
    first, second = samples_of(Group("g", prompt, 0, completions=[done, cut]))
    assert (first.completion, first.reference, first.category, first.prompt_id) == ("#### 7", "7", "easy", "p1")
    assert first.prompt == prompt.messages
    assert first.extra == {"level": 2}
    assert (first.truncated, second.truncated, second.token_ids) == (False, True, (3,))
