"""The machine's limit: the fastest matrix product it manages right now, to measure everything else against.

On a shared machine it changes from minute to minute, so benchmarks take it in the run whose figures they relate to it.
"""

from __future__ import annotations

import time

import torch


def peak_gflops(dtype: torch.dtype = torch.float32, size: int = 2048, seconds: float = 2.0) -> float:
    """GFLOP/s of the best of many `size` x `size` products, with torch's threads."""
    left, right = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9
