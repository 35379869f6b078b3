"""Rollout actors, each holding one engine, and the pool through which the driver has prompts completed.

The pool sends a prompt to the least loaded engine, and elsewhere when that one fails. Failures are classified
in the actor, where the information is. Must not know what the completions are used for.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import ray

from rlvr.actors import remote
from rlvr.config import Config
from rlvr.engine.dispatch import Dispatcher
from rlvr.engine.factory import Place, make_engine
from rlvr.engine.protocol import Engine
from rlvr.errors import ConfigError, DataError, InfrastructureError, RlvrError
from rlvr.records import Completion, Prompt, Sampling, WeightUpdate

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_CLOSE_TIMEOUT_S = 30.0
#: A weight update has this many phases, each with its own deadline inside the engine.
_SYNC_PHASES = 7
#: The engine's own deadline comes first, because its message says more: the pool waits this much longer.
_MARGIN_S = 15.0


def classified(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Let only members of the failure taxonomy leave the actor. Anything else is a fault of this machine."""

    @functools.wraps(method)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except RlvrError:
            raise
        except Exception as error:
            log.exception("%s failed", method.__qualname__)
            raise InfrastructureError(f"{method.__qualname__} failed: {type(error).__name__}: {error}") from None

    return wrapper


@ray.remote(num_cpus=0, max_restarts=0)
class RolloutActor:
    """One engine on one host."""

    def __init__(self, config: Config, model_folder: str, name: str) -> None:
        self._config = config
        self._model_folder = model_folder
        self._name = name
        self._engine: Engine | None = None

    async def node(self) -> str:
        """Id of the node that this actor was placed on."""
        return str(ray.get_runtime_context().get_node_id())

    async def pid(self) -> int:
        """Id of this process, on its node."""
        return os.getpid()

    @classified
    async def start(self, place: Place) -> None:
        """Load the model. Raises UserError, InfrastructureError."""
        self._engine = make_engine(self._config, self._model_folder, place)
        await self._engine.start()

    @classified
    async def generate(self, request_id: str, token_ids: Sequence[int], sampling: Sampling, n: int) -> list[Completion]:
        """n completions of a prompt, within `rollout.request_timeout_s`."""
        seconds = self._config.rollout.request_timeout_s
        try:
            # Here as well as in the driver: only here does running out of time end the work.
            async with asyncio.timeout(seconds):
                return await self._running().generate(request_id, token_ids, sampling, n)
        except TimeoutError:
            raise InfrastructureError(
                f"{self._name} did not finish {request_id} within {seconds:.0f} s (rollout.request_timeout_s)"
            ) from None

    @classified
    async def update_weights(self, update: WeightUpdate) -> int:
        """Load a version of the weights that lies on this host; the version served afterwards."""
        return await self._running().update_weights(update)

    async def healthy(self) -> bool:
        """Whether the engine can serve requests."""
        return self._engine is not None and self._engine.healthy

    @classified
    async def close(self) -> None:
        """End the engine and its processes."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    def _running(self) -> Engine:
        if self._engine is None:
            raise InfrastructureError(f"{self._name} has not been started")
        return self._engine


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

    async def generate(self, prompt: Prompt, sampling: Sampling, n: int) -> list[Completion]:
        """n completions of `prompt`, on the least loaded engine; waits while all of them are full.

        Sent elsewhere after an infrastructure failure, at most `rollout.max_retries` times. Raises DataError when
        the prompt cannot be completed by any engine, InfrastructureError when the retries are spent or no engine
        is left.
        """
        if prompt.token_ids is None:
            raise DataError(f"prompt {prompt.id} has no token ids")
        failed: list[str] = []
        while True:
            name = await self._acquire(failed)
            try:
                return await self._complete(name, prompt, prompt.token_ids, sampling, n)
            except InfrastructureError as error:
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
        actors, self._actors = self._actors, {}
        results = await asyncio.gather(
            *(
                remote.call(
                    actor.close.remote(),
                    seconds=_CLOSE_TIMEOUT_S,
                    waiter="the driver",
                    awaited=name,
                    what="end its engine",
                )
                for name, actor in actors.items()
            ),
            return_exceptions=True,
        )
        for name, result in zip(actors, results, strict=True):
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
            raise InfrastructureError(f"{name} is not running")
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
