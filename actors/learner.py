"""Learner actors, one per data-parallel rank, and the pool through which the driver sees them as one.

The pool lays out micro-batches, keeps the step's totals and the learning-rate schedule, and calls every rank for every
collective. What a rank computes is in `learner_core.py`. Must not know where groups come from.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import ray

from rlvr.actors import remote
from rlvr.actors.devices import actor_device, thread_environment
from rlvr.actors.trainable import Feed, lay_out, trainables
from rlvr.concurrency import all_of
from rlvr.config import Config
from rlvr.errors import InfrastructureError, RlvrError, TrainingError
from rlvr.grpo.aggregation import normaliser
from rlvr.grpo.schedule import learning_rate
from rlvr.grpo.statistics import StepSums
from rlvr.records import Group, WeightUpdate

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 15.0


@ray.remote(num_cpus=0, max_restarts=0)
class LearnerActor:
    """One rank."""

    def __init__(self, config: Config, model_folder: str, device: str, rank: int, world: int) -> None:
        from rlvr.actors.learner_core import Learner

        self._rank, self._world = rank, world
        self._learner = Learner(config, model_folder, device)
        self._listener: Any = None

    @remote.classified
    def listen(self) -> int:
        """Rank 0 opens the port at which the ranks meet, and says which it is."""
        from rlvr.actors import zero

        self._listener = zero.open_store_socket()
        port: int = self._listener.getsockname()[1]
        return port

    @remote.classified
    def start(self, port: int) -> None:
        """Join the process group and load the model. All ranks must be called together."""
        self._learner.start(self._rank, self._world, port, self._listener)

    @remote.classified
    def feed(self, batches: Any, temperature: float) -> tuple[StepSums, list[str]]:
        """Forward and backward; see Learner.feed."""
        return self._learner.feed(batches, temperature)

    @remote.classified
    def step(self, divisor: float, lr: float) -> float:
        """The optimizer step; the gradient's norm."""
        return self._learner.step(divisor, lr)

    @remote.classified
    def publish(self, version: int, shm_folder: str) -> WeightUpdate | None:
        """Rank 0 writes the weights; None from the others."""
        return self._learner.publish(version, shm_folder)

    @remote.classified
    def logprobs(
        self, prompt: Sequence[int], completions: Sequence[Sequence[int]], temperature: float
    ) -> list[np.ndarray]:
        """Logprobs under the current weights."""
        return self._learner.logprobs(prompt, completions, temperature)

    @remote.classified
    def save(self, folder: str) -> None:
        """Rank 0 writes a Hugging Face folder."""
        self._learner.save(folder)

    @remote.classified
    def close(self) -> None:
        """Leave the process group."""
        self._learner.close()


