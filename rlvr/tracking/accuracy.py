"""pass@1 with a 95 % interval. Pure.

With one sample per problem the interval is Wilson's score interval (E. B. Wilson, "Probable inference, the law of
succession, and statistical inference", JASA 22, 1927):

    centre = (p + z^2 / 2m) / (1 + z^2 / m)
    half   = z / (1 + z^2 / m) * sqrt(p (1 - p) / m + z^2 / 4m^2)        z = 1.96, m = problems

With several samples per problem, samples of one problem are alike, so the problem is the unit of sampling
(clustered standard error: E. Miller, "Adding error bars to evals", arXiv 2411.00640, section 2.2). With p_i the
pass rate of problem i, p their mean and

    V = sum_i (p_i - p)^2 / N^2          the variance of the mean over N problems
    m = p (1 - p) / V                    the effective number of independent samples (Kish's design effect)

Wilson's formula is applied with that m (E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with
small expected number of positive counts estimated from survey data", Survey Methodology 24, 1998). With one sample
per problem V = p (1 - p) / N, so m = N and both cases are one formula. N <= m <= number of samples: the lower bound
always holds, the upper one is enforced; where all samples agree (p = 0 or 1), V says nothing and m = N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Two-sided 95 % quantile of the normal distribution.
Z_95 = 1.959963984540054


@dataclass(frozen=True)
class Accuracy:
    """pass@1 as a share, its 95 % interval, and the number of problems. All None where n is 0."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    def as_dict(self) -> dict[str, float | int | None]:
        """The form of summary.json and metrics.jsonl."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}

    def __str__(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return "no problem judged"
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%}, n={self.n})"


def accuracy(problems: Sequence[Sequence[bool]]) -> Accuracy:
    """pass@1 of `problems`, each with the outcomes of its samples (problems may differ in number).

    Every problem weighs the same. Raises ValueError on a problem without any sample: whoever could not judge it
    leaves it out and counts it.
    """
    if any(len(samples) == 0 for samples in problems):
        raise ValueError("a problem without samples has no accuracy")
    n = len(problems)
    if n == 0:
        return Accuracy(None, None, None, 0)
    rates = [sum(bool(outcome) for outcome in samples) / len(samples) for samples in problems]
    value = math.fsum(rates) / n
    total = sum(len(samples) for samples in problems)
    low, high = wilson(value, _effective_samples(rates, value, total))
    return Accuracy(value, low, high, n)


def wilson(share: float, samples: float) -> tuple[float, float]:
    """95 % score interval of a share observed over `samples` (> 0) independent samples, inside [0, 1]."""
    z2 = Z_95 * Z_95
    shrink = 1 + z2 / samples
    centre = (share + z2 / (2 * samples)) / shrink
    half = Z_95 / shrink * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples * samples))
    # At 0 and 1 one bound is exactly the share; rounding must not put it on the other side.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def _effective_samples(rates: Sequence[float], value: float, total: int) -> float:
    n = len(rates)
    variance = math.fsum((rate - value) ** 2 for rate in rates) / (n * n)
    spread = value * (1 - value)
    if spread <= 0:
        return float(n)
    if variance * total <= spread:
        return float(total)
    return max(float(n), spread / variance)
