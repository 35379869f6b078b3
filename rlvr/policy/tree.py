"""Who attends to whom in a row that holds a prefix tree: nodes, their ancestors, and index tensors for attention.

A node's tokens attend causally to themselves and to all tokens of their ancestors. Nodes are listed depth first, so
the descendants of a node are one contiguous range of tokens. Must not know how attention is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

#: Nodes are batched for self-attention as long as padding adds at most this share to the shortest one's length:
#: attention is a small part of the work, many small kernels are not.
MAX_PADDING = 0.5
#: Shorter nodes are all batched together: a kernel launch costs more than attention over so few tokens.
SHORT_NODE = 64


@dataclass(frozen=True)
class Node:
    """A run of tokens of the row."""

    start: int
    length: int
    parent: int | None
    """Index of the node that comes before it in its sequences; None for a root."""


@dataclass(frozen=True)
class Block:
    """Nodes of similar length that attend to themselves in one batch, padded on the right."""

    index: torch.Tensor
    """int64 [nodes, L]: token of the row at each place; padding repeats the node's last token."""
    padding: torch.Tensor | None
    """bool [nodes, L], True at padding. None: there is none."""


@dataclass(frozen=True)
class Edge:
    """Queries [query_start, query_end) attend to all keys [key_start, key_end): descendants to their ancestor."""

    query_start: int
    query_end: int
    key_start: int
    key_end: int


@dataclass(frozen=True)
class TreeLayout:
    """The tree of one row of T tokens, in the forms that attention needs. Built once, used by every layer."""

    tokens: int
    blocks: tuple[Block, ...]
    inverse: torch.Tensor
    """int64 [T]: place of each token among the places of all blocks laid end to end."""
    edges: tuple[Edge, ...]

    @staticmethod
    def build(nodes: Sequence[Node]) -> TreeLayout:
        """From nodes in depth-first order that cover the row without gaps.

        Raises ValueError when they do not.
        """
        end = 0
        for number, node in enumerate(nodes):
            if node.start != end or node.length < 1 or (node.parent is not None and node.parent >= number):
                raise ValueError(f"node {number} {node} does not continue the row at token {end}")
            end += node.length
        return TreeLayout(
            tokens=end,
            blocks=tuple(blocks := _blocks(nodes)),
            inverse=_inverse(blocks, end),
            edges=tuple(_edges(nodes)),
        )

    def to(self, device: torch.device | str) -> TreeLayout:
        """The same layout on `device`."""
        blocks = tuple(
            Block(block.index.to(device), None if block.padding is None else block.padding.to(device))
            for block in self.blocks
        )
        return TreeLayout(self.tokens, blocks, self.inverse.to(device), self.edges)

    def dense_mask(self) -> torch.Tensor:
        """bool [T, T], True where query (row) attends to key (column): the definition, for tests and small rows."""
        mask = torch.zeros((self.tokens, self.tokens), dtype=torch.bool, device=self.inverse.device)
        for block in self.blocks:
            for number, index in enumerate(block.index):
                own = index if block.padding is None else index[~block.padding[number]]
                causal = torch.ones((len(own), len(own)), dtype=torch.bool, device=own.device).tril()
                mask[own[:, None], own[None, :]] = causal
        for edge in self.edges:
            mask[edge.query_start : edge.query_end, edge.key_start : edge.key_end] = True
        return mask


def _blocks(nodes: Sequence[Node]) -> list[Block]:
    ordered = sorted(nodes, key=lambda node: (node.length, node.start))
    batches: list[list[Node]] = []
    for node in ordered:
        limit = max(batches[-1][0].length * (1 + MAX_PADDING), SHORT_NODE) if batches else 0
        if batches and node.length <= limit:
            batches[-1].append(node)
        else:
            batches.append([node])
    return [_block(sorted(batch, key=lambda node: node.start)) for batch in batches]


def _block(batch: Sequence[Node]) -> Block:
    width = max(node.length for node in batch)
    lengths = torch.tensor([node.length for node in batch])
    places = torch.arange(width)
    index = torch.tensor([node.start for node in batch])[:, None] + torch.minimum(places, lengths[:, None] - 1)
    padding = places >= lengths[:, None]
    return Block(index=index, padding=padding if bool(padding.any()) else None)


def _inverse(blocks: Sequence[Block], tokens: int) -> torch.Tensor:
    inverse = torch.empty(tokens, dtype=torch.long)
    offset = 0
    for block in blocks:
        places = torch.arange(offset, offset + block.index.numel()).view_as(block.index)
        real = slice(None) if block.padding is None else ~block.padding
        inverse[block.index[real].flatten()] = places[real].flatten()
        offset += block.index.numel()
    return inverse


def _edges(nodes: Sequence[Node]) -> list[Edge]:
    ends = [node.start + node.length for node in nodes]
    for number in range(len(nodes) - 1, -1, -1):
        parent = nodes[number].parent
        if parent is not None:
            ends[parent] = max(ends[parent], ends[number])
    return [
        Edge(node.start + node.length, end, node.start, node.start + node.length)
        for node, end in zip(nodes, ends, strict=True)
        if end > node.start + node.length
    ]
