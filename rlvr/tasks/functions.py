"""Generated programming problems: tiny Python functions, each with unit tests. For trying out rewards of code.

A problem is a kind of function with its numbers ("the sum of a and b, plus 7"). A fifth of the numbers of each kind is
held out, so that no held-out function is in the training split under whatever name. The reference is the tests, as the
verifier `python` reads them; exemplars show the function.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

from rlvr.config import Config, FunctionsConfig
from rlvr.errors import ConfigError
from rlvr.tasks.few_shot import NEXT_PROBLEM
from rlvr.tasks.rows import BadRows
from rlvr.tasks.task import Problem, Splits

#: Functions hold no blank line.
STOP = ("\n\n", NEXT_PROBLEM)
_HELD_OUT = 5  # one in so many
_NAMES = ("f", "g", "compute", "solve", "result", "answer", "make", "get")


@dataclass(frozen=True)
class _Kind:
    parameters: str
    phrase: str
    """With {k} and {m} for the numbers of the problem."""
    expression: str
    function: Callable[..., Any]
    """The same, of k, m and the parameters."""
    draw: Callable[[Random], list[Any]]
    two: bool = False
    """Whether it has both k and m."""


def _number(random: Random) -> list[Any]:
    return [random.randint(-50, 50)]


def _numbers(random: Random) -> list[Any]:
    return [random.randint(-50, 50), random.randint(-50, 50)]


def _list(random: Random) -> list[Any]:
    return [[random.randint(-5, 50) for _ in range(random.randint(0, 6))]]


def _word(random: Random) -> list[Any]:
    return ["".join(random.choices("abcde", k=random.randint(0, 4)))]


_KINDS = {
    "add": _Kind("a, b", "the sum of a and b, plus {k}", "a + b + {k}", lambda k, m, a, b: a + b + k, _numbers),
    "subtract": _Kind("a", "a minus {k}", "a - {k}", lambda k, m, a: a - k, _number),
    "multiply": _Kind("a", "{k} times a", "{k} * a", lambda k, m, a: k * a, _number),
    "line": _Kind("a", "{m} times a, plus {k}", "{m} * a + {k}", lambda k, m, a: m * a + k, _number, two=True),
    "remainder": _Kind(
        "a", "the remainder of a divided by {k}", "a % {k}", lambda k, m, a: a % k, lambda r: [r.randint(0, 500)]
    ),
    "larger": _Kind("a", "the larger of a and {k}", "max(a, {k})", lambda k, m, a: max(a, k), _number),
    "greater": _Kind("a", "whether a is greater than {k}", "a > {k}", lambda k, m, a: a > k, _number),
    "count": _Kind(
        "xs",
        "how many numbers in the list xs are greater than {k}",
        "sum(x > {k} for x in xs)",
        lambda k, m, xs: sum(x > k for x in xs),
        _list,
    ),
    "each": _Kind(
        "xs",
        "the list of the numbers in xs, each plus {k}",
        "[x + {k} for x in xs]",
        lambda k, m, xs: [x + k for x in xs],
        _list,
    ),
    "repeat": _Kind("s", "the text s repeated {k} times", "s * {k}", lambda k, m, s: s * k, _word),
}
KINDS = tuple(_KINDS)


def load(config: Config, bad: BadRows) -> Splits:
    """The problems that task.functions describes, generated from run.seed. Kinds share each split equally.

    Raises ConfigError when the settings make no sense, or there are fewer problems than asked for.
    """
    settings = config.task.functions
    unknown = [kind for kind in settings.kinds if kind not in _KINDS]
    if unknown or len(set(settings.kinds)) != len(settings.kinds):
        raise ConfigError(f"task.functions.kinds: {list(settings.kinds)} must be different ones of {', '.join(KINDS)}")
    if settings.tests < 2:
        raise ConfigError("task.functions.tests must be at least 2: one shown, one hidden")
    return Splits(_split(settings, config.run.seed, held_out=False), _split(settings, config.run.seed, held_out=True))


def _split(settings: FunctionsConfig, seed: int, *, held_out: bool) -> list[Problem]:
    split, size = ("test", settings.test_size) if held_out else ("train", settings.train_size)
    random = Random(f"functions/{seed}/{split}")
    drawn: list[tuple[str, tuple[int, int], str]] = []
    for kind in settings.kinds or KINDS:
        for k in range(2, 42):
            for m in range(2, 12) if _KINDS[kind].two else (0,):
                if (_rank(kind, k, m, seed) % _HELD_OUT == 0) is held_out:
                    drawn += [(kind, (k, m), name) for name in _NAMES]
    random.shuffle(drawn)
    by_kind = {kind: [one for one in drawn if one[0] == kind] for kind in settings.kinds or KINDS}
    turns = sorted((turn, kind) for kind, ones in by_kind.items() for turn in range(len(ones)))
    problems = [by_kind[kind][turn] for turn, kind in turns][:size]
    if len(problems) < size:
        raise ConfigError(
            f"task.functions.{split}_size={size}, but there are only {len(problems)} different problems: "
            "lower it, or add kinds"
        )
    return [_problem(*one, settings.tests, split, number, random) for number, one in enumerate(problems, start=1)]


def _rank(kind: str, k: int, m: int, seed: int) -> int:
    return int.from_bytes(blake2b(f"{seed}/{kind}/{k}/{m}".encode(), digest_size=8).digest(), "big")


def _problem(
    kind: str, numbers: tuple[int, int], name: str, tests: int, split: str, number: int, random: Random
) -> Problem:
    asked = _KINDS[kind]
    k, m = numbers
    cases: list[dict[str, Any]] = []
    for place in range(tests):
        arguments = asked.draw(random)
        cases.append({"args": arguments, "expected": asked.function(k, m, *arguments), "hidden": place >= tests // 2})
    return Problem(
        id=f"{split}/{number}",
        question=f"Write a Python function {name}({asked.parameters}) that returns {asked.phrase.format(k=k, m=m)}.",
        reference=json.dumps({"function": name, "tests": cases}),
        answer=f"def {name}({asked.parameters}):\n    return {asked.expression.format(k=k, m=m)}",
        category=kind,
        file=f"functions/{split}",
        line=number,
        row={"kind": kind, "numbers": [k, m]},
    )
