"""How token losses become one number: weights per token, and one normaliser for the whole optimizer step.

While groups stream in, the step's normaliser is not known yet. So each micro-batch adds up `weight * loss`, and the
sum (or its gradient) is divided once, by the normaliser of the step. That makes the result independent of how the
step was split into micro-batches and over ranks. Must not know what a token's loss is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

AGGREGATIONS = ("token", "sequence", "constant")


def token_weights(lengths: Sequence[int], aggregation: str, *, max_new_tokens: int) -> torch.Tensor:
    """Weight of every completion token, completions one after the other: float32 [sum(lengths)].

    token: 1. The step's loss is the mean over all its tokens (DAPO, Yu et al. 2025, arXiv:2503.14476, equation 8).
    sequence: 1 / length. The step's loss is the mean of the sequences' means (GRPO, arXiv:2402.03300, equation 3).
    constant: 1 / max_new_tokens. The step's loss is the sum over tokens divided by max_new_tokens x sequences
    (Dr. GRPO, arXiv:2503.20783): no length is favoured.

    Raises ValueError on an unknown aggregation.
    """
    if aggregation == "token":
        return torch.ones(sum(lengths))
    if aggregation == "sequence":
        return torch.cat([torch.full((length,), 1.0 / length) for length in lengths if length] or [torch.zeros(0)])
    if aggregation == "constant":
        return torch.full((sum(lengths),), 1.0 / max_new_tokens)
    raise ValueError(f"unknown aggregation {aggregation!r}; known: {', '.join(AGGREGATIONS)}")


def normaliser(aggregation: str, *, tokens: int, sequences: int) -> float:
    """What the step's sum of weighted losses is divided by, from the step's totals over all ranks.

    Only judged completions count. 0 when nothing was judged: then there is no step to make.
    Raises ValueError on an unknown aggregation.
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"unknown aggregation {aggregation!r}; known: {', '.join(AGGREGATIONS)}")
    return float(tokens if aggregation == "token" else sequences)
