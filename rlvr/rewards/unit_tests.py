"""Unit tests as data: what a program is called with, and what must come of it. Nothing of it is ever evaluated.

Three ways to write them, in the reference or a column of the data set:

    assert add(1, 2) == 3                                      lines, or a JSON list of such lines
    {"function": "add", "tests": [{"args": [1, 2], "expected": 3, "weight": 2, "hidden": true}, ...]}
    {"tests": [{"stdin": "1 2\\n", "stdout": "3\\n"}, ...]}

With {"solution": "def add...", "random": {"count": 8, "args": [{"int": [-9, 9]}, ...]}} tests with random inputs are
added, hidden; what they expect is what the solution returns. Must not know how programs are run.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from rlvr.rewards.judgement import clip
from rlvr.rewards.programs import Call, Result
from rlvr.sandbox import plain

_MAX_TEXT = 1_000_000
_MAX_TESTS = 1000


class BadTests(ValueError):
    """The tests of a problem cannot be read; the message says why."""


@dataclass(frozen=True)
class UnitTest:
    """One test: a call, or a standard input."""

    call: Call | None
    stdin: str
    expected: Any
    how: str = "same"
    """same | truth | falsity | close (expected: value and tolerances), perhaps after a builtin, as in set:same."""
    weight: float = 1.0
    hidden: bool = False

    def passes(self, result: Result, tolerance: float) -> bool:
        """Whether a result is the expected one."""
        if not result.returned:
            return False
        apply, _, how = self.how.rpartition(":")
        value = result.value
        if apply:
            try:
                value = _APPLIED[apply](value)
            except (TypeError, ValueError):
                return False
        if how == "truth":
            return bool(value)
        if how == "falsity":
            return not value
        if how == "close":
            wanted, relative, absolute = self.expected
            if type(value) not in (int, float) or type(value) is bool:
                return False
            try:
                return math.isclose(value, wanted, rel_tol=relative, abs_tol=absolute)
            except OverflowError:  # a whole number beyond all floats
                return False
        return plain.same(value, self.expected, tolerance)


_APPLIED: dict[str, Callable[[Any], Any]] = {
    "set": set, "sorted": sorted, "list": list, "tuple": tuple, "len": len, "sum": sum, "frozenset": frozenset,
}  # fmt: skip


@dataclass(frozen=True)
class Randomly:
    """Calls with random inputs; what they must return is asked of the solution."""

    solution: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class UnitTests:
    """All tests of a problem."""

    tests: tuple[UnitTest, ...]
    random: Randomly | None = None
    solution: str = ""


@lru_cache(maxsize=1024)
def read_tests(text: str) -> UnitTests:
    """The tests that a reference states. Raises BadTests."""
    if len(text) > _MAX_TEXT:
        raise BadTests(f"{len(text)} characters, over the limit of {_MAX_TEXT}")
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        try:
            data = json.loads(stripped)
        except (ValueError, RecursionError) as error:
            raise BadTests(f"not JSON: {error}") from None
        return _from_json(data, stripped)
    lines = [line for line in stripped.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return _checked(UnitTests(tuple(_from_assert(line) for line in lines)))


def _from_json(data: Any, text: str) -> UnitTests:
    if isinstance(data, list):
        data = {"tests": data}
    unknown = set(data) - {"function", "tests", "random", "solution", "suite"}
    if unknown:
        raise BadTests(f"unknown keys: {', '.join(sorted(map(str, unknown)))}")
    function, solution = data.get("function", ""), data.get("solution", "")
    if not isinstance(function, str) or not isinstance(solution, str) or not isinstance(data.get("tests", []), list):
        raise BadTests("function and solution are texts, tests is a list")
    tests = tuple(_from_object(item, function) for item in data.get("tests", []))
    random = None
    if "random" in data:
        if not solution or not function:
            raise BadTests("random inputs need function and solution")
        random = Randomly(solution, _random_calls(data["random"], function, text))
    return _checked(UnitTests(tests, random, solution))


def _checked(tests: UnitTests) -> UnitTests:
    if not tests.tests and tests.random is None:
        raise BadTests("there are no tests")
    if len(tests.tests) > _MAX_TESTS:
        raise BadTests(f"{len(tests.tests)} tests, over the limit of {_MAX_TESTS}")
    if len({test.call is None for test in tests.tests}) > 1:
        raise BadTests("tests with calls and tests with a standard input cannot be mixed")
    return tests


def _from_object(item: Any, function: str) -> UnitTest:
    if isinstance(item, str):
        return _from_assert(item)
    if not isinstance(item, dict):
        raise BadTests(f"a test is a {type(item).__name__}")
    weight, hidden = item.get("weight", 1.0), item.get("hidden", False)
    number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not number or not math.isfinite(weight) or weight <= 0 or not isinstance(hidden, bool):
        raise BadTests("weight is a number above 0, hidden true or false")
    keys = set(item) - {"weight", "hidden"}
    if keys == {"stdin", "stdout"} and isinstance(item["stdin"], str) and isinstance(item["stdout"], str):
        return UnitTest(None, item["stdin"], item["stdout"], weight=weight, hidden=hidden)
    if not keys <= {"args", "kwargs", "expected", "function"} or "expected" not in item:
        raise BadTests(f"a test has args, kwargs and expected, or stdin and stdout, not {', '.join(sorted(keys))}")
    name, arguments, named = item.get("function", function), item.get("args", []), item.get("kwargs", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, list) or not isinstance(named, dict):
        raise BadTests("args is a list, kwargs an object, and function must be named")
    return UnitTest(Call(name, tuple(arguments), named), "", item["expected"], weight=weight, hidden=hidden)


def _from_assert(line: str) -> UnitTest:
    shown = clip(line.strip(), 100)
    try:
        module = ast.parse(line.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadTests(f"not Python: {shown}") from None
    if len(module.body) != 1 or not isinstance(module.body[0], ast.Assert):
        raise BadTests(f"not an assert: {shown}")
    test = module.body[0].test
    try:
        return _from_expression(test)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise BadTests(f"not of the form `assert call(literals) == literal`: {shown}") from None


def _from_expression(test: ast.expr) -> UnitTest:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        apply, call = _call(test.operand)
        return UnitTest(call, "", None, f"{apply}falsity")
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(test.ops[0], (ast.Eq, ast.Is)):
            try:
                apply, call = _call(left)
                expected = _literal(right)
            except (ValueError, TypeError):
                apply, call = _call(right)
                expected = _literal(left)
            return UnitTest(call, "", expected, f"{apply}same")
        if isinstance(test.ops[0], (ast.Lt, ast.LtE)) and _is_call(left, "abs"):
            inner = left.args[0]  # type: ignore[attr-defined]
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub):
                apply, call = _call(inner.left)
                return UnitTest(call, "", (_literal(inner.right), 0.0, float(_literal(right))), f"{apply}close")
        raise ValueError("comparison")
    if isinstance(test, ast.Call) and ast.unparse(test.func) in ("math.isclose", "isclose") and len(test.args) == 2:
        apply, call = _call(test.args[0])
        options = {keyword.arg: float(_literal(keyword.value)) for keyword in test.keywords}
        close = (_literal(test.args[1]), options.pop("rel_tol", 1e-9), options.pop("abs_tol", 0.0))
        if options:
            raise ValueError("options")
        return UnitTest(call, "", close, f"{apply}close")
    apply, call = _call(test)
    return UnitTest(call, "", None, f"{apply}truth")


def _literal(node: ast.expr) -> Any:
    value = ast.literal_eval(node)
    plain.encode(value)
    return value


def _is_call(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name and len(node.args) == 1
    )


def _call(node: ast.expr) -> tuple[str, Call]:
    """A call with literals, perhaps within one of the builtins that may be applied to its result."""
    if not isinstance(node, ast.Call):
        raise ValueError("not a call")
    for name in _APPLIED:
        if _is_call(node, name) and isinstance(node.args[0], ast.Call) and not node.keywords:
            return f"{name}:", _call(node.args[0])[1]
    name = ast.unparse(node.func)
    if not all(part.isidentifier() for part in name.replace("()", "").split(".")):
        raise ValueError("not a name")
    arguments = tuple(_literal(argument) for argument in node.args)
    named = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords if keyword.arg}
    if len(named) != len(node.keywords):
        raise ValueError("**")
    return "", Call(name.replace("()", ""), arguments, named)


def _random_calls(spec: Any, function: str, text: str) -> tuple[Call, ...]:
    """The same for every completion of a problem, and for a replay: seeded by the reference itself."""
    if not isinstance(spec, dict) or set(spec) != {"count", "args"} or not isinstance(spec["args"], list):
        raise BadTests("random has count and args")
    count = spec["count"]
    if type(count) is not int or not 1 <= count <= _MAX_TESTS:
        raise BadTests(f"random.count is between 1 and {_MAX_TESTS}")
    random = Random(hashlib.sha256(text.encode("utf-8", "replace")).digest())
    try:
        return tuple(Call(function, tuple(_draw(random, kind) for kind in spec["args"])) for _ in range(count))
    except (TypeError, ValueError, KeyError, IndexError, RecursionError) as error:
        raise BadTests(f"random.args: {error}") from None


def _draw(random: Random, kind: dict[str, Any]) -> Any:
    if "int" in kind:
        return random.randint(*kind["int"])
    if "float" in kind:
        return random.uniform(*kind["float"])
    if "bool" in kind:
        return random.random() < 0.5
    if "choice" in kind:
        return random.choice(kind["choice"])
    if "str" in kind:
        return "".join(random.choices(kind.get("of", string.ascii_lowercase), k=random.randint(*kind["str"])))
    if "list" in kind:
        return [_draw(random, kind["list"]) for _ in range(min(random.randint(*kind["size"]), _MAX_TESTS))]
    raise ValueError(f"none of int, float, bool, choice, str and list in {kind}")
