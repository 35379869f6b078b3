"""A lock between processes of one machine that a killed holder cannot leave behind.

Knows nothing of what it guards.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlvr.errors import DeadlineError, UserError

POLL_S = 0.2


@contextmanager
def exclusive(path: Path, *, what: str, deadline_s: float, log: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock file `path` exclusively. Yields its descriptor.

    The kernel releases the lock when its holder and the children that inherited the descriptor are gone, however
    they ended. The file itself stays: removing it would let two processes lock two files of one name. Raises
    DeadlineError when another process holds it for longer than `deadline_s` seconds; while waiting, `log` is told once.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        give_up = time.monotonic() + deadline_s
        waiting = False
        while not _try(descriptor, path):
            if not waiting:
                log(f"waiting up to {deadline_s:.0f} s for {_holder(descriptor)} to {what}")
                waiting = True
            if time.monotonic() >= give_up:
                raise DeadlineError("this run", _holder(descriptor), what, deadline_s)
            time.sleep(POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _try(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise UserError(
            f"{path} cannot be locked: {error.strerror}. Its file system may not support locks; "
            "name a folder on a local disk with model.cache_dir"
        ) from error
    return True


def _holder(descriptor: int) -> str:
    """Who holds the lock, as far as it has said so."""
    pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return f"another run (process {pid})" if pid.isdigit() else "another run"
