"""From scores of a group to advantages: baseline x scale, as orthogonal choices.

Must not know where scores come from, nor what the loss does with the advantages.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: Added to the standard deviation, in units of the score. Scores lie in [0, 1] by convention, so a genuine spread is
#: above 1e-3 even for a hundred completions; the spread that rounding leaves behind is below 1e-15 in float64. Between
#: the two, 1e-6 changes a genuine advantage by less than 0.1 % and keeps noise from being blown up to +-1.
STD_EPSILON = 1e-6

BASELINES = ("group_mean", "leave_one_out", "none")
SCALES = ("group_std", "batch_std", "none")


def has_no_variance(scores: Sequence[float | None]) -> bool:
    """Whether all judged scores of a group are exactly equal, so that it carries no policy gradient.

    Decided on the raw scores, never on a computed standard deviation: the mean of eight times 0.1 is not 0.1.
    A group with fewer than two judged completions has no variance either.
    """
    known = [score for score in scores if score is not None]
    return len(set(known)) < 2


def group_advantages(
    scores: Sequence[float | None], *, baseline: str = "group_mean", scale: str = "group_std"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages of one group of G completions.

    Args:
        scores: G scores; None for a completion that could not be judged. It takes part neither in the baseline nor
            in the scale, and its advantage is 0.
        baseline: "group_mean" (GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1.2), "leave_one_out", the mean of
            the *other* judged scores (RLOO, Ahmadian et al. 2024, arXiv:2402.14740, section 3), or "none" (REINFORCE).
        scale: "group_std", the sample standard deviation (n - 1) of the judged scores, "none" (Dr. GRPO,
            Liu et al. 2025, arXiv:2503.20783), or "batch_std": nothing yet, `batch_scaled` divides when the whole
            step is there.

    Returns:
        (advantages float32 [G], judged bool [G]).

    With a baseline, equal scores give advantages of exactly 0.
    Raises ValueError on an unknown baseline or scale, and on a score that is not finite.
    """
    if baseline not in BASELINES:
        raise ValueError(f"unknown baseline {baseline!r}; known: {', '.join(BASELINES)}")
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}; known: {', '.join(SCALES)}")
    judged = torch.tensor([score is not None for score in scores], dtype=torch.bool)
    values = torch.tensor([0.0 if score is None else float(score) for score in scores], dtype=torch.float64)
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"scores must be finite numbers or None, got {list(scores)}")
    known = values[judged]
    advantages = torch.zeros_like(values)
    count = known.numel()
    if count == 0:
        return advantages.float(), judged
    centred = known
    if baseline != "none":
        # A mean of equal numbers need not equal them in floating point, so equality is decided before.
        centred = torch.zeros_like(known) if has_no_variance(scores) else known - known.mean()
        if baseline == "leave_one_out" and count > 1:
            centred = centred * (count / (count - 1))  # score - mean of the others, written with the mean of all
    if scale == "group_std" and count > 1:
        centred = centred / (known.std(correction=1) + STD_EPSILON)
    advantages[judged] = centred
    return advantages.float(), judged


def batch_scaled(groups: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Advantages of a whole step, divided by their standard deviation over all judged completions of the step.

    REINFORCE++ with a group baseline (Hu et al. 2025, arXiv:2501.03262, section 3.2). That paper also subtracts the
    batch's mean, which behind a group baseline is 0 already. None entries, not judged, stay None.
    """
    known = torch.tensor([value for group in groups for value in group if value is not None], dtype=torch.float64)
    if known.numel() < 2:
        return [list(group) for group in groups]
    divisor = float(known.std(correction=1)) + STD_EPSILON
    return [[None if value is None else value / divisor for value in group] for group in groups]
