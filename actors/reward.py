"""Reward actors, and the pool through which the driver has groups judged.

Each actor owns killable grading processes (`rlvr.rewards.worker`). The pool sends a group to the least loaded
actor, and elsewhere when that one fails. Must not know what a reward is made of.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import Mapping
from typing import Any

import ray

from rlvr.actors import remote
from rlvr.config import Config
from rlvr.errors import DeadlineError, InfrastructureError, RlvrError
from rlvr.records import Group, Verdict
from rlvr.rewards import programs
from rlvr.rewards.composite import specs_of
from rlvr.rewards.sample import Sample, samples_of
from rlvr.rewards.worker import START_TIMEOUT_S, ChildSettings, WorkerPool

log = logging.getLogger(__name__)

#: How often a group is sent out before its failure is reported.
MAX_ATTEMPTS = 4
_CLOSE_TIMEOUT_S = 15.0
#: Starting a replacement process, on a busy machine.
_RESPAWN_S = 5.0


@ray.remote(num_cpus=0)
class RewardActor:
    """A pool of grading processes on one host."""

    def __init__(self, settings: ChildSettings, processes: int) -> None:
        self._pool = WorkerPool(settings, processes)
        self._starting = asyncio.Lock()
        self._identities: list[str] = []

    async def start(self) -> list[str]:
        """Start the grading processes, once; the identities of the verifiers. Raises ConfigError."""
        async with self._starting:
            if not self._identities:
                self._identities = await self._pool.start()
            return self._identities

    async def grade(self, samples: list[Sample]) -> list[Verdict]:
        """A verdict for each sample, in order."""
        await self.start()  # after a restart of this actor nobody else does
        return await self._pool.grade(samples)

    async def close(self) -> None:
        """Kill the grading processes."""
        await self._pool.close()


class RewardPool:
    """The driver's side: `reward.workers` actors named reward-<i>, each with `reward.processes` processes."""

    def __init__(self, config: Config, namespace: str, env: Mapping[str, str] | None = None) -> None:
        """`env`: environment variables for the actors. User modules are looked for in the current folder."""
        self._reward = config.reward
        self._start_timeout_s = float(config.run.start_timeout_s)
        self._namespace = namespace
        self._env = dict(env or {})
        self._settings = ChildSettings(
            specs=tuple(specs_of(config.reward)),
            timeout_s=float(config.reward.timeout_s),
            folder=os.getcwd(),
            search_path=tuple(path for path in sys.path if path),
            sandbox=programs.settings_of(config.reward),
        )
        self._actors: list[Any] = []
        self._load: list[int] = []  # completions under way on each actor
        self.identity = ""
        """name@version#hash of every verifier, joined by '+'; known once started."""

    async def start(self) -> None:
        """Start the actors and check the criteria in them. Raises ConfigError, InfrastructureError."""
        for index in range(self._reward.workers):
            options: dict[str, Any] = {"env_vars": self._env} if self._env else {}
            self._actors.append(
                RewardActor.options(  # type: ignore[attr-defined]
                    name=f"reward-{index}", namespace=self._namespace, max_restarts=-1, runtime_env=options
                ).remote(self._settings, self._reward.processes)
            )
            self._load.append(0)
        identities = await asyncio.gather(
            *(
                remote.call(
                    actor.start.remote(),
                    seconds=self._start_timeout_s,
                    waiter="the driver",
                    awaited=f"reward-{index}",
                    what="start its grading processes",
                )
                for index, actor in enumerate(self._actors)
            )
        )
        self.identity = "+".join(identities[0])

    async def grade(self, group: Group) -> list[Verdict]:
        """The verdicts of a group's completions, in order.

        Sent to another actor (or the same one, restarted) after an infrastructure failure. Raises
        InfrastructureError when that happened MAX_ATTEMPTS times, ConfigError when a reward function changed.
        """
        samples = samples_of(group)
        failed: list[int] = []
        while True:
            index = min(range(len(self._actors)), key=lambda i: (failed.count(i), self._load[i]))
            self._load[index] += len(samples)
            try:
                verdicts = await self._call(index, group, samples)
            except InfrastructureError as error:
                failed.append(index)
                if len(failed) == MAX_ATTEMPTS:
                    raise InfrastructureError(
                        f"group {group.id} could not be judged, {MAX_ATTEMPTS} attempts failed; the last: {error}"
                    ) from None
                log.warning("group %s: reward-%d failed to judge it, trying again: %s", group.id, index, error)
                if isinstance(error, DeadlineError):  # it hangs: let Ray start it anew
                    ray.kill(self._actors[index], no_restart=False)
                await asyncio.sleep(0.25 * 2 ** len(failed))
            else:
                return verdicts
            finally:
                self._load[index] -= len(samples)

    async def _call(self, index: int, group: Group, samples: list[Sample]) -> list[Verdict]:
        verdicts: list[Verdict] = await remote.call(
            self._actors[index].grade.remote(samples),
            seconds=self._deadline(self._load[index]),
            waiter="the driver",
            awaited=f"reward-{index}",
            what=f"judge group {group.id}",
        )
        if len(verdicts) != len(samples):
            raise InfrastructureError(
                f"reward-{index} returned {len(verdicts)} verdicts for {len(samples)} completions"
            )
        return verdicts

    def _deadline(self, completions: int) -> float:
        """Longest time that so many completions can take: every criterion runs into its deadline twice."""
        rounds = math.ceil(completions / self._reward.processes)
        worst = 2 * len(self._settings.specs) * (self._settings.timeout_s + _RESPAWN_S)
        return START_TIMEOUT_S + rounds * worst

    async def close(self) -> None:
        """Stop the actors and their processes. What is gone already is fine."""
        actors, self._actors, self._load = self._actors, [], []
        results = await asyncio.gather(
            *(
                remote.call(
                    actor.close.remote(),
                    seconds=_CLOSE_TIMEOUT_S,
                    waiter="the driver",
                    awaited=f"reward-{index}",
                    what="end its grading processes",
                )
                for index, actor in enumerate(actors)
            ),
            return_exceptions=True,
        )
        for index, result in enumerate(results):
            if isinstance(result, RlvrError):
                log.warning("reward-%d did not close by itself and is killed: %s", index, result)
            elif isinstance(result, BaseException):
                raise result
        for actor in actors:
            remote.kill(actor)
