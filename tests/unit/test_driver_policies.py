"""The driver's decisions, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from rlvr.config import AlgorithmConfig, RolloutConfig
from rlvr.driver.policies import (
    FailureBudget,
    GroupFilter,
    Replacements,
    RewardFailures,
    gap_limit,
    mean_gap,
    seed_for,
    temperature_at,
)
from rlvr.errors import InfrastructureError, TrainingError
from rlvr.records import Completion, FinishReason, Group, Part, Prompt, Status, Verdict


def scored(*scores: float | None) -> Group:
    group = Group(id="g", prompt=Prompt(id="p/7", reference="42", text="?"), step=1)
    for score in scores:
        status = Status.VERIFIER_ERROR if score is None else Status.OK if score else Status.WRONG
        group.completions.append(Completion((5,), np.zeros(1, np.float32), "forty-two", FinishReason.STOP, ((0, 1),)))
        part = Part(score, 1.0, status, "division by zero" if score is None else "")
        group.verdicts.append(Verdict(score, status, {"answer": part}))
    return group


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ((1.0, 0.0), ""),
        ((0.0, 0.0, 0.0), "equal_scores"),
        ((1.0, 1.0, None), "equal_scores"),
        ((1.0, None, None), "too_few_judged"),
        ((None, None), "too_few_judged"),
        ((0.1 + 0.2, 0.3), ""),  # equality is exact: rounding noise is a difference
    ],
)
def test_groups_without_a_difference_are_dropped(scores, reason):
    assert GroupFilter(drop_equal=True).reason_to_drop(scored(*scores)) == reason


def test_equal_groups_are_kept_when_asked_but_unjudged_ones_never():
    keep_all = GroupFilter(drop_equal=False)
    assert keep_all.reason_to_drop(scored(1.0, 1.0)) == ""
    assert keep_all.reason_to_drop(scored(1.0, None)) == "too_few_judged"


def test_replacements_are_bounded():
    replacements = Replacements.from_config(AlgorithmConfig(max_replacements=2))
    assert [replacements.take() for _ in range(4)] == [True, True, False, False]


def test_no_replacements_where_nothing_is_dropped():
    assert not Replacements.from_config(AlgorithmConfig(drop_equal_groups=False, max_replacements=2)).take()


def test_unjudged_completions_stop_the_run_with_examples():
    failures = RewardFailures(max_rate=0.25)
    failures.book(scored(1.0, 0.0, 0.0, None))
    failures.check()
    failures.book(scored(None, None))
    with pytest.raises(TrainingError, match="3 of 6") as caught:
        failures.check()
    assert "p/7" in str(caught.value)
    assert "division by zero" in str(caught.value)


def test_failed_groups_are_tolerated_up_to_the_budget():
    budget = FailureBudget(limit=1)
    budget.spend(InfrastructureError("engine 0 died"))
    with pytest.raises(TrainingError, match="engine 1 died"):
        budget.spend(InfrastructureError("engine 1 died"))


def test_temperature_is_linear_from_first_to_last_step():
    rollout = RolloutConfig(temperature=1.0, temperature_end=0.5)
    assert [temperature_at(step, 3, rollout) for step in (1, 2, 3)] == [1.0, 0.75, 0.5]
    assert temperature_at(1, 1, rollout) == 1.0
    assert temperature_at(2, 3, RolloutConfig(temperature=0.7)) == 0.7


def test_seeds_depend_on_their_parts_alone():
    assert seed_for(0, 1, "a") == seed_for(0, 1, "a")
    assert len({seed_for(0, serial, "a") for serial in range(1000)}) == 1000
    assert 0 <= seed_for("x") < 2**31


def test_the_gap_is_a_mean_over_tokens():
    assert mean_gap([[0.0, -1.0], [-2.0]], [[0.0, -1.5], [-1.0]]) == pytest.approx(0.5)


def test_the_gap_limit_follows_the_dtype_unless_set():
    assert gap_limit(RolloutConfig(), "float32") == 0.01
    assert gap_limit(RolloutConfig(), "bfloat16") == 0.1
    assert gap_limit(RolloutConfig(max_logprob_gap=0.5), "float32") == 0.5
    assert gap_limit(RolloutConfig(engine="simulated"), "float32") == float("inf")
