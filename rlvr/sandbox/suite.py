"""Runs a test suite within a program's process. The function under test is not here: calls to it go to the owner.

So a suite sees what the function returns and nothing else: no code to look at, no object to change. It may say of
itself what it likes; what its owner believes is in `rlvr.rewards.test_suite`. A small stand-in for pytest is provided;
unittest is Python's own.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator
from socket import socket
from typing import Any

from rlvr.sandbox import frames, plain


def run(channel: socket, task: dict[str, Any], module: types.ModuleType) -> None:
    """Run a suite against the owner's function, and tell whether it passed."""
    module.__name__ = "suite"
    target = types.ModuleType(task["module"])
    for name in task["functions"]:
        function = _stand_in(channel, name)
        setattr(target, name, function)
        module.__dict__[name] = function
    sys.modules[target.__name__] = target
    sys.modules["pytest"] = _pytest()
    module.__dict__["pytest"] = sys.modules["pytest"]
    try:
        code = compile(task["code"], "<suite>", "exec", dont_inherit=True)
    except BaseException as error:
        frames.send(channel, {"suite": "compile", "why": plain.describe(error), "tests": 0})
        return
    tests = 0
    try:
        exec(code, module.__dict__)
        for name, test in _tests(module):
            tests += 1
            _run_one(name, test)
    except BaseException as error:
        frames.send(channel, {"suite": "failed", "why": plain.describe(error), "tests": tests})
        return
    frames.send(channel, {"suite": "passed", "why": "", "tests": tests})


def _stand_in(channel: socket, name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **named: Any) -> Any:
        frames.send(channel, {"call": name, "arguments": plain.encode(arguments), "named": plain.encode(named)})
        reply = frames.receive(channel)
        if "raised" in reply:
            kind = getattr(builtins, reply["raised"], None)
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                kind = Exception
            raise kind(reply["why"])
        return plain.decode(reply["value"])

    function.__name__ = function.__qualname__ = name
    return function


def _tests(module: types.ModuleType) -> Iterator[tuple[str, Callable[[], None]]]:
    import unittest

    for name, value in list(module.__dict__.items()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(value):
                yield name, _checked(test)
        elif isinstance(value, type) and name.startswith("Test"):
            for method in [method for method in dir(value) if method.startswith("test")]:
                yield method, getattr(value(), method)
        elif isinstance(value, types.FunctionType) and name.startswith("test"):
            yield name, value


def _checked(test: Any) -> Callable[[], None]:
    def run() -> None:
        test.debug()

    return run


def _run_one(name: str, test: Callable[..., None]) -> None:
    rows = getattr(test, "_rows", None)
    if rows is not None:
        for row in rows:
            test(**row)
        return
    missing = [p.name for p in inspect.signature(test).parameters.values() if p.default is p.empty]
    if missing:
        raise TypeError(f"{name} wants fixtures ({', '.join(missing)}), which there are none of")
    test()


def _pytest() -> types.ModuleType:
    """raises, approx, mark.parametrize, fail: what short suites use."""
    pytest = types.ModuleType("pytest")
    pytest.raises = _raises  # type: ignore[attr-defined]
    pytest.approx = _Approximately  # type: ignore[attr-defined]
    pytest.fail = _fail  # type: ignore[attr-defined]
    pytest.mark = types.SimpleNamespace(parametrize=_parametrize)  # type: ignore[attr-defined]
    return pytest


@contextlib.contextmanager
def _raises(expected: Any, match: str | None = None) -> Iterator[types.SimpleNamespace]:
    import re

    caught = types.SimpleNamespace(value=None, type=None)
    try:
        yield caught
    except expected as error:
        caught.value, caught.type = error, type(error)
        if match is not None and not re.search(match, str(error)):
            raise AssertionError(f"{error!r} does not match {match!r}") from None
        return
    raise AssertionError(f"did not raise {expected!r}")


def _fail(reason: str = "") -> None:
    raise AssertionError(reason)


class _Approximately:
    def __init__(self, value: Any, rel: float = 1e-6, abs: float = 1e-12) -> None:
        self._value, self._rel, self._abs = value, rel, abs

    def __eq__(self, other: object) -> bool:
        if isinstance(self._value, (list, tuple)):
            return (
                isinstance(other, (list, tuple))
                and len(other) == len(self._value)
                and all(
                    _Approximately(mine, self._rel, self._abs) == its
                    for mine, its in zip(self._value, other, strict=True)
                )
            )
        return isinstance(other, (int, float)) and math.isclose(
            self._value, other, rel_tol=self._rel, abs_tol=self._abs
        )

    __hash__ = None  # type: ignore[assignment]


def _parametrize(names: str | list[str], values: list[Any]) -> Callable[[Any], Any]:
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def mark(test: Any) -> Any:
        known = getattr(test, "_rows", [{}])
        test._rows = [
            {**row, **dict(zip(keys, value if len(keys) > 1 else (value,), strict=True))}
            for row in known
            for value in values
        ]
        return test

    return mark
