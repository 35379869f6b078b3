"""The training loop: issue prompts, let each group flow on the moment it is complete, learn, sync weights.

Reads top to bottom. What happens to one group is `_follow`; what happens in one step is `_step`. The loop
talks to actors through the protocols only, and leaves every decision to the policies beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from rlvr.config import Config
from rlvr.driver.accounts import Accounts
from rlvr.driver.evaluation import Evaluator
from rlvr.driver.parity import ParityProbe
from rlvr.driver.policies import (
    FailureBudget,
    GroupFilter,
    Replacements,
    RewardFailures,
    gap_limit,
    seed_for,
    temperature_at,
)
from rlvr.driver.protocols import Learner, Reference, Reward, Rollout, Tracker
from rlvr.errors import DataError, InfrastructureError, TrainingError
from rlvr.grpo.credit import group_credit, needs_whole_step, step_credit
from rlvr.records import Group, GroupState, Prompt, Sampling
from rlvr.tracking.step_clock import StepClock


@dataclass
class Driver:
    """One run. `next_prompt` yields the training prompts in issue order, with token ids."""

    config: Config
    next_prompt: Callable[[], Prompt]
    stop: tuple[str, ...]
    rollout: Rollout
    reward: Reward
    learner: Learner
    reference: Reference | None
    evaluator: Evaluator
    probe: ParityProbe
    tracker: Tracker
    save_checkpoint: Callable[[int], Awaitable[None]]
    overlap: bool
    accounts: Accounts = field(default_factory=Accounts)

    def __post_init__(self) -> None:
        config = self.config
        self.version = 0
        self.trained_steps = 0
        self._serial = 0
        self._filter = GroupFilter(config.algorithm.drop_equal_groups)
        self._reward_failures = RewardFailures(config.reward.max_failure_rate)
        self._failure_budget = FailureBudget(config.rollout.max_failed_groups)
        self._gap_limit = gap_limit(config.rollout, config.model.dtype)
        self._streams = self.overlap and not needs_whole_step(config.algorithm)

    async def train(self) -> None:
        """Run all steps. Raises TrainingError when no step trained anything, or the run cannot go on honestly."""
        config = self.config
        await self._sync()  # the engines start from the very weights that the learner holds
        if config.eval.before:
            await self.evaluator.evaluate(step=0)
        for step in range(1, config.run.steps + 1):
            await self._step(step)
            last = step == config.run.steps
            if _due(step, config.eval.every_steps) and not (last and config.eval.after):
                await self.evaluator.evaluate(step)
            if _due(step, config.checkpoint.every_steps) and not (last and config.checkpoint.final):
                await self.save_checkpoint(step)
        if self.trained_steps == 0:
            raise TrainingError(
                f"no step trained anything: all {self.accounts.issued} groups were dropped "
                f"{dict(self.accounts.dropped)} or failed {dict(self.accounts.failed)}. With equal scores everywhere, "
                "the task is too hard or too easy for the model, or the reward never fires"
            )
        if config.checkpoint.final:
            await self.save_checkpoint(config.run.steps)
        if config.eval.after:
            await self.evaluator.evaluate(config.run.steps)

    async def _step(self, step: int) -> None:
        """One optimizer step: groups stream in, the learner steps once, the engines follow."""
        clock = StepClock()
        temperature = temperature_at(step, self.config.run.steps, self.config.rollout)
        ended: list[Group] = []
        ready: list[Group] = []
        async for group in self._groups(step, temperature, clock):
            ended.append(group)
            if group.state is GroupState.READY:
                ready.append(group)
                if self._streams:
                    await self._feed([group], temperature, clock)
        self._reward_failures.check()
        learner_stats: dict[str, float] = {}
        step_credit(ready, self.config.algorithm)
        if ready:
            if not self._streams:
                await self._feed(ready, temperature, clock)
            with clock.working("learner"):
                learner_stats = await self.learner.step()
            self._check_gap(step, learner_stats["logprob_gap"], "on the completions of this step")
            for group in ready:
                self._end(group, GroupState.TRAINED)
            self.trained_steps += 1
            self.version += 1
            await self._sync(clock)
            with clock.working("probe"):
                probe_gap = await self.probe.measure(self.rollout, self.learner, temperature)
            learner_stats["probe_gap"] = probe_gap
            self._check_gap(step, probe_gap, "on the probe prompt after the weight sync")
        await self.tracker.step(
            step,
            ended,
            learner_stats,
            clock.finish(),
            counts=self.accounts.counts(),
            temperature=temperature,
            weight_version=self.version,
        )

    async def _groups(self, step: int, temperature: float, clock: StepClock) -> AsyncIterator[Group]:
        """The groups of a step, each the moment it is complete; dropped ones are replaced within the bound."""
        replacements = Replacements.from_config(self.config.algorithm)
        pending = {self._issue(step, temperature, clock) for _ in range(self.config.prompts_per_step)}
        done: set[asyncio.Task[Group]] = set()
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    group = task.result()
                    if group.state is GroupState.DROPPED and replacements.take():
                        pending.add(self._issue(step, temperature, clock))
                    yield group
        finally:
            for task in pending:
                task.cancel()
            # Several may have failed at once: each is asked for its exception, the first one is raised already.
            await asyncio.gather(*pending, *done, return_exceptions=True)

    def _issue(self, step: int, temperature: float, clock: StepClock) -> asyncio.Task[Group]:
        """Start the life of a group."""
        prompt = self.next_prompt()
        self._serial += 1
        group = Group(id=f"{step:06d}-{self._serial:08d}", prompt=prompt, step=step)
        self.accounts.issue(group)
        sampling = Sampling(
            temperature=temperature,
            max_new_tokens=self.config.max_new_tokens,
            top_p=self.config.rollout.top_p,
            top_k=self.config.rollout.top_k,
            stop=self.stop,
            seed=seed_for(self.config.run.seed, self._serial, prompt.id),
        )
        return asyncio.create_task(self._follow(group, sampling, clock), name=f"group {group.id}")

    async def _follow(self, group: Group, sampling: Sampling, clock: StepClock) -> Group:
        """The life of one group up to READY, DROPPED or FAILED. Waits for no other group."""
        try:
            with clock.working("rollout"):
                group.completions = await self.rollout.generate(
                    group.prompt, sampling, self.config.completions_per_prompt
                )
            group.advance(GroupState.GENERATED)
            with clock.working("reward"):
                group.verdicts = await self.reward.grade(group)
            group.advance(GroupState.SCORED)
            self._reward_failures.book(group)
            if reason := self._filter.reason_to_drop(group):
                self._end(group, GroupState.DROPPED, reason)
                return group
            if self.reference is not None:
                with clock.working("reference"):
                    group.reference_logprobs = await self.reference.score(group, sampling.temperature)
            group.advantages = group_credit(group, self.config.algorithm, self.config.max_new_tokens)
            if all(advantage is None for advantage in group.advantages):
                self._end(group, GroupState.DROPPED, "all_truncated")  # algorithm.mask_truncated left nothing
                return group
            group.advance(GroupState.READY)
        except DataError as error:
            self.tracker.event("bad_prompt", group=group.id, prompt=group.prompt.id, error=str(error))
            self._end(group, GroupState.FAILED, "data")
            self._failure_budget.spend(error)
        except InfrastructureError as error:
            self.tracker.event("group_failed", group=group.id, prompt=group.prompt.id, error=str(error))
            self._end(group, GroupState.FAILED, "infrastructure")
            self._failure_budget.spend(error)
        return group

    async def _feed(self, groups: list[Group], temperature: float, clock: StepClock) -> None:
        with clock.working("learner"):
            await self.learner.feed(groups, temperature)

    async def _sync(self, clock: StepClock | None = None) -> None:
        """Publish the learner's weights as the current version; every engine acknowledges it."""
        with (clock or StepClock()).working("sync"):
            update = await self.learner.publish(self.version)
            await self.rollout.sync(update)
        self.tracker.event("weights_synced", version=self.version)

    def _check_gap(self, step: int, gap: float, where: str) -> None:
        if gap > self._gap_limit:
            raise TrainingError(
                f"step {step}: engine and learner disagree by {gap:.4g} per token {where} "
                f"(limit {self._gap_limit:g}, rollout.max_logprob_gap). They no longer hold the same weights, or "
                "compute with different precision; training on would be off-policy without a sign of it"
            )

    def _end(self, group: Group, state: GroupState, reason: str = "") -> None:
        group.advance(state, reason)
        self.accounts.close(group)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
