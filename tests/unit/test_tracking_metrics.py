"""The metrics of a step and of an evaluation."""

from __future__ import annotations

import pytest

from rlvr.records import GroupState, Status
from rlvr.tracking.metrics import distinct_share, evaluation_metrics, slug, step_metrics
from rlvr.tracking.step_clock import StepTime, split
from tests.tracking_samples import completion, group, result, verdict

TIME = split(0, 10, {"rollout": [(0, 4)], "learner": [(4, 9)]})
COUNTS = {"issued": 4, "trained": 2, "dropped": 1, "failed": 1, "in_flight": 0}


def metrics_of(groups, learner=None, time: StepTime = TIME):
    return step_metrics(3, groups, learner or {}, time, counts=COUNTS, temperature=0.9, weight_version=2)


def test_a_step_of_every_kind_of_group():
    cut = group("a", [1.0, 0.0], category="add", answers=["7", "8"])
    cut.completions[1] = completion(tokens=15, logprob=-1.0, cut=True)
    found = metrics_of(
        [
            cut,
            group("b", [1.0, 1.0], category="sub", answers=["7", "7"]),
            group("c", [0.0, None], state=GroupState.DROPPED, reason="too few judged", category="add"),
            group("d", [], state=GroupState.FAILED, reason="data", category="add"),
        ],
        {"tokens": 100, "logprob_gap": 1e-5},
    )
    assert found["step"] == 3
    assert found["temperature"] == 0.9
    assert found["weight_version"] == 2
    assert found["reward/mean"] == pytest.approx(3 / 5)
    assert found["reward/std_within_group"] == pytest.approx(0.5 / 3)
    assert found["reward/answer"] == pytest.approx(3 / 5)
    assert found["verdict/ok_share"] == pytest.approx(3 / 6)
    assert found["verdict/verifier_error_share"] == found["verdict/unjudged_share"] == pytest.approx(1 / 6)
    assert sum(found[f"verdict/{status.value}_share"] for status in Status) == pytest.approx(1)
    assert (found["groups/trained"], found["groups/dropped"], found["groups/failed"]) == (2, 1, 1)
    assert found["groups/dropped/too_few_judged"] == found["groups/failed/data"] == 1
    assert found["groups/total_issued"] == 4
    assert found["rollout/tokens"] == 5 * 5 + 15
    assert found["rollout/tokens_per_s"] == 40 / 4
    assert found["rollout/truncated_share"] == pytest.approx(1 / 6)
    assert found["rollout/length_max"] == 15
    assert (found["rollout/length_ok_mean"], found["rollout/length_not_ok_mean"]) == (5, 10)
    assert found["groups/effective_share"] == 0.5
    assert found["rollout/prompt_length_mean"] == 3
    assert found["rollout/logprob_mean"] == pytest.approx((25 * -0.5 + 15 * -1.0) / 40)
    assert found["rollout/distinct_share"] == pytest.approx((2 / 2 + 1 / 2 + 1 / 2) / 3)
    assert found["learner/logprob_gap"] == 1e-5
    assert found["learner/tokens_per_s"] == 100 / 5
    assert found["time/rollout_s"] == 4
    assert found["time/overhead_share"] == pytest.approx(0.1)
    assert found["category/add/reward"] == pytest.approx(1 / 3)
    assert found["category/add/completions"] == 4
    assert found["category/sub/ok_share"] == 1


def test_what_has_no_value_is_left_out():
    found = metrics_of([group("d", [], state=GroupState.FAILED, reason="data")], time=StepTime(1.0))
    assert "reward/mean" not in found
    assert "rollout/tokens_per_s" not in found
    assert "verdict/ok_share" not in found
    assert found["rollout/completions"] == 0
    assert found["groups/failed"] == 1


def test_criteria_are_averaged_one_by_one():
    both = group("a", [0.5, 1.0])
    both.verdicts = [verdict(0.5, answer=1.0, format=0.0), verdict(1.0, answer=1.0, format=1.0)]
    found = metrics_of([both])
    assert (found["reward/answer"], found["reward/format"]) == (1.0, 0.5)


def test_no_answer_counts_as_one_distinct_answer():
    assert distinct_share([verdict(0.0, normalized=text) for text in ("", "", "7", "8")]) == 0.75


def test_names_of_categories_cannot_add_levels():
    assert slug(" two digits/add ") == "two_digits_add"
    assert slug("") == "none"


def test_an_evaluation_has_both_accuracies_with_their_intervals():
    found = evaluation_metrics(result(8, 71, 60))
    assert (found["step"], found["eval/accuracy"], found["eval/accuracy_strict"]) == (8, 0.71, 0.6)
    assert found["eval/accuracy_low"] < 0.71 < found["eval/accuracy_high"]
    assert found["eval/category/add/accuracy"] == 0.71
    assert not any("category//" in name or "category/none" in name for name in found)
    assert found["eval/tokens_per_s"] == 250
