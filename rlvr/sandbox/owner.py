"""The owner's side of the sandbox: starts a zygote, has programs run, and talks to them over a socket.

Thread-safe; no signals, so it works in any thread. What a program sends is foreign input: see `Program.receive`.
Must not know what programs are run for.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from rlvr.errors import DeadlineError, InfrastructureError
from rlvr.sandbox import frames
from rlvr.sandbox.zygote import PACKET, PATIENCE_S

#: Python, its library and the packages, on a busy machine.
START_TIMEOUT_S = 60.0
#: A program that has sent its last word ends at once; if not, it is ended.
_GRACE_MS = 20
_END_TIMEOUT_S = 20.0
#: Threads that a program may have, the first included.
TASKS = 32
#: A fixed seed, so that sets have the same order in every run; and malloc takes no address space for each thread.
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_START = "import sys; sys.path.insert(0, sys.argv[1]); from rlvr.sandbox import zygote; zygote.main(int(sys.argv[2]))"


@dataclass(frozen=True)
class Limits:
    """What one run of a program may use."""

    cpu_s: float = 2.0
    """Processor time."""
    wall_s: float = 4.0
    """Time of the clock, without what it waited for a processor."""
    memory_mb: int = 256
    """Address space beyond the interpreter's own."""
    message_bytes: int = 2**18
    """Of one message that it sends: so much is taken apart, however it was made up to take long."""
    output_bytes: int = 2**20
    """Of what it prints, where that is read."""


class Cause(Enum):
    """How a program ended."""

    ENDED = "ended"
    CPU = "used up its processor time"
    WALL = "used up its time"
    CRASHED = "crashed"
    FORBIDDEN = "was killed for a system call that only an attack makes"
    STOPPED = "was stopped"


@dataclass(frozen=True)
class Ran:
    """What is known of a program that has ended."""

    cause: Cause
    code: int
    """Exit code, or minus the signal."""
    cpu_s: float
    memory_mb: float


@dataclass
class Program:
    """A program that runs."""

    channel: socket.socket
    limits: Limits
    output: int = -1
    """Descriptor to read from what it prints; -1: that is thrown away."""
    ran: Ran | None = field(default=None)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. A program that does not listen any more is no error: it is found out when it is asked."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            frames.send(self.channel, message)

    def receive(self) -> dict[str, Any]:
        """The next message. Raises EOFError when the program has ended, ValueError on what is no message."""
        try:
            return frames.receive(self.channel, self.limits.message_bytes)
        except ConnectionResetError:
            raise EOFError("the program has ended") from None

    def printed(self) -> bytes | None:
        """All that it prints, when it has closed its output; None: more than the limit."""
        chunks, size = [], 0
        while chunk := os.read(self.output, 2**16):
            chunks.append(chunk)
            size += len(chunk)
            if size > self.limits.output_bytes:
                return None
        return b"".join(chunks)


