"""A version of the weights as one safetensors file in shared memory: written by the learner, read by engines.

Must not import vLLM: the learner writes with it. What is in the file is checked here, before an engine
touches its model, so that a wrong file leaves the old weights in place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.errors import TrainingError, UserError
from rlvr.records import WeightUpdate

if TYPE_CHECKING:
    import torch

_SHARED_MEMORY = Path("/dev/shm")
_FORMAT = "rlvr-weights-1"
_SHOWN = 5

#: Name of a parameter -> its shape.
Shapes = dict[str, tuple[int, ...]]

_SAFETENSORS_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}


def write_update(folder: str, version: int, tensors: Mapping[str, torch.Tensor]) -> WeightUpdate:
    """Write `tensors` (Hugging Face parameter names, full tensors) as version `version`, visible only when complete.

    Raises UserError when the folder has no room for it.
    """
    from safetensors.torch import save_file

    ready = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    needed = sum(tensor.numel() * tensor.element_size() for tensor in ready.values())
    # Checked first: a tmpfs that runs full under a memory-mapped writer kills the process without a word.
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"weights of version {version} take {needed / 2**30:.2f} GiB, but {folder} has {free / 2**30:.2f} GiB "
            "left. Give the machine more shared memory (docker: --shm-size; Kubernetes: an emptyDir with "
            "medium Memory at /dev/shm)"
        )
    path = Path(folder) / f"weights-{version}.safetensors"
    unfinished = path.with_suffix(".partial")
    try:
        save_file(ready, unfinished, metadata={"format": _FORMAT, "version": str(version)})
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return WeightUpdate(version=version, path=str(path))


def discard(update: WeightUpdate) -> None:
    """Remove the file. Engines that mapped it keep their mapping; one that is gone already is fine."""
    Path(update.path).unlink(missing_ok=True)


def read_header(path: str) -> tuple[Shapes, dict[str, str], dict[str, str]]:
    """Shapes, dtypes (torch's names) and metadata of a safetensors file, without reading its tensors.

    Raises TrainingError when the file is missing or is not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            shapes: Shapes = {}
            dtypes: dict[str, str] = {}
            for name in file.keys():  # noqa: SIM118 (the handle is not a mapping)
                view = file.get_slice(name)
                shapes[name] = tuple(view.get_shape())
                dtypes[name] = _SAFETENSORS_DTYPES.get(view.get_dtype(), view.get_dtype())
            return shapes, dtypes, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"weight update {path} cannot be read: {error}") from None


def verify(update: WeightUpdate, expected: Mapping[str, tuple[int, ...]], dtype: str) -> None:
    """Raise TrainingError unless the file holds exactly `expected`, in `dtype`, and calls itself `update.version`."""
    shapes, dtypes, metadata = read_header(update.path)
    problems = differences(shapes, dtypes, expected, dtype)
    if metadata.get("version") != str(update.version):
        problems.insert(0, f"its version is {metadata.get('version')!r}")
    if problems:
        more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
        raise TrainingError(
            f"weight update {update.path} (version {update.version}) is not what the engine's model needs: "
            f"{'; '.join(problems[:_SHOWN])}{more}. The old weights stay in place. Learner and engine must load "
            "the same model.path with the same model.dtype"
        )


def differences(
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
    expected: Mapping[str, tuple[int, ...]],
    dtype: str,
) -> list[str]:
    """What is wrong with a set of tensors, one sentence each, sorted by name within each kind."""
    missing = [f"{name} is missing" for name in sorted(expected.keys() - shapes.keys())]
    extra = [f"{name} is not a parameter of the model" for name in sorted(shapes.keys() - expected.keys())]
    wrong = []
    for name in sorted(expected.keys() & shapes.keys()):
        if shapes[name] != tuple(expected[name]):
            wrong.append(f"{name} has shape {list(shapes[name])} instead of {list(expected[name])}")
        elif dtypes[name] != dtype:
            wrong.append(f"{name} is {dtypes[name]} instead of {dtype}")
    return missing + extra + wrong
