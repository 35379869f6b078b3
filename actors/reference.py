"""The reference actor: the frozen initial model scores groups as they stream by, with the policy's own forward pass.

Must not know what the logprobs are used for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import ray

from rlvr.actors import remote
from rlvr.actors.devices import actor_device, thread_environment
from rlvr.config import Config
from rlvr.errors import InfrastructureError
from rlvr.records import Group


@ray.remote(num_cpus=0, max_restarts=0)
class ReferenceActor:
    """A frozen copy of the model."""

    def __init__(self, config: Config, model_folder: str, device: str) -> None:
        self._config, self._folder, self._device = config, model_folder, device
        self._policy: Any = None

    @remote.classified
    def start(self) -> None:
        """Load the model. Raises UserError, ConfigError."""
        from rlvr.policy.model import load_policy

        learner = self._config.learner
        self._policy = load_policy(
            self._folder,
            dtype=self._config.model.dtype,
            share_prefix=learner.share_prefix,
            logits_chunk=learner.logits_chunk,
        )
        self._policy.requires_grad_(False).to(self._device)

    @remote.classified
    def score(self, group: Group, temperature: float) -> list[np.ndarray]:
        """Per completion float32 [tokens], in the group's order; empty for a completion without tokens."""
        import torch

        from rlvr.policy.logprobs import SampledFrom
        from rlvr.policy.planning import plan

        learner = self._config.learner
        prompt = group.prompt.token_ids
        if not prompt:
            raise InfrastructureError(f"group {group.id} came to the reference without prompt token ids")
        scores = [np.zeros(0, np.float32) for _ in group.completions]
        planned = plan(
            [prompt],
            [[len(completion.token_ids) for completion in group.completions]],
            budget=learner.tokens_per_microbatch,
            ranks=1,
            share_prefix=learner.share_prefix,
        )
        sampled = SampledFrom(temperature, self._config.rollout.top_k)
        for bundle in (bundle for batch in planned.ranks[0] for bundle in batch):
            chosen = [group.completions[index].token_ids for index in bundle.completions]
            with torch.no_grad():
                _, logprobs = self._policy(self._policy.pack([(prompt, chosen)]).to(self._device), sampled)
            parts = logprobs.cpu().split([len(completion) for completion in chosen])
            for index, part in zip(bundle.completions, parts, strict=True):
                scores[index] = part.numpy()
        return scores


class ReferencePool:
    """The driver's side: one actor named `reference`."""

    def __init__(self, config: Config, model_folder: str, namespace: str, env: Mapping[str, str] | None = None) -> None:
        """`env`: environment variables for the actor."""
        self._config = config
        self._model_folder = model_folder
        self._namespace = namespace
        self._env = dict(env or {})
        self._actor: Any = None

    async def start(self) -> None:
        """Start the actor and load the model. Raises UserError, InfrastructureError."""
        learner = self._config.learner
        device = actor_device("learner.device", learner.device, 1)
        env = self._env | thread_environment(learner.threads or os.cpu_count() or 1)
        self._actor = ReferenceActor.options(  # type: ignore[attr-defined]
            name="reference",
            namespace=self._namespace,
            num_gpus=1 if device == "cuda" else 0,
            runtime_env={"env_vars": env},
        ).remote(self._config, self._model_folder, device)
        await self._call(self._actor.start.remote(), self._config.run.start_timeout_s, "load the model")

    async def score(self, group: Group, temperature: float) -> list[np.ndarray]:
        """Per completion float32 [tokens]: logprobs under the reference."""
        scores: list[np.ndarray] = await self._call(
            self._actor.score.remote(group, temperature), self._config.learner.step_timeout_s, f"score group {group.id}"
        )
        return scores

    async def close(self) -> None:
        """End the actor."""
        if self._actor is not None:
            remote.kill(self._actor)
            self._actor = None

    async def _call(self, reference: Any, seconds: float, what: str) -> Any:
        return await remote.call(reference, seconds=seconds, waiter="the driver", awaited="reference", what=what)
