"""summary.json: stable keys, and figures that follow from the steps."""

from __future__ import annotations

import json

import pytest

from rlvr.tracking.summary import build_summary, write_summary
from tests.tracking_samples import result

KEYS = {
    "run_id", "status", "error", "steps", "wall_s", "accuracy_before", "accuracy_after", "accuracy_before_strict",
    "accuracy_after_strict", "logprob_gap_mean", "logprob_gap_max", "generation_tokens_per_s", "learner_tokens_per_s",
    "overhead_share", "peak_memory_gb", "groups", "evaluations", "versions",
}  # fmt: skip


def summary_of(steps, evaluations=(), status="completed", error=None):
    return build_summary(
        status=status,
        error=error,
        identity={"run_id": "abc"},
        wall_s=12.5,
        steps=steps,
        evaluations=evaluations,
        groups={"issued": 3, "trained": 2, "dropped": 1},
        peak_memory_gb=3.5,
    )


def step(number: int, gap: float, tokens: int, seconds: float) -> dict:
    return {
        "step": number,
        "learner/logprob_gap": gap,
        "learner/tokens": 2 * tokens,
        "rollout/tokens": tokens,
        "time/rollout_s": seconds,
        "time/learner_s": seconds,
        "time/overhead_s": 0.1 * seconds,
        "time/step_s": 2 * seconds,
    }


def test_rates_are_over_the_whole_run_and_gaps_over_its_steps():
    found = summary_of([step(1, 1e-5, 100, 1.0), step(2, 3e-5, 500, 3.0)], [result(0, 37, 20), result(2, 71, 60)])
    assert set(found) == KEYS
    assert found["steps"] == 2
    assert found["generation_tokens_per_s"] == 150
    assert found["learner_tokens_per_s"] == 300
    assert found["overhead_share"] == pytest.approx(0.05)
    assert found["logprob_gap_mean"] == pytest.approx(2e-5)
    assert found["logprob_gap_max"] == 3e-5
    assert found["accuracy_before"]["value"] == 0.37
    assert found["accuracy_before_strict"]["value"] == 0.2
    assert found["accuracy_after"]["value"] == 0.71
    assert set(found["accuracy_after"]) == {"value", "low", "high", "n"}
    assert found["groups"] == {"issued": 3, "trained": 2, "dropped": 1, "failed": 0, "in_flight": 0}
    assert [evaluation["step"] for evaluation in found["evaluations"]] == [0, 2]
    assert list(found["evaluations"][0]["categories"]) == ["add"]
    assert "python" in found["versions"]


def test_what_was_not_measured_is_null():
    found = summary_of([], status="failed", error="no GPU")
    assert set(found) == KEYS
    nulls = {name for name, value in found.items() if value is None}
    assert nulls == {
        "accuracy_before", "accuracy_after", "accuracy_before_strict", "accuracy_after_strict", "logprob_gap_mean",
        "logprob_gap_max", "generation_tokens_per_s", "learner_tokens_per_s", "overhead_share",
    }  # fmt: skip
    assert found["error"] == "no GPU"


def test_an_evaluation_in_between_is_not_the_one_after():
    found = summary_of([step(n, 0.0, 1, 1.0) for n in (1, 2, 3)], [result(0, 37, 20), result(2, 50, 50)])
    assert found["accuracy_after"] is None


def test_a_gap_that_is_no_number_is_not_hidden_by_the_maximum(tmp_path):
    found = summary_of([step(1, float("nan"), 1, 1.0), step(2, 1e-5, 1, 1.0)])
    write_summary(tmp_path / "summary.json", found)
    assert json.loads((tmp_path / "summary.json").read_text())["logprob_gap_max"] is None


def test_an_unknown_status_is_refused():
    with pytest.raises(ValueError, match="unknown status"):
        summary_of([], status="fine")
