"""vLLM's own C kernels for RMS norm, offered to a vLLM that runs on CPU.

vLLM ships them in its CPU build but hands them to GPUs alone: on CPU it expects a compiler to fuse the seven small
operations of a norm, and we run without one. At 64 completions the kernel takes a seventh of their time. Imports
torch and vLLM, so import it only in a process of vLLM.
"""

import torch
from torch import Tensor
from vllm import ir
from vllm.platforms import current_platform

PROVIDER = "rlvr_cpu"
#: For vLLM's `ir_op_priority`: ours where it takes the arguments, vLLM's plain one elsewhere.
PRIORITY = {"rms_norm": [PROVIDER, "native"], "fused_add_rms_norm": [PROVIDER, "native"]}


def register() -> None:
    """Offer the kernels under the name `PROVIDER`. May be called several times; does nothing where vLLM uses a GPU."""
    if not current_platform.is_cpu() or PROVIDER in ir.ops.rms_norm.impls:
        return
    current_platform.import_kernels()
    ir.ops.rms_norm.register_impl(PROVIDER, supports_args=_takes)(_rms_norm)
    ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supports_args=_takes_both, inplace=True)(_fused_add_rms_norm)


def _takes(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    """The kernel reads rows of one dtype that lie side by side."""
    return weight is not None and variance_size is None and weight.dtype == x.dtype and x.is_contiguous()


def _takes_both(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return _takes(x, weight, epsilon, variance_size) and x_residual.is_contiguous()


def _rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    normalised = torch.empty_like(x)
    torch.ops._C.rms_norm(normalised, x, weight, epsilon)
    return normalised


def _fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual
