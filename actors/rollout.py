"""The pool of rollout actors, through which the driver has prompts completed and engines follow the weights.

It sends a prompt to the least loaded engine, and elsewhere when that one fails. Must not know what the
completions are used for.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray

from rlvr.actors import remote
from rlvr.actors.rollout_actor import RolloutActor
from rlvr.config import Config
from rlvr.engine.dispatch import Dispatcher
from rlvr.engine.factory import Place
from rlvr.errors import ConfigError, DataError, InfrastructureError, RlvrError
from rlvr.records import Completion, Prompt, Sampling, WeightUpdate

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 30.0
#: A weight update has this many phases, each with its own deadline inside the engine.
_SYNC_PHASES = 7
#: The engine's own deadline comes first, because its message says more: the pool waits this much longer.
_MARGIN_S = 15.0


def prompt_seed(seed: int, prompt_id: str) -> int:
    """A 62-bit seed of this prompt's own.

    Completion i of a group is sampled with seed + i, so two prompts with equal or neighbouring seeds would be
    sampled with the same noise: a model that is not sure of itself then writes the same completions for both.
    """
    digest = hashlib.blake2b(f"{seed}/{prompt_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


class RolloutPool:
    """The driver's side: `rollout.engines` actors named rollout-<i>, seen as one."""

    def __init__(self, config: Config, model_folder: str, namespace: str, env: Mapping[str, str] | None = None) -> None:
        """`env`: environment variables for the actors."""
        self._config = config
        self._model_folder = model_folder
        self._namespace = namespace
        self._env = dict(env or {})
        names = [f"rollout-{index}" for index in range(config.rollout.engines)]
        self._dispatcher = Dispatcher(names, config.rollout.max_concurrent_prompts)
        self._names = names
        self._actors: dict[str, Any] = {}
        self._changed = asyncio.Condition()
        self._requests = itertools.count()
        self._started = False
        self._closed = False

    @property
    def simulated(self) -> bool:
        """Whether what comes back was made up."""
        return self._config.rollout.engine == "simulated"

    @property
    def out_of_service(self) -> dict[str, str]:
        """Engines that are not used any more, and why."""
        return self._dispatcher.out_of_service

    async def start(self) -> None:
        """Start the actors and load the model in all of them. Raises UserError, InfrastructureError."""
        device = self._device()
        options: dict[str, Any] = {"namespace": self._namespace, "num_gpus": 1 if device == "cuda" else 0}
        if self._env:
            options["runtime_env"] = {"env_vars": self._env}
        rollout = self._config.rollout
        for name in self._names:
            self._actors[name] = RolloutActor.options(  # type: ignore[attr-defined]
                name=name, max_concurrency=rollout.max_concurrent_prompts + 8, **options
            ).remote(self._config, self._model_folder, name)
        seconds = float(self._config.run.start_timeout_s)
        nodes = await self._everywhere("come up", seconds, lambda name: self._actors[name].node.remote())
        # Engines on the same machine divide its cores, so each has to know which one of how many it is.
        places = {
            name: Place(
                name=name,
                device=device,
                index=sum(nodes[other] == nodes[name] for other in self._names[:position]),
                engines=sum(nodes[other] == nodes[name] for other in self._names),
            )
            for position, name in enumerate(self._names)
        }
        await self._everywhere("load the model", seconds, lambda name: self._actors[name].start.remote(places[name]))
        self._started = True

    async def generate(self, prompt: Prompt, sampling: Sampling, n: int) -> list[Completion]:
        """n completions of `prompt`, on the least loaded engine; waits while all of them are full.

        Sent elsewhere after an infrastructure failure, at most `rollout.max_retries` times. Raises DataError when
        the prompt cannot be completed by any engine, InfrastructureError when the retries are spent or no engine
        is left.
        """
        if prompt.token_ids is None:
            raise DataError(f"prompt {prompt.id} has no token ids")
        if sampling.seed is not None:
            sampling = replace(sampling, seed=prompt_seed(sampling.seed, prompt.id))
        failed: list[str] = []
        while True:
            name = await self._acquire(failed)
            try:
                return await self._complete(name, prompt, prompt.token_ids, sampling, n)
            except InfrastructureError as error:
                if self._closed:
                    raise  # nobody is waiting for it any more, and there is nowhere to send it
                failed.append(name)
                await self._examine(name, error)
                if len(failed) > self._config.rollout.max_retries:
                    raise InfrastructureError(
                        f"prompt {prompt.id} failed {len(failed)} times, on {', '.join(failed)} "
                        f"(rollout.max_retries={self._config.rollout.max_retries}); the last: {error}"
                    ) from None
                log.warning("prompt %s failed on %s and is dispatched anew: %s", prompt.id, name, error)
            except DataError as error:
                raise DataError(f"prompt {prompt.id}: {error}") from None
            finally:
                self._dispatcher.release(name)
                async with self._changed:
                    self._changed.notify_all()

    async def sync(self, update: WeightUpdate) -> None:
        """Every engine in service has acknowledged `update.version` when this returns.

        An engine that fails is taken out of service. Raises InfrastructureError when none is left, TrainingError
        when the update itself is wrong (it is then loaded nowhere).
        """
        names = self._dispatcher.in_service
        results = await asyncio.gather(*(self._sync(name, update) for name in names), return_exceptions=True)
        for name, result in zip(names, results, strict=True):
            if isinstance(result, InfrastructureError):
                self._retire(name, f"it did not load weight version {update.version}: {result}")
            elif isinstance(result, BaseException):
                raise result
        async with self._changed:
            self._changed.notify_all()
        if not self._dispatcher.in_service:
            raise InfrastructureError(f"no engine loaded weight version {update.version}. {self._reasons()}")

    async def close(self) -> None:
        """End the actors, their engines and the engines' processes. What is gone already is fine."""
        self._closed = True
        actors, self._actors = self._actors, {}
        # One that is still loading answers nothing until it has loaded: it is killed as it is, its children with it.
        asked = actors if self._started else {}
        results = await asyncio.gather(
            *(
                remote.call(
                    actor.close.remote(),
                    seconds=_CLOSE_TIMEOUT_S,
                    waiter="the driver",
                    awaited=name,
                    what="end its engine",
                )
                for name, actor in asked.items()
            ),
            return_exceptions=True,
        )
        for name, result in zip(asked, results, strict=True):
            if isinstance(result, RlvrError):
                log.warning("%s did not close by itself and is killed: %s", name, result)
        for actor in actors.values():
            remote.kill(actor)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, RlvrError):
                raise result

    def _device(self) -> str:
        wanted = self._config.rollout.device
        needed = self._config.rollout.engines
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if self.simulated:
            return "cpu"
        if wanted == "auto":
            return "cuda" if gpus else "cpu"
        if wanted == "cuda" and gpus < needed:
            raise ConfigError(
                f"rollout.device is cuda and rollout.engines {needed}, but this cluster has {gpus} GPUs. "
                "Use rollout.device=cpu, or fewer engines"
            )
        if wanted not in ("cpu", "cuda"):
            raise ConfigError(f"rollout.device: {wanted!r} is none of auto, cpu, cuda")
        return wanted

    async def _everywhere(self, what: str, seconds: float, call: Callable[[str], Any]) -> dict[str, Any]:
        """The same call to all actors at once; their answers by name. The first failure is raised."""
        answers = await asyncio.gather(
            *(
                remote.call(call(name), seconds=seconds, waiter="the driver", awaited=name, what=what)
                for name in self._names
            )
        )
        return dict(zip(self._names, answers, strict=True))

    async def _acquire(self, failed: Sequence[str]) -> str:
        async with self._changed:
            while (name := self._dispatcher.acquire(avoid=failed)) is None:
                await self._changed.wait()
            return name

    async def _complete(
        self, name: str, prompt: Prompt, token_ids: Sequence[int], sampling: Sampling, n: int
    ) -> list[Completion]:
        request_id = f"{prompt.id}/{next(self._requests)}"
        if name not in self._actors:
            state = "closed" if self._closed else "not running"
            raise InfrastructureError(f"prompt {prompt.id} cannot be completed: {name} is {state}")
        completions: list[Completion] = await remote.call(
            self._actors[name].generate.remote(request_id, token_ids, sampling, n),
            seconds=self._config.rollout.request_timeout_s + _MARGIN_S,
            waiter="the driver",
            awaited=name,
            what=f"complete prompt {prompt.id}",
        )
        if len(completions) != n:
            raise InfrastructureError(f"{name} returned {len(completions)} completions of {prompt.id} instead of {n}")
        return completions

    async def _sync(self, name: str, update: WeightUpdate) -> None:
        version = await remote.call(
            self._actors[name].update_weights.remote(update),
            seconds=_SYNC_PHASES * self._config.rollout.sync_timeout_s + _MARGIN_S,
            waiter="the driver",
            awaited=name,
            what=f"load weight version {update.version}",
        )
        if version != update.version:
            raise InfrastructureError(f"{name} serves weight version {version} instead of {update.version}")

    async def _examine(self, name: str, error: InfrastructureError) -> None:
        """After a failed request: is the engine itself gone?"""
        if name not in self._actors:
            return  # another request found out first
        try:
            healthy = await remote.call(
                self._actors[name].healthy.remote(),
                seconds=_MARGIN_S,
                waiter="the driver",
                awaited=name,
                what="say that it is alive",
            )
        except InfrastructureError as gone:
            self._retire(name, str(gone))
        else:
            if not healthy:
                self._retire(name, str(error))

    def _retire(self, name: str, reason: str) -> None:
        log.error("%s is out of service: %s", name, reason)
        self._dispatcher.retire(name, f"{reason} (its log: ray logs actor --name {name})")
        if (actor := self._actors.pop(name, None)) is not None:
            remote.kill(actor)  # what is left of it must not compete with the others for the machine

    def _reasons(self) -> str:
        return "; ".join(f"{name}: {reason}" for name, reason in self._dispatcher.out_of_service.items())
