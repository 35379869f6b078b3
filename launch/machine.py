"""What this machine has, found without importing torch. Must not know what a run does with it."""

from __future__ import annotations

import os
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
