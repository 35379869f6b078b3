"""The reward of a run: criteria in order, each judged by its verifier, added up with their weights.

The first criterion is the answer criterion: its status is the verdict's. Weights are used as they are, they are
not made to add up to 1. A criterion without a score leaves the whole verdict without one: a sum over the rest
would be a different reward. Criteria stay visible in the verdict. Must not know where verifiers run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rlvr.errors import ConfigError
from rlvr.records import Part, Status, Verdict
from rlvr.rewards import programs
from rlvr.rewards.judgement import Judgement, judge
from rlvr.rewards.registry import Verifier, option_problems, resolve
from rlvr.rewards.sample import Sample


@dataclass(frozen=True)
class CriterionSpec:
    """One criterion as plain data, as the configuration has it."""

    name: str
    verifier: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


def specs_of(reward_config: Any) -> list[CriterionSpec]:
    """The criteria of a configuration's `reward` section (dataclasses or OmegaConf), in order."""
    return [
        CriterionSpec(name, str(criterion.verifier), criterion.weight, _plain(criterion.options))
        for name, criterion in reward_config.criteria.items()
    ]


def _plain(value: Any) -> Any:
    """Configuration containers as dict and list."""
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True)
class Reward:
    """The criteria, ready to judge in this process."""

    specs: tuple[CriterionSpec, ...]
    verifiers: tuple[Verifier, ...]

    @classmethod
    def of(cls, specs: Sequence[CriterionSpec]) -> Reward:
        """Look everything up and check it. Raises ConfigError with all problems at once."""
        problems: list[str] = []
        verifiers: list[Verifier] = []
        if not specs:
            problems.append("reward.criteria: there is none; name at least the answer criterion")
        for spec in specs:
            key = f"reward.criteria.{spec.name}"
            number = isinstance(spec.weight, (int, float)) and not isinstance(spec.weight, bool)
            if not number or not math.isfinite(spec.weight):
                problems.append(f"{key}.weight: {spec.weight!r} is not a finite number")
            try:
                verifier = resolve(spec.verifier, f"{key}.verifier")
            except ConfigError as error:
                problems += error.problems
                continue
            problems += option_problems(verifier, spec.options, f"{key}.options")
            verifiers.append(verifier)
        if problems:
            raise ConfigError(problems)
        return cls(tuple(specs), tuple(verifiers))

    @classmethod
    def from_config(cls, reward_config: Any) -> Reward:
        """The reward of a configuration's `reward` section. Raises ConfigError."""
        programs.configure(**programs.settings_of(reward_config))
        return cls.of(specs_of(reward_config))

    @cached_property
    def identities(self) -> list[str]:
        """`name@version#hash` of each criterion's verifier."""
        return [verifier.identity(spec.options) for verifier, spec in zip(self.verifiers, self.specs, strict=True)]

    def prepare(self) -> None:
        """What the verifiers want to be done once before they judge; see `registry.Verifier.prepare`."""
        for prepare in dict.fromkeys(verifier.prepare for verifier in self.verifiers):
            if prepare is not None:
                prepare()

    def sandbox(self, otherwise: str) -> str:
        """How strongly what the verifiers run of a completion is confined; `otherwise`: they run nothing of it."""
        levels = [verifier.level() for verifier in self.verifiers if verifier.level is not None]
        return levels[0] if levels else otherwise

    def judge(self, index: int, sample: Sample) -> Judgement:
        """What one criterion says."""
        return judge(self.verifiers[index].function, sample, self.specs[index].options)

    def grade(self, sample: Sample) -> Verdict:
        """Judge in this process, without deadline or memory limit: for trying a reward out, and for tests."""
        started = time.perf_counter()
        judgements = [self.judge(index, sample) for index in range(len(self.specs))]
        seconds = time.perf_counter() - started
        return combine(self.specs, self.identities, judgements, seconds=seconds, sandbox=self.sandbox("inline"))


def combine(
    specs: Sequence[CriterionSpec],
    identities: Sequence[str],
    judgements: Sequence[Judgement],
    *,
    seconds: float,
    sandbox: str,
) -> Verdict:
    """One verdict from the judgements of all criteria, in order."""
    parts: dict[str, Part] = {}
    unjudged: list[Part] = []
    total = 0.0
    for spec, judgement in zip(specs, judgements, strict=True):
        part = parts[spec.name] = Part(judgement.score, float(spec.weight), judgement.status, judgement.evidence)
        if part.score is None:
            unjudged.append(part)
        else:
            total += part.weight * part.score
    score = None if unjudged else total
    answer = judgements[0]
    return Verdict(
        score=score,
        status=unjudged[0].status if unjudged else answer.status,
        parts=parts,
        extracted=answer.extracted,
        normalized=answer.normalized,
        verifier="+".join(identities),
        seconds=seconds,
        sandbox=sandbox,
    )


def strictly_right(verdict: Verdict) -> bool | None:
    """Whether the answer criterion gave full marks (strict accuracy); None: it could not be judged."""
    answer = next(iter(verdict.parts.values()))
    return None if answer.score is None else answer.status is Status.OK
