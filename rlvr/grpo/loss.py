"""The loss of each token: ratio, clipping, behaviour correction, and KL to the reference, as orthogonal choices.

Gradients flow only through `logprobs`. Must not know about groups, micro-batches or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlvr.config import AlgorithmConfig


@dataclass(frozen=True)
class TokenLoss:
    """Per-token results, each [T]. Only `loss` carries gradient."""

    loss: torch.Tensor
    ratio: torch.Tensor
    kl: torch.Tensor
    clipped_low: torch.Tensor
    """bool: the gradient was cut (CISPO: capped) because the ratio was below 1 - clip_low on a negative advantage."""
    clipped_high: torch.Tensor
    """bool: the gradient was cut (CISPO: capped) because the ratio was above 1 + clip_high on a positive advantage."""
    correction: torch.Tensor
    """Weight of the behaviour correction; 1 without one."""
    corrected: torch.Tensor
    """bool: the correction capped or masked this token."""


def needs_whole_completions(algorithm: AlgorithmConfig) -> bool:
    """Whether a token's loss depends on other tokens of its completion, so that it cannot be taken in chunks."""
    return algorithm.ratio == "sequence" or algorithm.correction.kind == "sequence_masked"


def k2(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Half the squared log ratio per token, [T] -> [T]; in the loss its gradient is that of the reverse KL.

    The k2 estimator of Schulman, "Approximating KL divergence" (2020). On-policy, the gradient
    (logprob - reference) * grad logprob is the exact gradient of KL(policy || reference) in expectation.
    """
    return 0.5 * (logprobs - reference).square()


def k3(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """KL(policy || reference) per token: exp(d) - d - 1, d = reference - policy. [T] -> [T], never negative.

    The k3 estimator of Schulman, "Approximating KL divergence" (2020); GRPO, arXiv:2402.03300, equation 4. Its value
    is unbiased for the reverse KL; its gradient, (1 - exp(d)) * grad logprob, is on-policy that of the forward KL.
    """
    difference = reference - logprobs
    # expm1 keeps the digits that exp(d) - 1 would cancel: at d = 1e-4 the value is 5e-9.
    return torch.expm1(difference) - difference


#: What may stand in the loss. k1 may not: the expectation of its gradient is 0, whatever the divergence.
KL_IN_LOSS = {"k2": k2, "k3": k3}


def completion_means(values: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Mean over each completion's tokens, at each of its tokens: [T] -> [T], T = sum(lengths), differentiable."""
    return torch.cat([part.mean().expand(len(part)) for part in values.split(list(lengths)) if len(part)])


def token_loss(
    logprobs: torch.Tensor,
    behaviour: torch.Tensor,
    advantages: torch.Tensor,
    algorithm: AlgorithmConfig,
    *,
    lengths: Sequence[int] = (),
    reference: torch.Tensor | None = None,
) -> TokenLoss:
    """The loss of each token under `algorithm`.

    Args:
        logprobs: float [T], the learner's, of the distribution that was sampled from.
        behaviour: float [T], the engine's at sampling.
        advantages: float [T], the completion's advantage at each of its tokens.
        lengths: tokens of each completion, in order, T in all; needed where `needs_whole_completions`.
        reference: float [T]; needed for a KL term in the loss.

    With r the ratio of the policy to what it is measured against (the behaviour policy; with a behaviour correction
    the policy itself before this update), A the advantage:

    clip: -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), PPO (Schulman et al. 2017, arXiv:1707.06347, equation 7)
        as in GRPO (arXiv:2402.03300, equation 3), with unequal bounds in DAPO (arXiv:2503.14476, equation 8). With
        dual_clip c, never above -c A where A < 0 (Ye et al. 2020, arXiv:1912.09729, equation 5).
    cispo: -stop_gradient(clip(r, 1 - clip_low, 1 + clip_high)) A logprob (MiniMax-M1, arXiv:2506.13585, equations
        4 and 5): no token loses its gradient.
    ratio "sequence": r is the geometric mean over the completion (GSPO, Zheng et al. 2025, arXiv:2507.18071,
        equation 7), the same at all its tokens.

    Raises ValueError on a missing reference, and on missing lengths.
    """
    if needs_whole_completions(algorithm) and sum(lengths) != len(logprobs):
        raise ValueError(
            f"the loss needs whole completions: {sum(lengths)} tokens in lengths, {len(logprobs)} logprobs"
        )
    correcting = algorithm.correction.kind != "none"
    log_ratio = logprobs - (logprobs.detach() if correcting else behaviour)
    if algorithm.ratio == "sequence":
        log_ratio = completion_means(log_ratio, lengths)
    ratio = torch.exp(log_ratio)
    low, high = 1.0 - algorithm.clip_low, 1.0 + algorithm.clip_high
    clipped = ratio.clamp(low, high)
    if algorithm.objective == "cispo":
        loss = -clipped.detach() * advantages * logprobs
    else:
        loss = -torch.minimum(ratio * advantages, clipped * advantages)
        if algorithm.dual_clip > 0:
            loss = torch.where(advantages < 0, torch.minimum(loss, -algorithm.dual_clip * advantages), loss)
    correction, corrected = _correction(logprobs.detach(), behaviour, algorithm, lengths)
    if correcting:
        loss = loss * correction
    kl = torch.zeros_like(ratio.detach())
    if algorithm.kl.coef > 0.0 and algorithm.kl.place == "loss":
        if reference is None:
            raise ValueError("a KL term in the loss needs reference logprobs")
        kl = KL_IN_LOSS[algorithm.kl.estimator](logprobs, reference)
        loss = loss + algorithm.kl.coef * kl
    with torch.no_grad():
        clipped_low = (ratio < low) & (advantages < 0)
        clipped_high = (ratio > high) & (advantages > 0)
    return TokenLoss(loss, ratio.detach(), kl.detach(), clipped_low, clipped_high, correction, corrected)


@torch.no_grad()
def _correction(
    logprobs: torch.Tensor, behaviour: torch.Tensor, algorithm: AlgorithmConfig, lengths: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [T] for what engine and learner, or older and newer weights, disagree about; and where they cut.

    With w = exp(logprob - behaviour):
    truncated: min(w, high). Truncated importance sampling (Ionides 2008; for engine mismatch, Yao et al. 2025).
    masked: w within [low, high], else 0. IcePop (Ling team 2025).
    sequence_masked: 1 for completions whose geometric mean of w is within [low, high], else 0.
    """
    correction = algorithm.correction
    weights = torch.exp(logprobs - behaviour)
    if correction.kind == "truncated":
        return weights.clamp(max=correction.high), weights > correction.high
    if correction.kind == "none":
        return torch.ones_like(weights), torch.zeros_like(weights, dtype=torch.bool)
    if correction.kind == "sequence_masked":
        weights = torch.exp(completion_means(logprobs - behaviour, lengths))
    outside = (weights < correction.low) | (weights > correction.high)
    if correction.kind == "sequence_masked":
        return (~outside).to(weights.dtype), outside
    return weights.masked_fill(outside, 0.0), outside
