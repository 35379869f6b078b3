"""Questions that need computer algebra, asked of a child process that can be killed.

sympy and mpmath run in that child only, with a deadline and a memory limit for each question; the caller survives
whatever they do. No signals and no timeouts by thread, so it works in any thread, in Ray actors and under asyncio.
A process has up to two children: one computes with many digits, and starts in no time; the other has sympy and
math-verify, is started when it is first needed, and is asked nothing that `cheap_latex` refuses. After a kill the
next child starts at once, not when it is next needed. Must not know what the answers are used for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr.errors import DeadlineError, InfrastructureError
from rlvr.rewards import wire
from rlvr.rewards.worker import grading_environment

#: Processor time for one question; nothing that is worth an answer takes longer. Not of the clock: what else the
#: machine does must not turn a right answer into a wrong one.
TIMEOUT_S = 0.8
#: Of the clock, for the same. When it passes first, the machine is too busy, and there is no verdict.
PATIENCE_S = 20.0
#: Importing sympy and math-verify, on a busy machine.
START_TIMEOUT_S = 120.0
#: How often a child that is thinking is looked at.
_GLANCE_MS = 50
#: Beyond what the child holds after its imports.
MEMORY_MB = 300


class Exhausted(Exception):
    """The question used up its time or memory; the message says which."""


class _Child:
    """A child and how to have another one."""

    def __init__(self, imports: str) -> None:
        self._imports = imports
        self._ready = False
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            self._running()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            for attempt in (1, 2):
                process = self._running()
                try:
                    answer = self._exchange(process, question, TIMEOUT_S)
                except TimeoutError:
                    self._kill()
                    self._spawn()
                    raise Exhausted(f"took longer than {TIMEOUT_S:g} s") from None
                except (EOFError, OSError, ValueError) as error:
                    code = self._kill()
                    if attempt == 2:
                        raise InfrastructureError(f"the symbolic child ended twice ({code}): {error}") from None
                    continue
                if answer.get("exhausted"):
                    self._kill()
                    self._spawn()
                    raise Exhausted("ran out of memory")
                return answer
            raise InfrastructureError("unreachable")

    def _running(self) -> subprocess.Popen[bytes]:
        """The child, ready to be asked."""
        process = self._process
        if process is None or self._owner != os.getpid() or process.poll() is not None:
            if self._owner == os.getpid():
                self._kill()
            process = self._spawn()
        if not self._ready:
            try:
                deadline = time.monotonic() + START_TIMEOUT_S
                self._receive(process, lambda: time.monotonic() > deadline)
            except TimeoutError:
                self._kill()
                raise DeadlineError("a verifier", "the symbolic child", "import sympy", START_TIMEOUT_S) from None
            except (EOFError, OSError, ValueError) as error:
                code = self._kill()
                raise InfrastructureError(f"the symbolic child ended while it started ({code}): {error}") from None
            self._ready = True
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start a child, without waiting until it is ready."""
        self._owner, self._ready = os.getpid(), False
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rlvr.rewards.symbolic_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=grading_environment(),
                bufsize=0,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot start the symbolic child: {error}") from None
        self._process = process
        with contextlib.suppress(BrokenPipeError):  # it has ended already: found out when it is asked
            self._send(process, {"memory_mb": MEMORY_MB, "imports": self._imports})
        return process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        if process.stdin is None:
            raise InfrastructureError("the symbolic child has no pipe")
        process.stdin.write(wire.encode(message))

    @staticmethod
    def _receive(process: subprocess.Popen[bytes], expired: Callable[[], bool]) -> dict[str, Any]:
        if process.stdout is None:
            raise InfrastructureError("the symbolic child has no pipe")
        header = _read(process.stdout.fileno(), wire.HEADER.size, expired)
        return wire.decode(_read(process.stdout.fileno(), wire.body_length(header), expired))

    def _exchange(self, process: subprocess.Popen[bytes], message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        begun, cpu_begun = time.monotonic(), processor_time(process.pid)

        def expired() -> bool:
            clock, cpu = time.monotonic() - begun, processor_time(process.pid)
            if cpu is None or cpu_begun is None:
                return clock > timeout_s
            if clock > PATIENCE_S and cpu - cpu_begun < timeout_s:
                self._kill()
                raise DeadlineError("a verifier", "the symbolic child", "get enough of the processor", PATIENCE_S)
            return cpu - cpu_begun > timeout_s

        self._send(process, message)
        return self._receive(process, expired)

    def _kill(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return process.wait()


def _read(descriptor: int, length: int, expired: Callable[[], bool]) -> bytes:
    chunks: list[bytes] = []
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while length:
        if not poll.poll(_GLANCE_MS):
            if expired():
                raise TimeoutError
            continue
        chunk = os.read(descriptor, length)
        if not chunk:
            raise EOFError("it closed its pipe")
        chunks.append(chunk)
        length -= len(chunk)
    return b"".join(chunks)


def processor_time(process: int) -> float | None:
    """Seconds of processor time that a process has used; None where /proc does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_NUMBERS = _Child("mpmath")
_ALGEBRA = _Child("sympy")


def installed() -> bool:
    """Whether what the child needs can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("mpmath", "sympy", "math_verify"))


def start() -> None:
    """Start the child now, so that no completion waits for it. Raises InfrastructureError, DeadlineError."""
    _NUMBERS.start()


def agree(one: list[Any], other: list[Any], digits: int) -> bool | None:
    """Whether two trees (`expressions.to_plain`) agree to so many digits, at several points if they have variables.

    None: they cannot be evaluated. Raises Exhausted, InfrastructureError.
    """
    return _answer(_NUMBERS.ask({"do": "agree", "one": one, "other": other, "digits": digits}))


_LARGE = re.compile(r"[0-9]{13}|\^\s*\{?\s*-?[0-9]{3}|\^\s*\{[^{}]*\^|!|\\binom")
_MAX_LATEX = 400
_MAX_BRACES = 8


def cheap_latex(text: str) -> bool:
    """Whether computer algebra may have an expression: no large numbers and powers, no factorials, little nesting."""
    if len(text) > _MAX_LATEX or _LARGE.search(text):
        return False
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest <= _MAX_BRACES


def equal_latex(one: str, other: str) -> bool | None:
    """Whether two expressions in LaTeX that we do not read are equal, as sympy has it. Raises as `agree`."""
    return _answer(_ALGEBRA.ask({"do": "latex", "one": one, "other": other}))


def irreducible(tree: list[Any]) -> bool | None:
    """Whether a polynomial has no factors over the rationals but itself and numbers; None: not a polynomial."""
    return _answer(_ALGEBRA.ask({"do": "irreducible", "one": tree}))


def child_ids() -> list[int]:
    """Process ids of the children that run: for tests and for measuring their memory."""
    processes = [child._process for child in (_NUMBERS, _ALGEBRA)]
    return [process.pid for process in processes if process is not None and process.poll() is None]


def _answer(reply: dict[str, Any]) -> bool | None:
    value = reply.get("answer")
    if value is not None and not isinstance(value, bool):
        raise InfrastructureError(f"the symbolic child answered {value!r}")
    return value
