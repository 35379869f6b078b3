"""What the rest of the project may expect of a generation engine. Knows the records, and no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rlvr.records import Completion, Sampling, WeightUpdate


class Engine(Protocol):
    """One copy of the weights that completes prompts. All methods run on one event loop."""

    simulated: bool
    """Whether what it returns was made up, by no model."""

    @property
    def healthy(self) -> bool:
        """False before `start`, and for good once the engine failed in a way that retrying cannot mend."""

    async def start(self) -> None:
        """Load the model. Ready for `generate` when it returns."""

    async def generate(self, request_id: str, token_ids: Sequence[int], sampling: Sampling, n: int) -> list[Completion]:
        """n completions of one prompt, all of them finished. Many calls may be in flight."""

    async def update_weights(self, update: WeightUpdate) -> int:
        """Load `update` as one transaction and return the version now served.

        Requests in flight are kept; cached keys and values of older weights are never served afterwards.
        """

    async def close(self) -> None:
        """Stop, and leave no process and no shared memory behind."""
