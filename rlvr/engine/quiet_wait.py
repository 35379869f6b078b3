"""Make vLLM's processes sleep, not spin, while they wait for one another on a CPU.

vLLM's engine core polls for the worker's answer for up to a second. On a GPU host that hides a little latency;
where the model computes on the very cores that are polled on, it takes a share of one of them all the time, and
a product split evenly over the cores waits for the slower half. Runs inside vLLM's processes. Uses a part of
vLLM that is no public interface, so it checks that the part looks as expected.
"""

from __future__ import annotations

import os

#: Set to "1" for the processes that should sleep. An environment variable, because vLLM spawns them.
VARIABLE = "RLVR_QUIET_WAIT"
#: Long enough to catch an answer that is about to come, far shorter than a decoding step (50 ms and more).
SPIN_S = 0.0005
#: A wake-up call that was sent before the sleeper had subscribed is lost; it looks again after this time.
_LONGEST_SLEEP_MS = 50


def install() -> None:
    """Do it in this process if `VARIABLE` says so. Doing it twice is fine. Raises RuntimeError for another vLLM."""
    if os.environ.get(VARIABLE) != "1":
        return
    from vllm.distributed.device_communicators import shm_broadcast

    condition = getattr(shm_broadcast, "SpinCondition", None)
    if condition is None or not hasattr(condition, "wait"):
        raise RuntimeError("this version of vLLM waits in another way; rlvr needs the pinned version of vLLM")
    if hasattr(condition, "spinning_wait"):
        return
    condition.spinning_wait = condition.wait

    def wait(self: object, timeout_ms: int | None = None) -> None:
        self.busy_loop_s = SPIN_S  # type: ignore[attr-defined]
        longest = _LONGEST_SLEEP_MS if timeout_ms is None else min(timeout_ms, _LONGEST_SLEEP_MS)
        self.spinning_wait(timeout_ms=longest)  # type: ignore[attr-defined]

    condition.wait = wait
