"""The loss of each token: clipped importance ratio times advantage, plus KL to the reference.

Gradients flow only through `logprobs`. Must not know about groups, micro-batches or models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TokenLoss:
    """Per-token results, each [T]. Only `loss` carries gradient."""

    loss: torch.Tensor
    ratio: torch.Tensor
    kl: torch.Tensor
    clipped_low: torch.Tensor
    """bool: the gradient was cut because the ratio fell below 1 - clip_low on a negative advantage."""
    clipped_high: torch.Tensor
    """bool: the gradient was cut because the ratio rose above 1 + clip_high on a positive advantage."""


def k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """KL(policy || reference) per token: exp(d) - d - 1, d = reference - policy. [T] -> [T], never negative.

    The k3 estimator of Schulman, "Approximating KL divergence" (2020); GRPO, arXiv:2402.03300, equation 4.
    """
    difference = reference - logprobs
    # expm1 keeps the digits that exp(d) - 1 would cancel: at d = 1e-4 the value is 5e-9.
    return torch.expm1(difference) - difference


def token_loss(
    logprobs: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    reference: torch.Tensor | None = None,
    kl_coef: float = 0.0,
) -> TokenLoss:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_coef * k3, with r = exp(logprobs - behaviour).

    PPO's clipped objective (Schulman et al. 2017, arXiv:1707.06347, equation 7) with the group-relative advantage of
    GRPO (arXiv:2402.03300, equation 3); clip_low and clip_high may differ (DAPO, arXiv:2503.14476, equation 8).

    Args:
        logprobs: float [T], the learner's, of the distribution that was sampled from.
        behaviour: float [T], the engine's at sampling.
        advantages: float [T], the completion's advantage at each of its tokens.
        reference: float [T]; needed when kl_coef > 0.

    Raises ValueError when kl_coef > 0 without reference logprobs.
    """
    ratio = torch.exp(logprobs - behaviour)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    kl = torch.zeros_like(ratio.detach())
    if kl_coef > 0.0:
        if reference is None:
            raise ValueError("kl_coef > 0 needs reference logprobs")
        kl = k3(logprobs, reference)
        loss = loss + kl_coef * kl
    with torch.no_grad():
        low = (ratio < 1.0 - clip_low) & (advantages < 0)
        high = (ratio > 1.0 + clip_high) & (advantages > 0)
    return TokenLoss(loss=loss, ratio=ratio.detach(), kl=kl.detach(), clipped_low=low, clipped_high=high)
