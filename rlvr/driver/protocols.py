"""What the driver knows about the actors: four small protocols, and one for whoever writes things down.

The pools in rlvr.actors satisfy the four. Every method of theirs has a deadline inside the pool, and raises
only members of the failure taxonomy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlvr.records import Completion, Group, Prompt, Sampling, Verdict, WeightUpdate
from rlvr.tracking.step_clock import StepTime

if TYPE_CHECKING:
    from rlvr.driver.evaluation import EvaluationResult


class Rollout(Protocol):
    """The engines, seen as one."""

    async def generate(self, prompt: Prompt, sampling: Sampling, n: int) -> list[Completion]:
        """n completions of `prompt`, on the least loaded engine. May be called many times at once."""

    async def sync(self, update: WeightUpdate) -> None:
        """Every engine serves `update.version` when this returns."""


class Reward(Protocol):
    """The verifiers, seen as one."""

    async def grade(self, group: Group) -> list[Verdict]:
        """One verdict per completion, in their order."""


class Reference(Protocol):
    """The frozen model."""

    async def score(self, group: Group, temperature: float) -> list[np.ndarray]:
        """Per completion, float32 [tokens]: logprobs under the reference."""


class Learner(Protocol):
    """The policy being trained, all ranks seen as one."""

    async def feed(self, groups: Sequence[Group], temperature: float) -> None:
        """Forward and backward of these READY groups; gradients accumulate until `step`."""

    async def step(self) -> dict[str, float]:
        """One optimizer step over everything fed since the last one. Returns its statistics."""

    async def publish(self, version: int) -> WeightUpdate:
        """Write the weights where engines can map them, as `version`."""

    async def logprobs(
        self, prompt: Sequence[int], completions: Sequence[Sequence[int]], temperature: float
    ) -> list[np.ndarray]:
        """Per completion, float32 [tokens]: logprobs under the current weights, without gradients."""

    async def save(self, folder: str) -> None:
        """Write the model in Hugging Face format into `folder`."""


class Tracker(Protocol):
    """Whoever writes down and shows what happens. rlvr.tracking.tracker is the real one."""

    def event(self, kind: str, **fields: Any) -> None:
        """Something worth a line in events.jsonl."""

    async def step(
        self,
        step: int,
        groups: Sequence[Group],
        learner_stats: dict[str, float],
        time: StepTime,
        *,
        counts: dict[str, int],
        temperature: float,
        weight_version: int,
    ) -> None:
        """A step is over: metrics, console, and every completion of `groups` into the ledger."""

    def evaluating(self, step: int, problems: int) -> None:
        """An evaluation begins."""

    async def evaluation(self, result: EvaluationResult, groups: Sequence[Group]) -> None:
        """An evaluation is over; its completions go into the ledger."""
