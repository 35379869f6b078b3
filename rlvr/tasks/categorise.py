"""Categories for problems that have none: difficulty, operators used, or a function of the user's own.

Works on the reference solution and the data set's record; must not know how a problem is shown.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace

from rlvr.errors import ConfigError
from rlvr.tasks.rows import BadRows, BadValue, Row
from rlvr.tasks.task import Problem

MOST_STEPS = 8  # longer solutions share a category: there are few of them, and a balanced sampler would repeat them
_ANNOTATION = re.compile(r"<<([^<>]*)>>")
# An operator stands between two operands; a leading minus is a sign. "x" counts between digits only. The escapes
# are the typographic signs for times, divided by and minus.
_OPERATOR = re.compile("(?<=[\\d)%])\\s*(?:([-+*/\u00d7\u00f7\u2212])|([xX])(?=\\s*[\\d($]))")
_NAMES = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_NAMES |= {"\u2212": "subtract", "\u00d7": "multiply", "\u00f7": "divide"}
_ORDER = ("add", "subtract", "multiply", "divide")

Categorise = Callable[[Problem], str]


def categorise(problems: list[Problem], how: str, bad: BadRows) -> list[Problem]:
    """The problems with the categories that task.categorise asks for; those for which it fails go to `bad`."""
    if not how:
        return problems
    function = _function(how)
    kept = []
    for problem in problems:
        try:
            category = function(problem)
        except BadValue as error:
            bad.add(Row(problem.row, problem.file, problem.line), str(error))
        else:
            kept.append(replace(problem, category=category))
    return kept


def difficulty(problem: Problem) -> str:
    """Number of steps of the reference solution: its <<...>> calculations or, without any, its lines."""
    solution = _solution(problem)
    steps = len(_ANNOTATION.findall(solution)) or sum(bool(line.strip()) for line in solution.splitlines())
    if steps >= MOST_STEPS:
        return f"{MOST_STEPS} steps or more"
    return f"{steps} step{'' if steps == 1 else 's'}"


def operators(problem: Problem) -> str:
    """The set of operators that the reference solution uses, like "add+multiply", or "none"."""
    solution = _solution(problem)
    # Algebra is annotated with bare results, <<26=26>>: then the text itself has to say.
    used = _operators(" ".join(_ANNOTATION.findall(solution))) or _operators(_ANNOTATION.sub("", solution))
    return "+".join(name for name in _ORDER if name in used) or "none"


def _operators(text: str) -> set[str]:
    return {_NAMES[found.group(1)] if found.group(1) else "multiply" for found in _OPERATOR.finditer(text)}


def _solution(problem: Problem) -> str:
    """The solution as the data set has it, annotations included, without the line that states the answer."""
    for value in problem.row.values():
        if isinstance(value, str) and _ANNOTATION.search(value):
            return value
    if not problem.solution:
        raise BadValue(
            "has no worked solution for task.categorise to look at; name its column with task.fields.solution"
        )
    return "\n".join(line for line in problem.solution.splitlines() if not line.lstrip().startswith("####"))


_BUILT_IN: dict[str, Categorise] = {"difficulty": difficulty, "operators": operators}


def _function(how: str) -> Categorise:
    if how in _BUILT_IN:
        return _BUILT_IN[how]
    module_name, colon, name = how.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"task.categorise={how!r} is neither {' nor '.join(_BUILT_IN)} nor module:function")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # `python -m` has it there, the `rlvr` command has not
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"task.categorise={how!r} cannot be imported from {os.getcwd()}: {error}") from error
    if not callable(function):
        raise ConfigError(f"task.categorise={how!r} is no function")

    def call(problem: Problem) -> str:
        try:
            category = function(dict(problem.row))
        except Exception as error:  # whatever the user's function raises is about this row
            raise BadValue(f"task.categorise={how} raised {type(error).__name__}: {error}") from error
        if not isinstance(category, str) or not category:
            raise BadValue(f"task.categorise={how} returned {category!r}, expected text")
        return category

    return call
