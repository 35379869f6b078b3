"""Which cores an engine computes on, when it runs on the CPU, and the environment that tells it so.

Pure functions: what the machine looks like is passed in (`machine_cores` is the one reader). Must not
import vLLM or torch: the environment has to stand before either of them is loaded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlvr.errors import ConfigError

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_TOPOLOGY = Path("/sys/devices/system/cpu")

#: Settings of vLLM that would override what we decide here, so a value inherited from a shell must go.
INHERITED = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_NUM_OF_RESERVED_CPU", "OMP_NUM_THREADS", "GOMP_CPU_AFFINITY")


def machine_cores() -> tuple[int, ...]:
    """Logical CPUs that compute threads should use here: allowed ones, one per physical core, within the quota."""
    allowed = sorted(os.sched_getaffinity(0))
    siblings = {cpu: _read(_TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list") for cpu in allowed}
    return usable_cores(allowed, siblings, _read(_CGROUP_QUOTA))


def usable_cores(allowed: Sequence[int], siblings: Mapping[int, str], quota: str) -> tuple[int, ...]:
    """The first allowed logical CPU of each physical core, at most as many as the quota of CPU time pays for.

    `siblings` maps a CPU to the kernel's list of hardware threads on its core ("0,8" or "0-1"), empty where
    unknown. `quota` is the text of cgroup v2's cpu.max ("200000 100000" or "max 100000"). Two hardware threads of
    a core share its multipliers, and threads beyond the quota are stopped in the middle of a barrier: both make
    a matrix product slower, not faster.
    """
    cores: list[int] = []
    taken: set[str] = set()
    for cpu in sorted(allowed):
        core = siblings.get(cpu, "") or str(cpu)
        if core not in taken:
            taken.add(core)
            cores.append(cpu)
    limit = _quota_cores(quota)
    return tuple(cores[:limit] if limit else cores)


def engine_cores(cores: Sequence[int], *, engines: int, index: int, threads: int = 0) -> tuple[int, ...]:
    """The cores of engine `index` out of `engines` that share a machine: disjoint while there are enough.

    `threads` 0 divides the cores evenly (the first engines get the remainder). With more engines than cores,
    or more threads than cores, engines share cores in turn. Neighbouring cores stay together: they share a
    cache and a memory node. Raises ConfigError when one engine is to have more threads than there are cores.
    """
    if not cores or not 0 <= index < engines:
        raise ValueError(f"engine {index} of {engines} on {len(cores)} cores does not exist")
    if threads > len(cores):
        raise ConfigError(
            f"rollout.threads: {threads} threads for an engine on a machine with {len(cores)} cores "
            "makes every one of them wait. Use at most the number of cores, or 0 to divide them"
        )
    total = len(cores)
    if threads:
        start = index * threads
        return tuple(sorted(cores[(start + offset) % total] for offset in range(threads)))
    if engines >= total:
        return (cores[index % total],)
    share, remainder = divmod(total, engines)
    start = index * share + min(index, remainder)
    return tuple(cores[start : start + share + (index < remainder)])


def vllm_environment(cores: Sequence[int]) -> dict[str, str]:
    """Environment variables for vLLM's processes on CPU, set before vLLM is imported."""
    # Left alone, vLLM reserves a core for its scheduler, which is idle while the model computes: half of a
    # two-core machine.
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in cores)}


def _quota_cores(text: str) -> int:
    """Whole cores that a cpu.max line pays for, at least 1; 0: no quota."""
    fields = text.split()
    if len(fields) != 2 or not fields[0].isdigit() or not fields[1].isdigit() or int(fields[1]) == 0:
        return 0
    return max(1, math.ceil(int(fields[0]) / int(fields[1])))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # not every kernel or container shows it; the callers know what an empty text means
