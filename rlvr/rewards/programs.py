"""The sandbox of this process: what verifiers of code run programs in, and what comes back, as plain data.

One sandbox for programs, a second one for what a test suite tests. Started once, measured by probes, refused below
`min_level`. Programs are told inputs only; whoever compares has the expected values. Must not know what is right.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

from rlvr.errors import ConfigError, InfrastructureError
from rlvr.rewards.judgement import clip
from rlvr.sandbox import plain
from rlvr.sandbox.levels import Level
from rlvr.sandbox.owner import Cause, Limits, Program, Ran, Sandbox
from rlvr.sandbox.probes import measure

R = TypeVar("R")

MAX_CODE = 100_000
_MAX_SUITE_CALLS = 1000
_SHOWN = 120


@dataclass(frozen=True)
class Settings:
    """The configuration's section reward.sandbox."""

    min_level: str = Level.CONFINED.value
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call of a function of the program."""

    name: str
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def as_node(self) -> list[Any]:
        """The call as the sandbox sends it. Raises NotPlain."""
        return [self.name, plain.encode(self.arguments), plain.encode(self.named)]

    def __str__(self) -> str:
        parts = [repr(value) for value in self.arguments] + [f"{name}={value!r}" for name, value in self.named.items()]
        return clip(f"{self.name}({', '.join(parts)})", _SHOWN)


@dataclass(frozen=True)
class Result:
    """What a call gave: a value, or why there is none."""

    value: Any = None
    why: str = ""

    @property
    def returned(self) -> bool:
        return not self.why


@dataclass(frozen=True)
class Outcome:
    """A program that has run."""

    ran: Ran
    failed: str = ""
    """compile or run: at what it failed before any call."""
    why: str = ""
    results: tuple[Result, ...] = ()
    printed: str | None = ""
    """What a script printed; None: too much."""
    tampering: str = ""


@dataclass(frozen=True)
class SuiteOutcome:
    """A test suite that has run."""

    passed: bool
    why: str
    tests: int
    calls: tuple[tuple[Call, Result], ...]
    tampering: str = ""


class _Place:
    """The sandboxes of this process."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.lock = threading.RLock()
        self.owner = 0
        self.level: Level | None = None
        self.sandboxes: list[Sandbox] = []

    def ready(self) -> list[Sandbox]:
        with self.lock:
            if self.level is None or self.owner != os.getpid():
                self.sandboxes = [Sandbox(self.settings.packages), Sandbox(self.settings.packages)]
                self.owner = os.getpid()
                self.level = self._measured()
            return self.sandboxes

    def _measured(self) -> Level:
        sandbox = self.sandboxes[0]
        try:
            sandbox.start()
            found = measure(sandbox)
        except InfrastructureError as error:
            sandbox.close()
            raise ConfigError(f"programs cannot be run here: {error}") from None
        least = Level(self.settings.min_level)
        if not found.level.reaches(least):
            sandbox.close()
            raise ConfigError(
                f"reward.sandbox.min_level: programs would run at the level {found.level.value!r} here, "
                f"{least.value!r} is asked for. What was reached: "
                f"{'; '.join(found.failures()) or 'the view of other processes'}. See docs/sandbox.md"
            )
        return found.level


_PLACE = _Place()


def configure(min_level: str = Level.CONFINED.value, packages: Sequence[str] = ()) -> None:
    """Say how programs are to be run, before the first one. Raises ConfigError."""
    if min_level not in list(Level):
        raise ConfigError(f"reward.sandbox.min_level: {min_level!r} is not one of {', '.join(Level)}")
    settings = Settings(min_level, tuple(packages))
    with _PLACE.lock:
        if settings != _PLACE.settings:
            close()
            _PLACE.settings = settings


def shown(value: Any, limit: int = 60) -> str:
    """A program's value for people to read. Whatever it is, this returns."""
    try:
        return clip(repr(value), limit)
    except ValueError:  # a whole number with more digits than Python writes
        return f"{type(value).__name__} too large to show"


def settings_of(reward_config: Any) -> dict[str, Any]:
    """The configuration's section reward.sandbox as arguments of `configure`."""
    sandbox = reward_config.sandbox
    return {"min_level": str(sandbox.min_level), "packages": [str(name) for name in sandbox.packages]}


def start() -> None:
    """Start the sandbox and measure its level. Raises ConfigError when that is not enough."""
    _PLACE.ready()


def level() -> str:
    """The measured level."""
    _PLACE.ready()
    return "" if _PLACE.level is None else _PLACE.level.value


def close() -> None:
    """End the sandboxes of this process; the next program starts them anew."""
    with _PLACE.lock:
        for sandbox in _PLACE.sandboxes:
            sandbox.close()
        _PLACE.sandboxes, _PLACE.level = [], None


def _once_more(run: Callable[..., R]) -> Callable[..., R]:
    """When the sandbox itself fails, try once more with a fresh one."""

    @wraps(run)
    def again(*arguments: Any) -> R:
        try:
            return run(*arguments)
        except InfrastructureError:
            for sandbox in _PLACE.sandboxes:
                sandbox.close()
            return run(*arguments)

    return again