class Sandbox:
    """One zygote and the means to start another: runs one program at a time.

    packages: what programs may import besides Python's own library. without: steps of `confine` to leave out, for
    tests of the probes.
    """

    def __init__(self, packages: Sequence[str] = (), *, without: Collection[str] = (), tasks: int = TASKS) -> None:
        self._setup = {"packages": list(packages), "without": sorted(without), "tasks": tasks}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0
        self._lock = threading.RLock()
        self.steps: frozenset[str] = frozenset()
        """Which steps of `confine` this machine allows; known once started."""

    def start(self) -> None:
        """Start the zygote, if none runs. Raises InfrastructureError, DeadlineError."""
        with self._lock:
            if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
                return
            if self._owner == os.getpid():
                self.close()
            self._spawn()

    def close(self) -> None:
        """End the zygote and its program."""
        with self._lock:
            process, self._process = self._process, None
            control, self._control = self._control, None
            if control is not None:
                control.close()
            if process is not None and self._owner == os.getpid():
                process.kill()
                process.wait()

    @property
    def process(self) -> int:
        """Process number of the zygote. Raises InfrastructureError when none runs."""
        if self._process is None:
            raise InfrastructureError("the sandbox is not started")
        return self._process.pid

    @contextlib.contextmanager
    def program(self, limits: Limits, stdin: bytes | None = None) -> Iterator[Program]:
        """A program to talk to; at the end of the block it has ended, and `ran` says how.

        stdin: given, the program reads it as its standard input, and what it prints can be read. Raises
        InfrastructureError when the sandbox itself fails, and DeadlineError when the machine is overloaded.
        """
        with self._lock:
            self.start()
            with contextlib.ExitStack() as held:
                channel, theirs = socket.socketpair()
                held.callback(channel.close)
                held.callback(theirs.close)
                channel.settimeout(limits.wall_s + PATIENCE_S + _END_TIMEOUT_S)
                program = Program(channel, limits)
                descriptors, given_away = [theirs.fileno()], [theirs.close]
                if stdin is not None:
                    source = held.enter_context(os.fdopen(_sealed(stdin), "rb"))
                    reader, writing = os.pipe()
                    program.output = reader
                    held.callback(os.close, reader)
                    writer = held.enter_context(os.fdopen(writing, "wb"))
                    descriptors += [source.fileno(), writer.fileno()]
                    given_away.append(writer.close)
                try:
                    self._order({"do": "run", **_plain_limits(limits)}, descriptors)
                    for close in given_away:  # else their ends would never be seen
                        close()
                    yield program
                except TimeoutError:
                    self.close()
                    raise DeadlineError("a verifier", "a program", "end", limits.wall_s + PATIENCE_S) from None
                except BaseException:
                    self._finish(program, at_once=True)
                    raise
                self._finish(program, at_once=False)

    def _order(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        if self._control is None:
            raise InfrastructureError("the sandbox is not started")
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
        except OSError as error:
            self.close()
            raise InfrastructureError(f"the sandbox's zygote has ended: {error}") from None

    def _finish(self, program: Program, *, at_once: bool) -> None:
        """Wait for the zygote's report; make the program end first when it does not by itself."""
        if self._control is None:
            return
        with contextlib.suppress(OSError):
            program.channel.shutdown(socket.SHUT_RDWR)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if at_once or not poll.poll(_GRACE_MS):
            self._order({"do": "kill"})
        if not poll.poll(_END_TIMEOUT_S * 1e3):
            self.close()
            raise DeadlineError("a verifier", "the sandbox's zygote", "end a program", _END_TIMEOUT_S)
        report = self._read_report()
        if report["over"] == "overloaded":
            raise DeadlineError("a verifier", "a program", "get enough of the processor", PATIENCE_S)
        program.ran = Ran(_cause(report), report["code"], report["cpu_s"], report["memory_mb"])

    def _read_report(self) -> dict[str, Any]:
        if self._control is None:
            raise InfrastructureError("the sandbox is not started")
        try:
            data = self._control.recv(PACKET)
        except OSError:
            data = b""
        if not data:
            self.close()
            raise InfrastructureError("the sandbox's zygote has ended")
        report: dict[str, Any] = json.loads(data)
        return report

    def _spawn(self) -> None:
        import rlvr

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner = os.getpid()
        root = str(Path(rlvr.__file__).resolve().parents[1])
        linker = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONHOME") if name in os.environ}
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-S", "-s", "-P", "-B", "-X", "utf8", "-c", _START, root, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_ENVIRONMENT | linker,
                    pass_fds=[theirs.fileno()],
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise InfrastructureError(f"cannot start the sandbox's zygote: {error}") from None
        self._control = ours
        path = [path for path in sys.path if path] if self._setup["packages"] else []
        self._order(self._setup | {"owner": os.getpid(), "path": path})
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        if not poll.poll(START_TIMEOUT_S * 1e3):
            self.close()
            raise DeadlineError("a verifier", "the sandbox's zygote", "start", START_TIMEOUT_S)
        report = self._read_report()
        if "error" in report:
            self.close()
            raise InfrastructureError(f"the sandbox's zygote cannot start: {report['error']}")
        steps = frozenset(report["steps"])
        if self.steps and steps != self.steps:
            self.close()
            raise InfrastructureError(f"the sandbox was confined by {_list(self.steps)}, now it is by {_list(steps)}")
        self.steps = steps


def _plain_limits(limits: Limits) -> dict[str, Any]:
    return {"cpu_s": limits.cpu_s, "wall_s": limits.wall_s, "memory_mb": limits.memory_mb}


def _list(steps: frozenset[str]) -> str:
    return ", ".join(sorted(steps)) or "nothing"


_SIGSYS = -31


def _cause(report: dict[str, Any]) -> Cause:
    if report["over"]:
        return {"cpu": Cause.CPU, "wall": Cause.WALL}.get(report["over"], Cause.STOPPED)
    if report["code"] == _SIGSYS:
        return Cause.FORBIDDEN
    return Cause.ENDED if report["code"] >= 0 else Cause.CRASHED


def _sealed(content: bytes) -> int:
    """A descriptor of memory with this content, which nobody can change any more."""
    import fcntl

    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(
        descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    )
    return descriptor
