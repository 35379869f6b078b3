"""Evaluation: the held-out problems through the same engines and verifiers as training.

Knows nothing of the learner. Accuracy is counted twice: lenient, by the last number of the completion
whatever its format, and strict, by the configured answer criterion at full marks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr.concurrency import all_of
from rlvr.config import Config
from rlvr.driver.policies import seed_for
from rlvr.driver.protocols import Reward, Rollout, Tracker
from rlvr.records import Group, GroupState, Prompt, Sampling
from rlvr.rewards import last_number_verdict, strictly_right
from rlvr.tracking.accuracy import Accuracy, accuracy


@dataclass(frozen=True)
class EvaluationResult:
    """Both ways of counting, over the split and per category. Problems without a judgement count in neither."""

    step: int
    lenient: Accuracy
    strict: Accuracy
    lenient_by_category: dict[str, Accuracy]
    strict_by_category: dict[str, Accuracy]
    unjudged: int
    tokens: int
    seconds: float


@dataclass
class Evaluator:
    config: Config
    prompts: Sequence[Prompt]
    stop: tuple[str, ...]
    rollout: Rollout
    reward: Reward
    tracker: Tracker

    async def evaluate(self, step: int) -> EvaluationResult:
        """Answer and judge every held-out problem. A failure of a machine ends it: no partial accuracy is reported."""
        started = time.monotonic()
        self.tracker.evaluating(step, len(self.prompts))
        groups = await all_of(self._judge(step, prompt) for prompt in self.prompts)
        result = _summarise(step, groups, time.monotonic() - started, _locale(self.config))
        await self.tracker.evaluation(result, groups)
        return result

    async def _judge(self, step: int, prompt: Prompt) -> Group:
        options = self.config.eval
        sampling = Sampling(
            temperature=options.temperature,
            max_new_tokens=options.max_new_tokens or self.config.max_new_tokens,
            stop=self.stop,
            seed=seed_for(self.config.run.seed, "eval", prompt.id),
        )
        group = Group(id=f"eval-{step:06d}-{prompt.id}", prompt=prompt, step=step)
        group.completions = await self.rollout.generate(prompt, sampling, options.samples)
        group.advance(GroupState.GENERATED)
        group.verdicts = await self.reward.grade(group)
        group.advance(GroupState.SCORED)
        return group


def _locale(config: Config) -> str:
    """How the answer criterion is told that numbers are written: they are read alike by both ways of counting."""
    answer = next(iter(config.reward.criteria.values()))
    return str(answer.options.get("locale", "en"))


def _summarise(step: int, groups: Sequence[Group], seconds: float, locale: str) -> EvaluationResult:
    lenient: dict[str, list[list[bool]]] = {}
    strict: dict[str, list[list[bool]]] = {}
    unjudged = 0
    for group in groups:
        by_number: list[bool] = []
        by_criterion: list[bool] = []
        for completion, verdict in zip(group.completions, group.verdicts, strict=True):
            where = str(group.prompt.extra.get("locale") or locale)
            number = last_number_verdict(completion.text, group.prompt.reference, where)
            if number is not None:
                by_number.append(number)
            right = strictly_right(verdict)
            if right is None:
                unjudged += 1
            else:
                by_criterion.append(right)
        lenient.setdefault(group.prompt.category, []).append(by_number)
        strict.setdefault(group.prompt.category, []).append(by_criterion)
    return EvaluationResult(
        step=step,
        lenient=accuracy([problem for problems in lenient.values() for problem in problems if problem]),
        strict=accuracy([problem for problems in strict.values() for problem in problems if problem]),
        lenient_by_category={name: accuracy([p for p in problems if p]) for name, problems in lenient.items()},
        strict_by_category={name: accuracy([p for p in problems if p]) for name, problems in strict.items()},
        unjudged=unjudged,
        tokens=sum(len(completion.token_ids) for group in groups for completion in group.completions),
        seconds=seconds,
    )
