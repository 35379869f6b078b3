"""The processes that a library spawns under ours: which they are, and that they leave nothing behind.

Linux only. Must not know which library it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

import psutil

_log = logging.getLogger(__name__)

_SHM = "/dev/shm/"
#: How Python names shared memory and semaphores of its multiprocessing module.
_PYTHON = ("psm_", "sem.mp-")


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


def shared_memory(owners: Sequence[Child]) -> list[Path]:
    """Files in /dev/shm that these processes have mapped: shared memory and semaphores of Python's.

    Compared by inode, because a semaphore is mapped under a name that it no longer has.
    """
    inodes: set[int] = set()
    for owner in owners:
        try:
            lines = Path(f"/proc/{owner.pid}/maps").read_text(errors="replace").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended in between
        mappings = (line.split(maxsplit=5) for line in lines)
        inodes.update(int(fields[4]) for fields in mappings if len(fields) == 6 and fields[5].startswith(_SHM))
    return sorted(path for path in Path(_SHM).glob("*") if path.name.startswith(_PYTHON) and _inode(path) in inodes)


def forget_names(files: Sequence[Path]) -> None:
    """Remove the names of shared memory that everybody concerned has mapped already.

    The memory stays until the last of them ends, however it ends; with its name it would stay after a SIGKILL.
    """
    for path in files:
        path.unlink(missing_ok=True)


@contextmanager
def names_in_place(files: Sequence[Path]) -> Iterator[None]:
    """Empty files under those names while their owners end in good order, for them to remove."""
    for path in files:
        path.touch()
    try:
        yield
    finally:
        forget_names(files)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1  # removed in between


def _find(child: Child) -> psutil.Process | None:
    try:
        process = psutil.Process(child.pid)
        return process if process.create_time() == child.created else None
    except psutil.NoSuchProcess:
        return None
