"""The decisions of the loop, as small pure state machines: what to drop, what to replace, when to stop.

None of them awaits, logs or knows an actor.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr.config import AlgorithmConfig, RolloutConfig
from rlvr.errors import TrainingError
from rlvr.records import Group, judged


@dataclass
class GroupFilter:
    """Which scored groups are worth training on."""

    drop_equal: bool

    def reason_to_drop(self, group: Group) -> str:
        """Why this group carries no gradient, or "" to keep it. Equality of scores is exact (DESIGN 5)."""
        scores = judged(group.scores)
        if len(scores) < 2:
            return "too_few_judged"
        if self.drop_equal and len(set(scores)) == 1:
            return "equal_scores"
        return ""


@dataclass
class Replacements:
    """Dynamic sampling with a bound: prompts issued in place of dropped groups within one step."""

    limit: int
    used: int = 0

    @classmethod
    def from_config(cls, algorithm: AlgorithmConfig) -> Replacements:
        return cls(limit=algorithm.max_replacements if algorithm.drop_equal_groups else 0)

    def take(self) -> bool:
        """Whether one more prompt may be issued; books it."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True


@dataclass
class RewardFailures:
    """Completions that could not be judged, against reward.max_failure_rate. Keeps a few to show."""

    max_rate: float
    judged: int = 0
    unjudged: int = 0
    examples: list[str] = field(default_factory=list)

    def book(self, group: Group) -> None:
        for completion, verdict in zip(group.completions, group.verdicts, strict=True):
            if verdict.score is not None:
                self.judged += 1
                continue
            self.unjudged += 1
            if len(self.examples) < 3:
                evidence = "; ".join(
                    f"{name}: {part.evidence}" for name, part in verdict.parts.items() if part.evidence
                )
                self.examples.append(
                    f"prompt {group.prompt.id}, {verdict.status}: {evidence or 'no evidence'} "
                    f"(reference {group.prompt.reference!r}, completion {completion.text[:120]!r})"
                )

    @property
    def rate(self) -> float:
        return self.unjudged / max(1, self.judged + self.unjudged)

    def check(self) -> None:
        """Raises TrainingError with examples when the rate is above the limit."""
        if self.rate > self.max_rate:
            shown = "\n".join(f"  - {example}" for example in self.examples)
            raise TrainingError(
                f"{self.unjudged} of {self.judged + self.unjudged} completions could not be judged "
                f"(reward.max_failure_rate={self.max_rate:g}). They are not scored 0: mend the verifier or the "
                f"references. The first of them:\n{shown}"
            )


@dataclass
class FailureBudget:
    """Groups that failed for good, against rollout.max_failed_groups."""

    limit: int
    spent: int = 0

    def spend(self, error: Exception) -> None:
        """Book one failed group. Raises TrainingError from `error` when the budget is used up."""
        self.spent += 1
        if self.spent > self.limit:
            raise TrainingError(
                f"{self.spent} groups failed (rollout.max_failed_groups={self.limit}); the last one: {error}"
            ) from error


def temperature_at(step: int, steps: int, rollout: RolloutConfig) -> float:
    """Sampling temperature of step 1..steps: linear from the first to the last, or constant."""
    if rollout.temperature_end is None or steps <= 1:
        return rollout.temperature
    share = (step - 1) / (steps - 1)
    return rollout.temperature + share * (rollout.temperature_end - rollout.temperature)


def seed_for(*parts: object) -> int:
    """A 31-bit seed that depends on `parts` alone: the same in every process and after every restart."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


def mean_gap(behaviour: Sequence[Sequence[float]], own: Sequence[Sequence[float]]) -> float:
    """Mean |engine - learner| logprob over all tokens."""
    gaps = [abs(a - b) for left, right in zip(behaviour, own, strict=True) for a, b in zip(left, right, strict=True)]
    return sum(gaps) / max(1, len(gaps))


def gap_limit(rollout: RolloutConfig, dtype: str) -> float:
    """rollout.max_logprob_gap, or its default for the dtype: ten times what a healthy run shows.

    A simulated engine samples from no weights at all, so its gap means nothing and has no limit.
    """
    if rollout.engine == "simulated":
        return math.inf
    if rollout.max_logprob_gap > 0:
        return rollout.max_logprob_gap
    return 0.01 if dtype == "float32" else 0.1
