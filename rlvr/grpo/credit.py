"""What each completion of a group is worth to the learner: shaped scores, criteria, baseline and scale, masks.

Everything between the verdicts and the loss that is decided per group. Must not know models or the loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rlvr.config import AlgorithmConfig
from rlvr.grpo.advantages import batch_scaled, group_advantages
from rlvr.records import Completion, Group


def needs_whole_step(algorithm: AlgorithmConfig) -> bool:
    """Whether advantages are known only when every group of the step is there, so that the learner must wait."""
    return algorithm.scale == "batch_std"


def overlong_penalty(length: int, *, max_new_tokens: int, margin: int) -> float:
    """What a completion of `length` tokens loses for coming close to the limit: 0 to 1.

    DAPO's soft overlong punishment (arXiv:2503.14476, equation 13): nothing up to max_new_tokens - margin, then
    linearly up to 1 at max_new_tokens. margin=0: nothing.
    """
    if margin <= 0:
        return 0.0
    return min(1.0, max(0.0, (length - (max_new_tokens - margin)) / margin))


def kl_penalty(completion: Completion, reference: np.ndarray) -> float:
    """The k1 estimate of KL(policy || reference) of a whole completion, in nats: sum of behaviour - reference."""
    return float(np.sum(completion.logprobs - reference, dtype=np.float64))


def group_credit(group: Group, algorithm: AlgorithmConfig, max_new_tokens: int) -> list[float | None]:
    """The advantage of each completion; None masks it out of the loss.

    Penalties are subtracted from the score before the baseline. Completions that could not be judged are in neither
    baseline nor loss; truncated ones, with `mask_truncated`, are in the baseline and not in the loss.
    Raises ValueError when the KL penalty is asked for and the group has no reference logprobs.
    """
    penalties = _penalties(group, algorithm, max_new_tokens)
    if algorithm.criteria == "separate":
        values = _separate(group, algorithm)
        values = values + _advantages([-p for p in penalties], group.scores, algorithm) if any(penalties) else values
    else:
        shaped = [None if s is None else s - p for s, p in zip(group.scores, penalties, strict=True)]
        values = _advantages(shaped, group.scores, algorithm)
    masked = [
        score is None or (algorithm.mask_truncated and completion.truncated)
        for score, completion in zip(group.scores, group.completions, strict=True)
    ]
    return [None if mask else value for value, mask in zip(values.tolist(), masked, strict=True)]


def step_credit(groups: Sequence[Group], algorithm: AlgorithmConfig) -> None:
    """Finish the advantages of all groups of a step, where they depend on each other."""
    if not needs_whole_step(algorithm):
        return
    scaled = batch_scaled([group.advantages or [] for group in groups])
    for group, advantages in zip(groups, scaled, strict=True):
        group.advantages = advantages


def _advantages(
    scores: Sequence[float | None], judged: Sequence[float | None], algorithm: AlgorithmConfig
) -> torch.Tensor:
    known = [None if mark is None else score for score, mark in zip(scores, judged, strict=True)]
    return group_advantages(known, baseline=algorithm.baseline, scale=algorithm.scale)[0]


def _separate(group: Group, algorithm: AlgorithmConfig) -> torch.Tensor:
    """Each criterion normalised within the group, then weighted and added (GDPO, arXiv:2601.05242).

    A rare criterion is then not drowned by one whose scores spread more.
    """
    total = torch.zeros(len(group.verdicts))
    for name in dict.fromkeys(name for verdict in group.verdicts for name in verdict.parts):
        parts = [verdict.parts.get(name) for verdict in group.verdicts]
        weight = next(part.weight for part in parts if part is not None)
        scores = [None if part is None else part.score for part in parts]
        total += weight * _advantages(scores, group.scores, algorithm)
    return total


def _penalties(group: Group, algorithm: AlgorithmConfig, max_new_tokens: int) -> list[float]:
    overlong = algorithm.overlong
    penalties = [
        overlong.penalty
        * overlong_penalty(len(completion.token_ids), max_new_tokens=max_new_tokens, margin=overlong.margin_tokens)
        for completion in group.completions
    ]
    if algorithm.kl.coef > 0 and algorithm.kl.place == "reward":
        if group.reference_logprobs is None:
            raise ValueError(f"group {group.id} has no reference logprobs to take the KL penalty from")
        for index, (completion, reference) in enumerate(zip(group.completions, group.reference_logprobs, strict=True)):
            penalties[index] += algorithm.kl.coef * kl_penalty(completion, reference)
    return penalties
