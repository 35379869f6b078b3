"""What takes the rights of a zygote and its programs away, step by step. Linux only.

Each step either holds or raises OSError; which of them are taken is decided by trying, and what they are worth by
`probes`. Must not know what programs do.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from rlvr.sandbox import kernel, landlock
from rlvr.sandbox.seccomp import Filter

NAMESPACES, USER_NAMESPACE, UID, CHROOT, LANDLOCK, SECCOMP = (
    "namespaces",
    "user_namespace",
    "uid",
    "chroot",
    "landlock",
    "seccomp",
)
STEPS = (NAMESPACES, USER_NAMESPACE, UID, CHROOT, LANDLOCK, SECCOMP)

#: Above the numbers that people, services and containers have; with a process number added, nobody else's.
_FIRST_UID = 0x70000000
_OVERFLOW_UID = 65534
_KEPT_DESCRIPTORS = 4  # standard input, output and error, and the channel
_MAX_DESCRIPTORS = 64
#: Also what each thread gets; a program may ask for more.
_STACK = 8 * 2**20
_MAX_STACK = 512 * 2**20


@dataclass(frozen=True)
class Means:
    """What one zygote confines its programs with; made once, used for each of them."""

    steps: frozenset[str]
    uid: int
    tasks: int
    """Tasks that the program's user may have."""
    nowhere: int
    """Descriptor of the folder that becomes the program's root."""
    ruleset: int
    filter: Filter | None


def new_namespaces(user: bool) -> None:
    """Give this process namespaces of its own; its next child is the first process there. Raises OSError."""
    uid, gid = os.getuid(), os.getgid()
    flags = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWNS
    kernel.unshare(flags | (kernel.CLONE_NEWUSER if user else 0))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def own_mounts() -> None:
    """In the first process of new namespaces: its own view of processes, which ends with it. Raises OSError."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def prepare(taken: Collection[str], without: Collection[str], tasks: int) -> Means:
    """Find out which further steps this process can take. `taken`: namespaces that it has already."""
    steps = set(taken)
    uid, nowhere, ruleset, calls = os.getuid(), -1, -1, None
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if UID not in without and os.geteuid() == 0 and works(lambda: _become(own_uid())):
        uid = own_uid()
        steps.add(UID)
    if CHROOT not in without:
        with contextlib.suppress(OSError):
            nowhere = _nowhere()
            if works(lambda: _leave(nowhere)):
                steps.add(CHROOT)
    if LANDLOCK not in without:
        with contextlib.suppress(OSError):
            ruleset = landlock.ruleset()
            steps.add(LANDLOCK)
    if SECCOMP not in without:
        calls = Filter()
        if works(lambda: Filter().install(os.getpid())):
            steps.add(SECCOMP)
    if UID not in steps and not steps & {NAMESPACES, USER_NAMESPACE}:
        tasks += _tasks_of(uid)  # it shares the count with everything that this user runs
    return Means(frozenset(steps), uid, tasks, nowhere, ruleset, calls if SECCOMP in steps else None)


def own_uid() -> int:
    """A user that nobody else is, as far as this system has so many."""
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    highest = max(first + count - 1 for first, _, count in ranges)
    process = os.getpid()
    if highest >= _FIRST_UID + process:
        return _FIRST_UID + process
    return max(1, min(highest, _OVERFLOW_UID - 1) - process % max(1, min(highest, _OVERFLOW_UID) // 2))


def _tasks_of(uid: int) -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    count += len(list((entry / "task").iterdir()))
            except OSError:  # it has ended meanwhile
                continue
    return count


def works(step: Callable[[], None]) -> bool:
    """Whether a step raises no OSError: tried in a child, as there is no way back."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            step()
            code = 0
        except OSError:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _nowhere() -> int:
    """A descriptor of a folder in which nothing can be found or made, nor ever will: one of an ended process.

    So there is no folder to leave behind. Raises OSError.
    """
    wait, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(wait, 1)
        os._exit(0)
    try:
        return os.open(f"/proc/{child}/ns", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(end)
        os.close(wait)
        os.waitpid(child, 0)


def _leave(nowhere: int) -> None:
    os.fchdir(nowhere)
    os.chroot(".")


def confine(means: Means, parent: int, memory_bytes: int, cpu_s: float) -> None:
    """Take everything away from this process, a program about to start. Raises OSError when something does not hold.

    memory_bytes: of address space. cpu_s: when the kernel kills it, should its zygote not.
    """
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NPROC, means.tasks),
        (resource.RLIMIT_CPU, math.ceil(cpu_s)),
        (resource.RLIMIT_STACK, _MAX_STACK),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (min(value, _STACK) if limit == resource.RLIMIT_STACK else value, value))
    if CHROOT in means.steps:
        _leave(means.nowhere)
    if UID in means.steps:
        _become(means.uid)
    if means.filter is not None or LANDLOCK in means.steps or UID in means.steps:
        kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    if os.getppid() != parent:
        os._exit(1)
    if LANDLOCK in means.steps:
        landlock.restrict(means.ruleset)
    os.closerange(_KEPT_DESCRIPTORS, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_DESCRIPTORS, _MAX_DESCRIPTORS))
    if means.filter is not None:
        means.filter.install(os.getpid())
