"""The rollout actor: one engine in a process of its own, whose failures leave it classified.

Must not know of other engines, nor what the completions are used for.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

import ray

from rlvr.actors import remote
from rlvr.config import Config
from rlvr.engine.factory import Place, make_engine
from rlvr.engine.protocol import Engine
from rlvr.errors import InfrastructureError
from rlvr.records import Completion, Sampling, WeightUpdate

log = logging.getLogger(__name__)


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

    @remote.classified
    async def start(self, place: Place) -> None:
        """Load the model. Raises UserError, InfrastructureError."""
        self._engine = make_engine(self._config, self._model_folder, place)
        await self._engine.start()

    @remote.classified
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

    @remote.classified
    async def update_weights(self, update: WeightUpdate) -> int:
        """Load a version of the weights that lies on this host; the version served afterwards."""
        return await self._running().update_weights(update)

    async def healthy(self) -> bool:
        """Whether the engine can serve requests."""
        return self._engine is not None and self._engine.healthy

    @remote.classified
    async def close(self) -> None:
        """End the engine and its processes."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    def _running(self) -> Engine:
        if self._engine is None:
            raise InfrastructureError(f"{self._name} has not been started")
        return self._engine
