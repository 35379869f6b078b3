"""What travels from the driver to the learner ranks: groups reduced to the numbers that the loss needs.

Advantages were taken over the whole group, before its completions are laid out over micro-batches and ranks.
Must not know models or DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlvr.config import AlgorithmConfig
from rlvr.errors import InfrastructureError
from rlvr.policy.planning import plan
from rlvr.records import Group


@dataclass(frozen=True)
class Trainable:
    """Judged completions of one group, or some of them. Lists run over completions."""

    prompt_id: str
    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    behaviour: tuple[np.ndarray, ...]
    """float32 [tokens] each."""
    advantages: tuple[float, ...]
    reference: tuple[np.ndarray, ...] | None
    """float32 [tokens] each; None without a KL term."""

    def part(self, indices: Sequence[int]) -> Trainable:
        """The same group with these completions only."""
        return Trainable(
            prompt_id=self.prompt_id,
            prompt=self.prompt,
            completions=tuple(self.completions[index] for index in indices),
            behaviour=tuple(self.behaviour[index] for index in indices),
            advantages=tuple(self.advantages[index] for index in indices),
            reference=None if self.reference is None else tuple(self.reference[index] for index in indices),
        )

    def muted(self) -> Trainable:
        """The shortest stand-in for a micro-batch that only keeps step with other ranks."""
        return Trainable(self.prompt_id, self.prompt[-1:], ((self.prompt[-1],),), (np.zeros(1, np.float32),), (0.0,),
                         None if self.reference is None else (np.zeros(1, np.float32),))  # fmt: skip


@dataclass(frozen=True)
class MicroBatch:
    """Computed in one forward and backward pass. `silent`: counts for nothing, only keeps step with other ranks."""

    parts: tuple[Trainable, ...]
    common_prefix: int
    silent: bool = False


@dataclass(frozen=True)
class Feed:
    """The work of one feed: `ranks[r]` are rank r's micro-batches, equally many on every rank."""

    ranks: tuple[tuple[MicroBatch, ...], ...]
    split_groups: int


def trainables(groups: Sequence[Group], algorithm: AlgorithmConfig) -> list[Trainable]:
    """Groups as the loss needs them. Completions without a score or without tokens are left out.

    Raises InfrastructureError when a group lacks token ids, advantages, logprobs or reference logprobs.
    """
    return [item for group in groups if (item := _trainable(group, algorithm)).completions]


def _trainable(group: Group, algorithm: AlgorithmConfig) -> Trainable:
    completions = group.completions
    with_kl = algorithm.kl.coef > 0 and algorithm.kl.place == "loss"
    if not group.prompt.token_ids:
        raise InfrastructureError(f"group {group.id} came to the learner without prompt token ids")
    if group.advantages is None or len(group.advantages) != len(completions):
        raise InfrastructureError(f"group {group.id} came to the learner without an advantage for each completion")
    reference = group.reference_logprobs if with_kl else None
    if with_kl and (reference is None or len(reference) != len(completions)):
        raise InfrastructureError(f"group {group.id} came to the learner without reference logprobs")
    for index, completion in enumerate(completions):
        counts = {len(completion.logprobs), *([] if reference is None else [len(reference[index])])}
        if counts != {len(completion.token_ids)}:
            raise InfrastructureError(
                f"completion {index} of group {group.id} has {len(completion.token_ids)} tokens and {counts} logprobs"
            )
    whole = Trainable(
        prompt_id=group.prompt.id,
        prompt=tuple(group.prompt.token_ids),
        completions=tuple(tuple(completion.token_ids) for completion in completions),
        behaviour=tuple(np.asarray(completion.logprobs, dtype=np.float32) for completion in completions),
        advantages=tuple(0.0 if value is None else value for value in group.advantages),
        reference=None if reference is None else tuple(np.asarray(item, dtype=np.float32) for item in reference),
    )
    judged = [value is not None for value in group.advantages]
    return whole.part([i for i, completion in enumerate(completions) if judged[i] and completion.token_ids])


def lay_out(items: Sequence[Trainable], *, budget: int, ranks: int, share_prefix: bool) -> Feed:
    """Micro-batches of at most `budget` computed tokens, balanced over ranks, equally many on each."""
    if not items:
        return Feed(ranks=((),) * ranks, split_groups=0)
    planned = plan(
        [item.prompt for item in items],
        [[len(completion) for completion in item.completions] for item in items],
        budget=budget,
        ranks=ranks,
        share_prefix=share_prefix,
    )
    silent = MicroBatch((items[0].muted(),), 0, silent=True)
    return Feed(
        ranks=tuple(
            tuple(
                MicroBatch(tuple(items[b.group].part(b.completions) for b in bundles), planned.common_prefix)
                if bundles
                else silent
                for bundles in batches
            )
            for batches in planned.ranks
        ),
        split_groups=planned.split_groups,
    )
