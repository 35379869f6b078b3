"""Sums over a step's tokens that can be added up over micro-batches and ranks, and turned into metrics once.

Must not know who adds them up.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from rlvr.grpo.loss import TokenLoss


@dataclass
class StepSums:
    """Unnormalised totals. `tokens` and `sequences` count judged completions only, `computed_tokens` all work done."""

    loss: float = 0.0
    """Sum of weight x token loss."""
    kl: float = 0.0
    ratio: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    correction: float = 0.0
    corrected: float = 0.0
    gap: float = 0.0
    """Sum of |learner - behaviour| logprob."""
    gap_max: float = 0.0
    tokens: int = 0
    sequences: int = 0
    computed_tokens: int = 0

    def add(self, other: StepSums) -> None:
        """Take `other` in: everything adds up, the maximum is kept."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, theirs) if field.name == "gap_max" else mine + theirs)

    def metrics(self, normaliser: float) -> dict[str, float]:
        """Metrics of the step. The loss is divided by the step's normaliser, the rest are means over tokens."""
        tokens = max(self.tokens, 1)
        return {
            "loss": self.loss / normaliser,
            "kl": self.kl / tokens,
            "ratio_mean": self.ratio / tokens,
            "clip_low": self.clipped_low / tokens,
            "clip_high": self.clipped_high / tokens,
            "correction_mean": self.correction / tokens,
            "corrected": self.corrected / tokens,
            "logprob_gap": self.gap / tokens,
            "logprob_gap_max_token": self.gap_max,
            "tokens": float(self.tokens),
            "sequences": float(self.sequences),
            "computed_tokens": float(self.computed_tokens),
        }


def token_sums(result: TokenLoss, logprobs: torch.Tensor, behaviour: torch.Tensor, weights: torch.Tensor) -> StepSums:
    """Totals over some tokens, all of them of judged completions; every argument is [T]."""
    with torch.no_grad():
        gap = (logprobs.detach() - behaviour).abs()
        columns = {
            "loss": result.loss.detach() * weights,
            "kl": result.kl,
            "ratio": result.ratio,
            "clipped_low": result.clipped_low,
            "clipped_high": result.clipped_high,
            "correction": result.correction,
            "corrected": result.corrected,
            "gap": gap,
        }
        # float64: over the tokens of a large step, float32 sums lose the digits that tests compare.
        sums = torch.stack([column.double().sum() for column in columns.values()]).tolist()
        gap_max = float(gap.max()) if gap.numel() else 0.0
    totals = StepSums(gap_max=gap_max, tokens=gap.numel())
    for name, value in zip(columns, sums, strict=True):
        setattr(totals, name, value)
    return totals
