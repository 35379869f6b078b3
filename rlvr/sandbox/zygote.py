"""The process that programs are forked from: a clean interpreter, started by `owner`, one program at a time.

It holds no secret, runs nothing of a program's before it has given up every right, and never reads what a program
sends. It watches over time and kills; when its owner ends, so does it, and with it the program.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rlvr.sandbox import confine, harness, kernel, library

PACKET = 2**16
_GLANCE_MS = 20
#: A program that has waited so long for a processor is not judged: the machine is overloaded.
PATIENCE_S = 30.0
_TICK = os.sysconf("SC_CLK_TCK")


def main(descriptor: int) -> None:
    """Serve the owner at the other end of a socket."""
    control = socket.socket(fileno=descriptor)
    setup = json.loads(control.recv(PACKET))
    owner = os.pidfd_open(setup["owner"])
    try:
        steps = _namespaces(set(setup["without"]), owner)
        memory = library.load(_with_path(setup))
        means = confine.prepare(steps, setup["without"], setup["tasks"])
    except (OSError, ImportError) as error:
        _tell(control, {"error": f"{type(error).__name__}: {error}"})
        return
    with contextlib.suppress(OSError):  # a container may forbid it; then the limits have to do
        Path("/proc/self/oom_score_adj").write_text("1000")
    _as_a_program_expects()
    library.only(memory)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    gc.collect()
    gc.freeze()
    gc.disable()  # a program turns it on: what the zygote itself leaves is not worth the memory it would touch
    _tell(control, {"steps": sorted(means.steps), "modules": len(memory)})
    parent = os.getpid()
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, PACKET, 3)
        if not data:
            return
        request = json.loads(data)
        if request["do"] != "run":  # an order to kill what has ended meanwhile
            continue
        child = os.fork()
        if child == 0:
            _program(request, descriptors, means, parent, held)
        for number in descriptors:
            os.close(number)
        _tell(control, _watch(child, request, control, owner))


def _with_path(setup: dict[str, Any]) -> list[str]:
    sys.path += setup["path"]
    return list(setup["packages"])


def _namespaces(without: set[str], owner: int) -> list[str]:
    """Move into new namespaces where that works; what was taken. The process that goes on may be a child."""
    choices = [(confine.NAMESPACES, False)] if os.geteuid() == 0 else []
    choices.append((confine.USER_NAMESPACE, True))
    for name, user in choices:
        if name in without or not confine.works(partial(_try_namespaces, user)):
            continue
        confine.new_namespaces(user)
        first = os.fork()
        if first:
            _stand_by(first, owner)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        confine.own_mounts()
        return [name]
    return []


def _try_namespaces(user: bool) -> None:
    confine.new_namespaces(user)
    if not confine.works(confine.own_mounts):
        raise OSError("no mounts")


def _stand_by(first: int, owner: int) -> NoReturn:
    """The process outside the namespaces: ends when the one inside does, or takes it along."""
    inside = os.pidfd_open(first)
    poll = select.poll()
    poll.register(inside, select.POLLIN)
    poll.register(owner, select.POLLIN)
    poll.poll()
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    os._exit(0)


def _as_a_program_expects() -> None:
    """What `site` would have added, and what only the zygote needs taken out of sight."""
    import _sitebuiltins

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    sys.argv[:] = [""]
    os.environ.clear()
    for name in [name for name in sys.modules if name.startswith("rlvr")]:
        del sys.modules[name]


def _tell(control: socket.socket, message: dict[str, Any]) -> None:
    control.send(json.dumps(message).encode())


def _program(request: dict[str, Any], descriptors: list[int], means: confine.Means, parent: int, held: int) -> NoReturn:
    """In the child: give up everything, then be the program."""
    code = 70
    try:
        os.setsid()
        channel, *files = descriptors
        os.dup2(0, 2)  # nowhere: our log is not for programs to write into
        # Out of the way first: a descriptor may have a number that another one is to have.
        moved = [os.dup(number) for number in (*files, channel)]
        high = [_above(number) for number in moved]
        for target, number in zip((*range(len(files)), 3), high, strict=True):
            os.dup2(number, target)
        confine.confine(means, parent, held + request["memory_mb"] * 2**20, request["cpu_s"] + 2)
        harness.serve(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=3))
        code = 0
    except BaseException:  # nothing of a program's may go on in the zygote's code
        code = 71
    finally:
        os._exit(code)


def _above(number: int) -> int:
    import fcntl

    return fcntl.fcntl(number, fcntl.F_DUPFD, 16)


def _watch(child: int, request: dict[str, Any], control: socket.socket, owner: int) -> dict[str, Any]:
    """Until the program has ended: by itself, over its time, or as its owner wishes."""
    begun = time.monotonic()
    process = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (process, control.fileno(), owner):
        poll.register(descriptor, select.POLLIN)
    over = ""
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(_GLANCE_MS)}
        if process in ready:
            break
        if control.fileno() in ready or owner in ready:
            over = over or "stopped"
            if not control.recv(PACKET):
                poll.unregister(control.fileno())
        elif not over:
            over = _overrun(child, time.monotonic() - begun, request["cpu_s"], request["wall_s"])
        if over:
            os.kill(child, signal.SIGKILL)
    os.close(process)
    _, status, usage = os.wait4(child, 0)
    _end_descendants()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "over": over,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mb": usage.ru_maxrss / 1024,
    }


def _end_descendants() -> None:
    """Kill what a program has left: only without the filter of system calls can it have started processes."""
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not ended:
            for number in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            time.sleep(0.001)


def _overrun(child: int, elapsed: float, cpu_s: float, wall_s: float) -> str:
    """Which time a program has used up. Waiting for a processor is not its fault."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        waited = int(Path(f"/proc/{child}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        fields, waited = [], 0.0
    if fields and (int(fields[11]) + int(fields[12])) / _TICK > cpu_s:
        return "cpu"
    if elapsed - waited > wall_s:
        return "wall"
    return "overloaded" if elapsed > wall_s + PATIENCE_S else ""
