"""The learning rate of each step. Must not know optimizers."""

from __future__ import annotations

import math

SCHEDULES = ("constant", "linear", "cosine")


def learning_rate(step: int, *, peak: float, warmup_steps: int, schedule: str, total_steps: int) -> float:
    """Learning rate of optimizer step `step` (the first is 0): linear warm-up to `peak`, then the schedule.

    linear and cosine reach 0 at `total_steps`, the step after the last. Raises ValueError on an unknown schedule.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; known: {', '.join(SCHEDULES)}")
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule == "constant":
        return peak
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return peak * (1.0 - progress) if schedule == "linear" else peak * 0.5 * (1.0 + math.cos(math.pi * progress))
