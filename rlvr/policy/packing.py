"""From token ids to the tensors of one forward pass, shared (a tree in one row) or plain (one sequence per row).

Both layouts name, for every completion token in the same order, the position whose hidden state predicts it; what
follows (logprobs, loss) does not know which layout was used. Must not know models or losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlvr.policy.tree import Node, TreeLayout

TokenIds = Sequence[int]


@dataclass(frozen=True)
class PackedBatch:
    """Input of one forward pass. Completion tokens are ordered by prompt, then completion, then position: N in all."""

    input_ids: torch.Tensor
    """int64 [rows, T]."""
    position_ids: torch.Tensor
    """int64 [rows, T]: position of each token in its own sequence."""
    predictors: torch.Tensor
    """int64 [N]: index into the flattened [rows * T] hidden states of the position that predicts each token."""
    targets: torch.Tensor
    """int64 [N]: the completion tokens."""
    computed_tokens: int
    """Tokens that the forward pass computes, padding included."""
    attention_mask: torch.Tensor | None = None
    """int64 [rows, T], plain layout only: 0 at padding."""
    layout: TreeLayout | None = None
    """Shared layout only: who attends to whom."""

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on `device`."""
        if torch.device(device).type == self.input_ids.device.type == "cpu":
            return self
        return PackedBatch(
            input_ids=self.input_ids.to(device),
            position_ids=self.position_ids.to(device),
            predictors=self.predictors.to(device),
            targets=self.targets.to(device),
            computed_tokens=self.computed_tokens,
            attention_mask=None if self.attention_mask is None else self.attention_mask.to(device),
            layout=None if self.layout is None else self.layout.to(device),
        )


def pack_shared(items: Sequence[tuple[TokenIds, Sequence[TokenIds]]], *, common_prefix: int = 0) -> PackedBatch:
    """One row in which each distinct token stands once: [common prefix | prompt, its completions | prompt, ...].

    Args:
        items: (prompt, completions) of each bundle. Prompts and completions are not empty.
        common_prefix: leading tokens that all prompts share, fewer than the shortest prompt has.

    The last token of a completion is predicted but never read, so it is not in the row.
    """
    ids: list[int] = []
    positions: list[int] = []
    nodes: list[Node] = []
    predictors: list[int] = []
    targets: list[int] = []

    def append(tokens: TokenIds, parent: int | None, start_position: int) -> int:
        nodes.append(Node(start=len(ids), length=len(tokens), parent=parent))
        positions.extend(range(start_position, start_position + len(tokens)))
        ids.extend(tokens)
        return len(nodes) - 1

    root = append(items[0][0][:common_prefix], None, 0) if common_prefix else None
    for prompt, completions in items:
        stem = append(prompt[common_prefix:], root, common_prefix)
        last_of_prompt = len(ids) - 1
        for completion in completions:
            first = len(ids)
            if len(completion) > 1:
                append(completion[:-1], stem, len(prompt))
            predictors.append(last_of_prompt)
            predictors.extend(range(first, first + len(completion) - 1))
            targets.extend(completion)
    return PackedBatch(
        input_ids=torch.tensor([ids], dtype=torch.long),
        position_ids=torch.tensor([positions], dtype=torch.long),
        predictors=torch.tensor(predictors, dtype=torch.long),
        targets=torch.tensor(targets, dtype=torch.long),
        computed_tokens=len(ids),
        layout=TreeLayout.build(nodes),
    )


def pack_plain(items: Sequence[tuple[TokenIds, Sequence[TokenIds]]], *, pad_id: int = 0) -> PackedBatch:
    """One row per completion, [prompt, completion without its last token], padded on the right to the longest."""
    rows = [(prompt, completion) for prompt, completions in items for completion in completions]
    width = max(len(prompt) + len(completion) - 1 for prompt, completion in rows)
    input_ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    predictors: list[int] = []
    targets: list[int] = []
    for row, (prompt, completion) in enumerate(rows):
        read = [*prompt, *completion[:-1]]
        input_ids[row, : len(read)] = torch.tensor(read, dtype=torch.long)
        mask[row, : len(read)] = 1
        first = row * width + len(prompt) - 1
        predictors.extend(range(first, first + len(completion)))
        targets.extend(completion)
    return PackedBatch(
        input_ids=input_ids,
        position_ids=torch.arange(width).expand(len(rows), width),
        predictors=torch.tensor(predictors, dtype=torch.long),
        targets=torch.tensor(targets, dtype=torch.long),
        computed_tokens=len(rows) * width,
        attention_mask=mask,
    )
