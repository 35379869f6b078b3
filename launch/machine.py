"""What this machine has, found without importing anything heavy. Must not know what a run does with it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from rlvr.config import Config

_GPUS = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")


def visible_gpus() -> int:
    """NVIDIA GPUs that a process started here may use: those of the driver, less what CUDA_VISIBLE_DEVICES hides."""
    listed = len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0
    # A container may see the devices without the driver's folder in /proc.
    count = listed or sum(1 for device in _DEVICES.glob("nvidia[0-9]*") if device.name[6:].isdigit())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    names = []
    for name in visible.split(","):
        if name.strip() in ("", "-1"):
            break  # CUDA stops reading at the first that is none
        names.append(name)
    return min(count, len(names))


def check_machine(config: Config, *, learns: bool) -> list[str]:
    """Problems of running `config` on this machine. A cluster that is joined may have what this machine lacks."""
    if config.cluster.address or visible_gpus():
        return []
    asked = [("rollout.device", config.rollout.device)]
    if learns:
        asked.append(("learner.device", config.learner.device))
    return [
        f"{name} is cuda, but there is no visible NVIDIA GPU on this machine: set {name}=cpu or auto"
        for name, device in asked
        if device == "cuda"
    ]


def missing_packages(config: Config, *, learns: bool) -> list[str]:
    """The problem of running `config` without what it needs installed, in one sentence; nothing when all is there."""
    needed = ["torch", "transformers", "safetensors", "ray", "pyarrow", "matplotlib"]
    needed += ["vllm"] if config.rollout.engine == "vllm" else []
    needed += ["deepspeed"] if learns else []
    needed += (
        ["datasets"] if config.task.name == "hub" or (config.task.name == "gsm8k" and not config.task.path) else []
    )
    needed += ["wandb"] if config.track.wandb != "off" else []
    needed += ["gguf"] if config.model.path.endswith(".gguf") else []
    if missing := [name for name in needed if find_spec(name) is None]:
        return [
            f"not installed here: {', '.join(missing)}. The package alone is the light core; the stack that runs is "
            "pinned in requirements/ of the source tree: `make install` there sets it up"
        ]
    return []