@_once_more
def run_calls(code: str, calls: Sequence[Call], limits: Limits) -> Outcome:
    """Load a program and call its functions, in order. Results are missing from where it ended."""
    sandbox = _PLACE.ready()[0]
    results: list[Result] = []
    failed, why, tampering = "", "", ""
    with sandbox.program(limits) as program:
        program.send({"do": "calls", "code": code})
        program.send({"calls": [call.as_node() for call in calls]})
        try:
            head = program.receive()
            failed, why = _failure(head)
            if not failed:
                for _ in calls:
                    results.append(_result(program.receive()))
                tampering = _unasked(program)
        except EOFError:
            pass
        except ValueError as error:
            tampering = f"sent something else than a result: {error}"
    ran = _ended(program)
    return Outcome(ran, failed, why, tuple(results), tampering=tampering or _attack(ran))


@_once_more
def run_script(code: str, stdin: str, limits: Limits) -> Outcome:
    """Run a program with `stdin` as its standard input."""
    sandbox = _PLACE.ready()[0]
    failed, why, tampering = "", "", ""
    with sandbox.program(limits, stdin.encode()) as program:
        program.send({"do": "script", "code": code})
        output = program.printed()
        if output is not None:
            try:
                failed, why = _failure(program.receive())
            except EOFError:
                failed, why = "run", "it ended itself"
            except ValueError as error:
                tampering = f"sent something else than a result: {error}"
    ran = _ended(program)
    printed = None if output is None else output.decode("utf-8", "replace")
    return Outcome(ran, failed, why, printed=printed, tampering=tampering or _attack(ran))


@_once_more
def run_suite(suite: str, names: Sequence[str], target: str, limits: Limits) -> SuiteOutcome:
    """Run a test suite against a program. The suite sees what the program's functions return, nothing else of it."""
    tester, tested = _PLACE.ready()
    done: list[tuple[Call, Result]] = []
    tampering = ""
    verdict: dict[str, Any] = {"suite": "failed", "why": "it ended before its tests did", "tests": 0}
    with tester.program(limits) as asking, tested.program(replace(limits, wall_s=2 * limits.wall_s)) as answering:
        asking.send({"do": "suite", "code": suite, "functions": list(names), "module": "solution"})
        answering.send({"do": "calls", "code": target})
        try:
            if _failure(answering.receive())[0]:
                raise InfrastructureError("a program under test does not load")
            while "suite" not in (message := asking.receive()):
                call = _call_of(message, names)
                if len(done) == _MAX_SUITE_CALLS:
                    verdict["why"] = f"more than {_MAX_SUITE_CALLS} calls"
                    break
                result = _ask(answering, call)
                done.append((call, result))
                asking.send(_reply(result))
            else:
                verdict = _suite_verdict(message)
        except EOFError:
            pass
        except ValueError as error:
            tampering = f"sent something else than a call: {error}"
    ran = _ended(asking)
    if ran.cause in (Cause.CPU, Cause.WALL):
        verdict["why"] = ran.cause.value
    return SuiteOutcome(
        verdict["suite"] == "passed" and not tampering,
        verdict["why"],
        verdict["tests"],
        tuple(done),
        tampering or _attack(ran),
    )


def _ask(answering: Program, call: Call) -> Result:
    answering.send({"calls": [call.as_node()]})
    try:
        return _result(answering.receive())
    except EOFError:
        return Result(why="RuntimeError: the function did not return")


def _call_of(message: dict[str, Any], names: Sequence[str]) -> Call:
    name, arguments, named = message.get("call"), _decoded(message.get("arguments")), _decoded(message.get("named"))
    if type(name) is not str or name not in names or type(arguments) is not tuple or type(named) is not dict:
        raise ValueError("not a call")
    if not all(type(key) is str for key in named):
        raise ValueError("not a call")
    return Call(name, arguments, named)


def _reply(result: Result) -> dict[str, Any]:
    if result.returned:
        return {"value": plain.encode(result.value)}
    kind, _, text = result.why.partition(": ")
    return {"raised": kind, "why": text}


def _suite_verdict(message: dict[str, Any]) -> dict[str, Any]:
    if message["suite"] not in ("passed", "failed", "compile") or type(message.get("tests")) is not int:
        raise ValueError("not a verdict")
    return {"suite": message["suite"], "why": _text(message.get("why")), "tests": message["tests"]}


def _failure(head: dict[str, Any]) -> tuple[str, str]:
    if head.get("loaded") is True:
        return "", ""
    if head.get("failed") not in ("compile", "run"):
        raise ValueError("neither loaded nor failed")
    return head["failed"], _text(head.get("why"))


def _result(message: dict[str, Any]) -> Result:
    if "value" in message:
        return Result(_decoded(message["value"]))
    if "raised" in message:
        return Result(why=_text(message.get("why")))
    if "odd" in message:
        return Result(why=f"returned {_text(message['odd'])}, which is no plain data")
    raise ValueError("not a result")


def _decoded(node: Any) -> Any:
    try:
        return plain.decode(node)
    except (TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"not an encoded value: {type(error).__name__}") from None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("not a text")
    # It is shown on terminals and kept in UTF-8: no control characters, no half surrogate pairs.
    return clip(value if value.isprintable() else value.encode("unicode_escape").decode(), 2 * _SHOWN) or "no reason"


def _unasked(program: Program) -> str:
    """Whether it has sent more than it was asked for."""
    poll = select.poll()
    poll.register(program.channel, select.POLLIN)
    if poll.poll(0) and program.channel.recv(1):
        return "sent results that it was not asked for"
    return ""


def _ended(program: Program) -> Ran:
    if program.ran is None:
        raise InfrastructureError("a program has not ended")
    return program.ran


def _attack(ran: Ran) -> str:
    return f"it {ran.cause.value}" if ran.cause is Cause.FORBIDDEN else ""
