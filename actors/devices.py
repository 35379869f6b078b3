"""Where an actor computes, and with how many threads. Must not know what it computes."""

from __future__ import annotations

import os

import ray

from rlvr.allocator import allocator_environment
from rlvr.errors import ConfigError


def actor_device(key: str, wanted: str, actors: int) -> str:
    """cpu or cuda for `actors` actors that each want `wanted` (auto, cpu, cuda) under the configuration key `key`.

    Raises ConfigError when CUDA is asked for and the cluster has too few GPUs.
    """
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if wanted == "auto":
        return "cuda" if gpus >= actors else "cpu"
    if wanted == "cuda" and gpus < actors:
        raise ConfigError(f"{key} is cuda for {actors} actors, but this cluster has {gpus} GPUs. Use {key}=cpu")
    return wanted


def thread_environment(threads: int) -> dict[str, str]:
    """Environment of an actor that computes on CPU with `threads` threads; Ray would leave it a single one.

    How threads wait is left to OpenMP: they spin for a moment and then sleep. Sleeping at once
    (OMP_WAIT_POLICY=passive) costs more at every one of the many small parallel regions than the spinning takes from
    an engine on the same cores, which rests while the learner works.
    """
    return {"OMP_NUM_THREADS": str(threads)} | allocator_environment(os.environ)
