"""Which completions are computed together: micro-batches under a token budget, balanced over ranks.

Pure arithmetic on lengths: no tensors, no models. Tokens are counted as they will be computed, after sharing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: A prefix common to all prompts is computed once per micro-batch when it has at least this many tokens. Below, the
#: extra attention node costs more than the few tokens it saves.
MIN_COMMON_PREFIX = 16


@dataclass(frozen=True)
class Bundle:
    """Some completions of one group, computed behind one copy of its prompt."""

    group: int
    """Index of the group among those that were planned."""
    completions: tuple[int, ...]
    """Indices of the completions within the group."""
    tokens: int
    """What computing it costs, a common prefix not counted."""


@dataclass(frozen=True)
class Plan:
    """Micro-batches of every rank: `ranks[r][m]` is a tuple of bundles, empty for one that only keeps step."""

    ranks: tuple[tuple[tuple[Bundle, ...], ...], ...]
    common_prefix: int
    """Leading tokens that all prompts share and that each micro-batch computes once. 0: none."""
    split_groups: int
    """Groups that were larger than the budget, so that their prompt is computed more than once."""


def common_prefix_length(prompts: Sequence[Sequence[int]]) -> int:
    """Leading tokens that all prompts have in common, leaving each prompt at least one token of its own."""
    if len(prompts) < 2:
        return 0
    limit = min(len(prompt) for prompt in prompts) - 1
    # The lexicographic extremes differ first where any two differ first.
    low, high = min(map(tuple, prompts)), max(map(tuple, prompts))
    length = 0
    while length < limit and low[length] == high[length]:
        length += 1
    return length if length >= MIN_COMMON_PREFIX else 0


def plan(
    prompts: Sequence[Sequence[int]], lengths: Sequence[Sequence[int]], *, budget: int, ranks: int, share_prefix: bool
) -> Plan:
    """Lay out groups as micro-batches.

    Args:
        prompts: token ids of each group's prompt.
        lengths: tokens of each completion, per group; completions without tokens are left out.
        budget: computed tokens of a micro-batch. A single completion that exceeds it gets a micro-batch of its own.
        ranks: data-parallel learners. Each gets the same number of micro-batches, since unequal numbers would leave
            ranks waiting for each other's collectives.
        share_prefix: count a prompt once per bundle (and a common prefix once per micro-batch) instead of once per
            completion, padded to the longest row.
    """
    prefix = common_prefix_length(prompts) if share_prefix else 0
    bundles: list[Bundle] = []
    split = 0
    for group, (prompt, group_lengths) in enumerate(zip(prompts, lengths, strict=True)):
        parts = _split_to_budget(group, len(prompt) - prefix, group_lengths, budget - prefix, share_prefix)
        split += share_prefix and len(parts) > 1
        bundles += parts
    while 0 < len(bundles) < ranks:
        # Fewer bundles than ranks, as when groups are fed one by one: idle ranks cost more than repeated prompts.
        largest = max(range(len(bundles)), key=lambda index: len(bundles[index].completions))
        chosen = bundles[largest]
        if len(chosen.completions) < 2:
            break
        own = len(prompts[chosen.group]) - prefix
        half = len(chosen.completions) // 2
        parts_of = (chosen.completions[:half], chosen.completions[half:])
        bundles[largest : largest + 1] = [
            _bundle(chosen.group, part, own, lengths[chosen.group], share_prefix) for part in parts_of
        ]
    per_rank = _balance(bundles, ranks)
    packed = [_pack(own, budget - prefix) for own in per_rank]
    count = max(len(batches) for batches in packed)
    return Plan(
        ranks=tuple(tuple(batches + [()] * (count - len(batches))) for batches in packed),
        common_prefix=prefix,
        split_groups=split,
    )


def _bundle(group: int, completions: tuple[int, ...], prompt: int, lengths: Sequence[int], share: bool) -> Bundle:
    # The last token of a completion is predicted, never read: it needs no computation of its own.
    read = [lengths[index] - 1 for index in completions]
    tokens = prompt + sum(read) if share else len(completions) * (prompt + max(read))
    return Bundle(group, completions, tokens)


def _split_to_budget(group: int, prompt: int, lengths: Sequence[int], budget: int, share: bool) -> list[Bundle]:
    parts: list[Bundle] = []
    current: tuple[int, ...] = ()
    # Longest first: rows of similar length are padded least.
    for index in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: (-lengths[i], i)):
        candidate = (*current, index)
        if current and _bundle(group, candidate, prompt, lengths, share).tokens > budget:
            parts.append(_bundle(group, tuple(sorted(current)), prompt, lengths, share))
            candidate = (index,)
        current = candidate
    if current:
        parts.append(_bundle(group, tuple(sorted(current)), prompt, lengths, share))
    return parts


def _balance(bundles: Sequence[Bundle], ranks: int) -> list[list[Bundle]]:
    """Longest processing time first: each bundle, by size, to the rank with the least work."""
    loads = [0] * ranks
    chosen: list[list[Bundle]] = [[] for _ in range(ranks)]
    for bundle in sorted(bundles, key=lambda item: -item.tokens):
        rank = loads.index(min(loads))
        loads[rank] += bundle.tokens
        chosen[rank].append(bundle)
    return chosen


def _pack(bundles: Sequence[Bundle], budget: int) -> list[tuple[Bundle, ...]]:
    """Fewest micro-batches that the budget allows, and those about equally full: peak memory follows the fullest."""
    total = sum(bundle.tokens for bundle in bundles)
    for count in range(max(1, math.ceil(total / max(budget, 1))), len(bundles) + 1):
        batches = _balance(bundles, count)
        if all(len(batch) <= 1 or sum(item.tokens for item in batch) <= budget for batch in batches):
            return [tuple(sorted(batch, key=lambda item: (item.group, item.completions))) for batch in batches if batch]
    return [(bundle,) for bundle in bundles]