class LearnerPool:
    """The driver's side: `learner.ranks` actors named learner-<rank>, seen as one policy under training."""

    def __init__(
        self, config: Config, model_folder: str, namespace: str, shm_folder: str, env: Mapping[str, str] | None = None
    ) -> None:
        """`shm_folder`: where this host's engines look for weights. `env`: environment variables for the actors."""
        self._config = config
        self._model_folder = model_folder
        self._namespace = namespace
        self._shm_folder = shm_folder
        self._env = dict(env or {})
        self._names = [f"learner-{rank}" for rank in range(config.learner.ranks)]
        self._actors: list[Any] = []
        self._totals = StepSums()
        self._steps = 0
        self._published: WeightUpdate | None = None
        self._said_split = False
        self._started = False

    async def start(self) -> None:
        """Start the ranks and load the model in all of them. Raises UserError, InfrastructureError."""
        learner = self._config.learner
        device = actor_device("learner.device", learner.device, learner.ranks)
        env = self._env | thread_environment(learner.threads or max(1, (os.cpu_count() or 1) // learner.ranks))
        for rank, name in enumerate(self._names):
            self._actors.append(
                LearnerActor.options(  # type: ignore[attr-defined]
                    name=name,
                    namespace=self._namespace,
                    num_gpus=1 if device == "cuda" else 0,
                    runtime_env={"env_vars": env},
                ).remote(self._config, self._model_folder, device, rank, learner.ranks)
            )
        seconds = self._config.run.start_timeout_s
        port = await self._call(0, self._actors[0].listen.remote(), seconds, "open a port for the ranks to meet")
        await self._everywhere("load the model", seconds, lambda actor: actor.start.remote(port))
        self._started = True

    async def feed(self, groups: Sequence[Group], temperature: float) -> None:
        """Forward and backward of these READY groups, spread over the ranks.

        Raises TrainingError when a loss is not finite: nothing may be stepped then.
        """
        learner = self._config.learner
        work = lay_out(
            trainables(groups, self._config.algorithm),
            budget=learner.tokens_per_microbatch,
            ranks=learner.ranks,
            share_prefix=learner.share_prefix,
        )
        self._say_split(work)
        batches = dict(zip(self._actors, work.ranks, strict=True))
        results = await self._everywhere(
            "learn from groups", learner.step_timeout_s, lambda actor: actor.feed.remote(batches[actor], temperature)
        )
        not_finite = []
        for sums, prompts in results:
            self._totals.add(sums)
            not_finite += prompts
        if not_finite:
            raise TrainingError(
                f"step {self._steps + 1}: the loss is not finite on prompts {', '.join(sorted(set(not_finite))[:8])}. "
                "The weights are unchanged. Lower learner.lr, or look at these prompts' completions in the ledger"
            )

    async def step(self) -> dict[str, float]:
        """One optimizer step over everything fed since the last one; its statistics.

        Keys: loss, kl, ratio_mean, clip_low, clip_high, correction_mean, corrected (share of tokens), logprob_gap,
        logprob_gap_max_token (nats), tokens, sequences, computed_tokens, grad_norm, lr. Raises TrainingError when there
        is nothing to step on or the gradient is not finite.
        """
        totals, self._totals = self._totals, StepSums()
        aggregation = self._config.algorithm.aggregation
        divisor = normaliser(aggregation, tokens=totals.tokens, sequences=totals.sequences)
        if divisor == 0:
            raise TrainingError(f"step {self._steps + 1}: no judged completion with tokens to learn from")
        lr = learning_rate(self._steps, self._config.run.steps, self._config.learner)
        try:
            norms = await self._everywhere(
                "make an optimizer step",
                self._config.learner.step_timeout_s,
                lambda actor: actor.step.remote(divisor, lr),
            )
        except TrainingError as error:
            raise TrainingError(
                f"step {self._steps + 1}: {error}. The weights are unchanged, and nothing was published. "
                "Lower learner.lr, or look at this step's completions in the ledger"
            ) from None
        self._steps += 1
        return totals.metrics(divisor) | {"grad_norm": norms[0], "lr": lr}

    async def publish(self, version: int) -> WeightUpdate:
        """Write the weights into shared memory as `version`; the version before is removed."""
        results = await self._everywhere(
            "write its weights",
            self._config.rollout.sync_timeout_s,
            lambda actor: actor.publish.remote(version, self._shm_folder),
        )
        update = next((result for result in results if result is not None), None)
        if update is None:
            raise InfrastructureError(f"no learner rank wrote weight version {version}")
        self._discard()
        self._published = update
        return update

    async def logprobs(
        self, prompt: Sequence[int], completions: Sequence[Sequence[int]], temperature: float
    ) -> list[np.ndarray]:
        """Per completion float32 [tokens], under the current weights."""
        results = await self._everywhere(
            "score completions",
            self._config.learner.step_timeout_s,
            lambda actor: actor.logprobs.remote(prompt, completions, temperature),
        )
        first: list[np.ndarray] = results[0]
        return first

    async def save(self, folder: str) -> None:
        """Write the model in Hugging Face format to `folder`. Raises UserError when it cannot be written."""
        await self._everywhere("save the model", self._config.learner.step_timeout_s, lambda a: a.save.remote(folder))

    async def close(self) -> None:
        """End the ranks, and remove the weights from shared memory. What is gone already is fine."""
        actors, self._actors = self._actors, []
        # One that is still loading answers nothing until it has loaded: it is killed as it is.
        results = await asyncio.gather(
            *(
                self._call(rank, actor.close.remote(), _CLOSE_TIMEOUT_S, "leave the process group")
                for rank, actor in enumerate(actors if self._started else ())
            ),
            return_exceptions=True,
        )
        for name, result in zip(self._names, results, strict=False):
            if isinstance(result, RlvrError):
                log.warning("%s did not close by itself and is killed: %s", name, result)
        for actor in actors:
            remote.kill(actor)
        self._discard()

    def _discard(self) -> None:
        if self._published is not None:
            from rlvr.engine.update_file import discard

            discard(self._published)
            self._published = None

    def _say_split(self, work: Feed) -> None:
        if work.split_groups and not self._said_split:
            self._said_split = True
            log.warning(
                "%d groups are larger than learner.tokens_per_microbatch=%d; they are split by completions, and their "
                "prompts computed more than once",
                work.split_groups,
                self._config.learner.tokens_per_microbatch,
            )

    async def _call(self, rank: int, reference: Any, seconds: float, what: str) -> Any:
        return await remote.call(reference, seconds=seconds, waiter="the driver", awaited=self._names[rank], what=what)

    async def _everywhere(self, what: str, seconds: float, call: Callable[[Any], Any]) -> list[Any]:
        """The same call to all ranks at once, since each may be a collective. The first failure is raised."""
        if not self._actors:
            raise InfrastructureError("the learner has not been started, or was closed")
        return await all_of([self._call(rank, call(actor), seconds, what) for rank, actor in enumerate(self._actors)])
