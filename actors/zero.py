"""DeepSpeed as this project uses it: process group, engine, and an optimizer that divides by the step's normaliser.

While groups stream in, gradients are unnormalised sums; the normaliser is known at the step only. DeepSpeed's own way
to divide late, overriding the loss scale, is ignored without a word by ZeRO 0 and by ZeRO 1 in bfloat16. So the
optimizer inside does it: DeepSpeed partitions, reduces and gathers; `NormalisedAdamW` divides, clips by the global
norm and refuses what is not finite, the same for every stage and precision.
Must not know groups or losses.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch

from rlvr.config import LearnerConfig
from rlvr.errors import ConfigError, TrainingError

LOOPBACK = "127.0.0.1"
#: Elements per reduction bucket. DeepSpeed's default, 5e8, is a buffer of 2 GB.
_BUCKET = 50_000_000


class NormalisedAdamW(torch.optim.AdamW):
    """AdamW on gradients that are first divided by `divisor` and clipped to a global norm."""

    def __init__(self, params: Any, *, max_grad_norm: float, **options: Any) -> None:
        super().__init__(params, fused=True, **options)
        self.divisor = 1.0
        self.raw_norm: Callable[[], float] | None = None
        """Global norm of the gradients as they are, over all ranks. None: they are all here, so compute it."""
        self.grad_norm = math.nan
        """Norm of the last step's gradient, after division and before clipping."""
        self._max_grad_norm = max_grad_norm

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update, unless the gradient is not finite: then `grad_norm` says so and the weights stay as they are.

        ZeRO 3 calls this once per part of the parameters; the norm is that of all parts every time.
        """
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        raw = float(self.raw_norm()) if self.raw_norm else float(torch.nn.utils.get_total_norm(gradients))
        # DeepSpeed reports a norm that is not finite as -1.
        self.grad_norm = raw / self.divisor if math.isfinite(raw) and raw >= 0 else math.nan
        if not math.isfinite(self.grad_norm):
            return
        clip = min(1.0, self._max_grad_norm / (self.grad_norm + 1e-6))
        torch._foreach_mul_(gradients, clip / self.divisor)
        super().step()


def open_store_socket() -> socket.socket:
    """A listening socket on loopback, on a port that the system chose, for the ranks to meet at."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((LOOPBACK, 0))
    listener.listen(128)
    return listener


def join(rank: int, world: int, port: int, listener: socket.socket | None, device: str, timeout_s: float) -> None:
    """Join the process group: gloo on CPU, NCCL on CUDA. Rank 0 brings the listening socket.

    PyTorch's own rendezvous would listen on every interface, without authentication.
    """
    # Gloo and NCCL would otherwise listen on the machine's outward address; all ranks are on this machine.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    # What DeepSpeed asks for. Ray shows each actor its own GPU only, so that is number 0 for every rank.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK="0")
    timeout = timedelta(seconds=timeout_s)
    extra = {} if listener is None else {"master_listen_fd": listener.detach()}
    store = torch.distributed.TCPStore(
        LOOPBACK, port, world, is_master=rank == 0, timeout=timeout, wait_for_workers=False, **extra
    )
    backend = "nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)


def leave() -> None:
    """Leave the process group, if there is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class ZeroEngine:
    """A module under DeepSpeed: forward, backward of unnormalised sums, one step with the normaliser."""

    def __init__(self, module: torch.nn.Module, config: LearnerConfig, dtype: str, device: str) -> None:
        """Raises ConfigError for a combination that DeepSpeed cannot compute exactly."""
        # Read at import; without it a learner on the CPU of a GPU machine would get the GPU.
        os.environ.setdefault("DS_ACCELERATOR", device)
        import deepspeed

        _without_compiling(deepspeed)
        if dtype == "bfloat16" and config.zero_stage == 0:
            raise ConfigError(
                "learner.zero_stage=0 with model.dtype=bfloat16: DeepSpeed adds up gradients in bfloat16 there. "
                "Use learner.zero_stage=1, which keeps them in float32"
            )
        deepspeed.utils.logging.set_log_level_from_string("warning", deepspeed.utils.logger)
        if NormalisedAdamW not in deepspeed.runtime.zero.utils.ZERO_SUPPORTED_OPTIMIZERS:
            # It steps on whatever flat partition it is given, as the AdamW that is on the list does.
            deepspeed.runtime.zero.utils.ZERO_SUPPORTED_OPTIMIZERS.append(NormalisedAdamW)
        self.stage = config.zero_stage
        self.device = torch.device(device)
        self.world = torch.distributed.get_world_size()
        self._optimizer = NormalisedAdamW(
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
        )
        self._engine, self._outer, *_ = deepspeed.initialize(
            model=module,
            optimizer=self._optimizer,
            config=_deepspeed_config(config.zero_stage, dtype, self.world),
            dist_init_required=False,
        )
        if self._outer is not self._optimizer:
            self._optimizer.raw_norm = lambda: float(self._outer._global_grad_norm)

    def __call__(self, *inputs: Any) -> Any:
        return self._engine(*inputs)

    def backward(self, total: torch.Tensor) -> None:
        """Add the gradient of an unnormalised sum to what has been accumulated."""
        self._engine.backward(total, scale_wrt_gas=False)

    def step(self, normaliser: float, lr: float) -> float:
        """One optimizer step on (accumulated sum over all ranks) / normaliser; the norm of that gradient.

        Raises TrainingError, the weights unchanged, when the gradient is not finite.
        """
        # DeepSpeed hands over the mean over ranks of each rank's sum.
        self._optimizer.divisor = normaliser / self.world
        self._optimizer.grad_norm = math.nan
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._engine.step()
        if not math.isfinite(self._optimizer.grad_norm):
            raise TrainingError("the gradient is not finite")
        return self._optimizer.grad_norm

    def parameters(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        """(name, full tensor) of every parameter, tied ones once. All ranks must go through it together.

        Under ZeRO 3 each is gathered for the duration of its turn, on CPU on rank 0, None on the others.
        """
        import deepspeed

        for name, parameter in self._engine.module.named_parameters():
            if self.stage < 3:
                yield name, parameter.detach()
                continue
            with deepspeed.zero.GatheredParameters([parameter]):
                yield name, parameter.detach().to("cpu", copy=True) if torch.distributed.get_rank() == 0 else None

    def destroy(self) -> None:
        """Remove DeepSpeed's hooks."""
        self._engine.destroy()


def _without_compiling(deepspeed: Any) -> None:
    """Keep DeepSpeed from compiling its shared-memory all-reduce, which only its inference uses.

    It is compiled when a process group is joined on CPU, behind a lock file without an owner: a process that is
    killed at that moment leaves the lock behind, and every later run on that machine waits for it for ever.
    """
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _deepspeed_config(stage: int, dtype: str, world: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "train_batch_size": world,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # The caller decides when a step is complete, after any number of backward passes.
        "managed_gradient_accumulation": False,
        "gradient_clipping": 0.0,
        "steps_per_print": None,
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": False,
            "reduce_bucket_size": _BUCKET,
            "allgather_bucket_size": _BUCKET,
        },
    }
    if dtype == "bfloat16":
        settings["bf16"] = {"enabled": True}
        settings["data_types"] = {"grad_accum_dtype": "fp32"}
        settings["communication_data_type"] = "fp32"
    return settings
