"""The learning rate of each step: linear warm-up, then constant, linear or cosine decay. Pure."""

from __future__ import annotations

import math

from rlvr.config import LearnerConfig

SCHEDULES = ("constant", "linear", "cosine")


def learning_rate(done: int, steps: int, learner: LearnerConfig) -> float:
    """Learning rate of the step that follows `done` made ones, of `steps` in all.

    During warm-up lr * (done + 1) / warmup_steps, so the first step already moves; then from lr down to 0, which the
    step after the last would have. Raises ValueError on an unknown schedule.
    """
    if learner.schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {learner.schedule!r}; known: {', '.join(SCHEDULES)}")
    if done < learner.warmup_steps:
        return learner.lr * (done + 1) / learner.warmup_steps
    share = min(1.0, (done - learner.warmup_steps) / max(1, steps - learner.warmup_steps))
    if learner.schedule == "linear":
        return learner.lr * (1.0 - share)
    if learner.schedule == "cosine":
        return learner.lr * 0.5 * (1.0 + math.cos(math.pi * share))
    return learner.lr
