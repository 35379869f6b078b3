"""One rank of the learner, without Ray: forward, backward, step, and what it hands out.

Works in one process as well as among the ranks of a process group. Must not know how it is called.
"""

from __future__ import annotations

import os
import shutil
import socket
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from rlvr.actors import zero
from rlvr.actors.trainable import MicroBatch
from rlvr.config import Config
from rlvr.engine.update_file import write_update
from rlvr.errors import UserError
from rlvr.grpo.aggregation import token_weights
from rlvr.grpo.loss import needs_whole_completions, token_loss
from rlvr.grpo.statistics import StepSums, token_sums
from rlvr.policy.logprobs import SampledFrom
from rlvr.policy.model import Policy, load_policy
from rlvr.records import WeightUpdate

#: Files of a model folder that hold weights, or say where they are: everything else is copied into a checkpoint.
_WEIGHT_FILES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".index.json", ".partial")


class Learner:
    """The policy under training on one rank."""

    def __init__(self, config: Config, model_folder: str, device: str) -> None:
        self._config = config
        self._folder = Path(model_folder)
        self._device = device
        self._engine: zero.ZeroEngine | None = None
        self._policy: Policy | None = None

    def start(self, rank: int = 0, world: int = 1, port: int = 0, listener: socket.socket | None = None) -> None:
        """Join the process group and load the model. Raises UserError, ConfigError."""
        if listener is None and rank == 0:
            listener = zero.open_store_socket()
            port = listener.getsockname()[1]
        learner = self._config.learner
        # DeepSpeed and PyTorch announce the future of their own calls to each other; nobody here can act on it.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
        disable_progress_bar()
        if self._device == "cpu":
            torch.set_num_threads(learner.threads or max(1, len(os.sched_getaffinity(0)) // world))
        zero.join(rank, world, port, listener, self._device, learner.step_timeout_s)
        self._policy = load_policy(
            self._folder,
            dtype=self._config.model.dtype,
            share_prefix=learner.share_prefix,
            logits_chunk=learner.logits_chunk,
            gradient_checkpointing=learner.gradient_checkpointing,
        )
        self._engine = zero.ZeroEngine(self._policy, learner, self._config.model.dtype, self._device)
        self._rank = rank

    def feed(self, batches: Sequence[MicroBatch], temperature: float) -> tuple[StepSums, list[str]]:
        """Forward and backward of these micro-batches; gradients accumulate until `step`.

        Returns the totals, and the ids of prompts whose loss is not finite. It goes on to the end in any case, since
        other ranks may be waiting in a collective; the caller must not step then.
        """
        totals, not_finite = StepSums(), []
        for batch in batches:
            sums, bad = self._pass(batch, SampledFrom(temperature, self._config.rollout.top_k))
            not_finite += bad
            totals.add(sums)
        return totals, not_finite

    def _pass(self, batch: MicroBatch, sampled: SampledFrom) -> tuple[StepSums, list[str]]:
        algorithm = self._config.algorithm
        policy, engine = self._running()
        packed = policy.pack(
            [(part.prompt, part.completions) for part in batch.parts], common_prefix=batch.common_prefix
        ).to(engine.device)
        lengths = [len(completion) for part in batch.parts for completion in part.completions]

        def on_device(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(engine.device)

        behaviour = on_device(torch.from_numpy(np.concatenate([x for part in batch.parts for x in part.behaviour])))
        per_completion = torch.tensor([value for part in batch.parts for value in part.advantages])
        advantages = on_device(per_completion.repeat_interleave(torch.tensor(lengths)))
        weights = token_weights(lengths, algorithm.aggregation, max_new_tokens=self._config.max_new_tokens)
        weights = on_device(weights * (0.0 if batch.silent else 1.0))
        reference = None
        if algorithm.kl.coef > 0 and algorithm.kl.place == "loss":
            reference = on_device(
                torch.from_numpy(np.concatenate([x for part in batch.parts for x in part.reference or ()]))
            )
        totals, whole = StepSums(), needs_whole_completions(algorithm)
        finite = torch.ones(len(behaviour), dtype=torch.bool, device=engine.device)

        def objective(logprobs: torch.Tensor, which: slice) -> torch.Tensor:
            result = token_loss(
                logprobs,
                behaviour[which],
                advantages[which],
                algorithm,
                lengths=lengths if whole else (),
                reference=None if reference is None else reference[which],
            )
            finite[which] = torch.isfinite(result.loss.detach())
            if not batch.silent:
                totals.add(token_sums(result, logprobs, behaviour[which], weights[which]))
            return (result.loss * weights[which]).sum()

        total, _ = engine(packed, sampled, objective, whole)
        engine.backward(total)
        totals.sequences = 0 if batch.silent else len(lengths)
        totals.computed_tokens = packed.computed_tokens
        by_prompt = finite.cpu().split([sum(len(c) for c in part.completions) for part in batch.parts])
        return totals, [part.prompt_id for part, own in zip(batch.parts, by_prompt, strict=True) if not own.all()]

    def step(self, normaliser: float, lr: float) -> float:
        """One optimizer step on everything fed since the last one, divided by `normaliser`; the gradient's norm.

        Raises TrainingError, the weights unchanged, when the gradient is not finite.
        """
        return self._running()[1].step(normaliser, lr)

    @torch.no_grad()
    def logprobs(
        self, prompt: Sequence[int], completions: Sequence[Sequence[int]], temperature: float
    ) -> list[np.ndarray]:
        """Per completion float32 [tokens], under the current weights. Under ZeRO 3 all ranks must call it together."""
        policy, engine = self._running()
        sampled = SampledFrom(temperature, self._config.rollout.top_k)
        _, logprobs = engine(policy.pack([(prompt, completions)]).to(engine.device), sampled)
        return [part.numpy() for part in logprobs.cpu().split([len(completion) for completion in completions])]

    def publish(self, version: int, shm_folder: str) -> WeightUpdate | None:
        """Rank 0 writes the weights that it computes with; None on other ranks. All ranks must call it together."""
        tensors = self._tensors()
        return write_update(shm_folder, version, tensors) if self._rank == 0 else None

    def save(self, folder: str) -> None:
        """Rank 0 writes a Hugging Face model folder, complete or not at all. All ranks must call it together.

        Raises UserError when it cannot be written.
        """
        tensors = self._tensors()
        if self._rank != 0:
            return
        target = Path(folder)
        unfinished = target.with_name(f".{target.name}.partial")
        try:
            self._write(unfinished, tensors)
            if target.exists():
                shutil.rmtree(target)
            os.replace(unfinished, target)
        except OSError as error:
            raise UserError(
                f"the model could not be saved to {folder}: {error}. Make room there, or choose another run.dir"
            ) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _write(self, folder: Path, tensors: dict[str, torch.Tensor]) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        folder.mkdir(parents=True)
        for file in self._folder.iterdir():
            if file.is_file() and not file.name.endswith(_WEIGHT_FILES):
                shutil.copy2(file, folder / file.name)
        needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise OSError(f"it takes {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")
        model = self._running()[0].model
        model.config.dtype = getattr(torch, self._config.model.dtype)
        model.config.save_pretrained(folder)
        ready = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
        try:
            save_file(ready, folder / "model.safetensors", metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(str(error)) from error

    def _tensors(self) -> dict[str, torch.Tensor]:
        """Parameters under their checkpoint's names, tied ones once; empty on ranks that hold none of them."""
        _, engine = self._running()
        # "model." is Policy's attribute; what follows is the name in the checkpoint.
        pairs = ((name.removeprefix("model."), tensor) for name, tensor in engine.parameters())
        return {name: tensor for name, tensor in pairs if tensor is not None}

    @property
    def policy(self) -> Policy:
        """The model under training."""
        return self._running()[0]

    def close(self) -> None:
        """Leave the process group."""
        if self._engine is not None:
            self._engine.destroy()
        self._engine = self._policy = None
        zero.leave()

    def _running(self) -> tuple[Policy, zero.ZeroEngine]:
        if self._policy is None or self._engine is None:
            raise RuntimeError("the learner has not been started")
        return self._policy, self._engine
