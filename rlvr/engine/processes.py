"""The processes that a library spawns under ours: which they are, and making sure that they end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker

import psutil

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Child:
    """A process, told apart from a later one that got the same id."""

    pid: int
    created: float


def children() -> list[Child]:
    """All living descendants of this process, but for Python's own resource tracker, which lives as long as we do."""
    found = []
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    for process in psutil.Process().children(recursive=True):
        try:
            if process.pid == tracker:
                continue
            found.append(Child(process.pid, process.create_time()))
        except psutil.NoSuchProcess:
            continue  # ended in between
    return found


def end(expected: Sequence[Child], grace_s: float) -> None:
    """Wait until these processes have ended; kill those that have not after `grace_s` seconds."""
    living = [process for process in map(_find, expected) if process is not None]
    _, late = psutil.wait_procs(living, timeout=grace_s)
    for process in late:
        _log.warning("process %d did not end within %.0f s: killing it", process.pid, grace_s)
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(late, timeout=grace_s)


def _find(child: Child) -> psutil.Process | None:
    try:
        process = psutil.Process(child.pid)
        return process if process.create_time() == child.created else None
    except psutil.NoSuchProcess:
        return None
