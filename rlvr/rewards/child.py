"""A grading process: `python -m rlvr.rewards.child`, started and killed by `rlvr.rewards.worker`.

A clean interpreter that reads samples on its standard input and writes judgements on its standard output. It
ends when its owner does, also in the midst of an endless loop. What verifiers print goes to standard error.
Must not know about deadlines and retries: its owner has those.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any, BinaryIO

from rlvr.errors import ConfigError
from rlvr.rewards import programs, wire
from rlvr.rewards.composite import CriterionSpec, Reward

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the owner closes the pipe."""
    requests, answers = claim_pipes()
    die_with_owner(requests.fileno())
    setup = read_frame(requests)
    if setup is None:
        return
    reward = _prepare(setup, answers)
    if reward is None:
        return
    while (request := read_frame(requests)) is not None:
        sample = wire.sample_from_plain(request["sample"])
        for index in range(request["first"], len(reward.specs)):
            judgement = reward.judge(index, sample)
            write_frame(answers, wire.judgement_to_plain(judgement))
            if judgement.exhausted:  # the owner replaces this process
                break


def claim_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes under new numbers, out of the way of verifiers that read or print."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def die_with_owner(pipe: int) -> None:
    """Twofold, as each alone has a gap: code that holds the interpreter's lock, and systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_watch, args=(pipe,), daemon=True).start()


def _watch(pipe: int) -> None:
    poll = select.poll()
    poll.register(pipe, 0)  # no events: only that the other end is gone
    poll.poll()
    # The main thread may just be reading the end of the pipe too; either way this process is over.
    os._exit(0)


def _prepare(setup: dict[str, Any], answers: BinaryIO) -> Reward | None:
    _extend_path([setup["folder"], *setup["search_path"]])
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        os.chdir(setup["folder"])  # on another host there may be no such folder
    try:
        programs.configure(**setup["sandbox"])
        reward = Reward.of([CriterionSpec(**spec) for spec in setup["specs"]])
        reward.prepare()
    except ConfigError as error:
        write_frame(answers, {"problems": error.problems})
        return None
    _limit_memory(setup["memory_gb"])
    write_frame(answers, {"identities": reward.identities, "sandbox": reward.sandbox("process")})
    return reward


def _extend_path(folders: list[str]) -> None:
    """Behind Python's own modules, which a user's random.py must not replace, and before installed packages."""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    place = next((i for i, path in enumerate(sys.path) if path in installed), len(sys.path))
    sys.path[place:place] = [folder for folder in dict.fromkeys(folders) if folder and folder not in sys.path]


def _limit_memory(memory_gb: float) -> None:
    """Limit what is allocated beyond what the verifiers' modules already hold, where /proc tells how much that is."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if memory_gb > 0 and statm.exists():
        held = int(statm.read_text().split()[0]) * resource.getpagesize()
        limit = held + int(memory_gb * 2**30)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """The next message of a pipe; None at its end."""
    header = stream.read(wire.HEADER.size)
    if len(header) < wire.HEADER.size:
        return None
    return wire.decode(stream.read(wire.body_length(header)))


def write_frame(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Send a message."""
    stream.write(wire.encode(message))
    stream.flush()


if __name__ == "__main__":
    main()
