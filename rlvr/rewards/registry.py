"""Verifiers by name: `@reward("name", version="1")` registers one, `module:function` names a user's own.

Everything that can be wrong with a name or its options is found here, at start, as a ConfigError that names
the key; nothing of it is left for grading time. Must not know how or where verifiers run.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rlvr.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_REGISTRY: dict[str, Verifier] = {}
_BUILTIN_MODULES = (
    "rlvr.rewards.numeric_answer",
    "rlvr.rewards.math_answer",
    "rlvr.rewards.worked_steps",
    "rlvr.rewards.answer_form",
    "rlvr.rewards.answer_format",
    "rlvr.rewards.python",
    "rlvr.rewards.test_suite",
)


@dataclass(frozen=True)
class Verifier:
    """A function `f(sample, **options) -> Verdict | Part | float | None` and how it is called in verdicts."""

    name: str
    version: str
    function: Callable[..., Any]
    check: Callable[..., None] | None = None
    """Called with the options at start; raises ValueError when their values make no sense."""
    prepare: Callable[[], None] | None = None
    """Called once in each grading process before the first completion: what would make that one slow."""
    level: Callable[[], str] | None = None
    """Asked once after `prepare`: how strongly what it runs is confined. None: it runs nothing of a completion's."""
    source: str = ""
    """Source text of a user's function: part of its identity, as nobody counts up its version."""

    def identity(self, options: Mapping[str, Any]) -> str:
        """`name@version#hash`: two verdicts with the same identity were judged by the same rules."""
        text = json.dumps([self.source, dict(options)], sort_keys=True, default=repr)
        return f"{self.name}@{self.version}#{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"


def reward(
    name: str,
    *,
    version: str = "1",
    check: Callable[..., None] | None = None,
    prepare: Callable[[], None] | None = None,
    level: Callable[[], str] | None = None,
) -> Callable[[F], F]:
    """Register a verifier. `version` must change whenever the function may judge something differently.

    Raises ValueError when another function has the name.
    """

    def register(function: F) -> F:
        known = _REGISTRY.get(name)
        if known is not None and known.function.__qualname__ != function.__qualname__:
            raise ValueError(f"a verifier named {name!r} exists already: {known.function.__module__}")
        _REGISTRY[name] = Verifier(name, version, function, check, prepare, level)
        return function

    return register


def names() -> list[str]:
    """Names of the registered verifiers."""
    for module in _BUILTIN_MODULES:
        importlib.import_module(module)
    return sorted(_REGISTRY)


def resolve(name: str, key: str) -> Verifier:
    """The verifier called `name`, or the user's `module:function`.

    `key` is where the name stands in the configuration, e.g. "reward.criteria.answer.verifier".
    Raises ConfigError.
    """
    if ":" in name:
        return _user_function(name, key)
    known = names()
    if name in known:
        return _REGISTRY[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise ConfigError(
        f"{key}: there is no verifier {name!r}.{hint} Known: {', '.join(known)}; or name your own as module:function."
    )


def _user_function(name: str, key: str) -> Verifier:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{key}: {name!r} is not of the form module:function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise ConfigError(
                f"{key}: there is no module {missing!r}. It is looked for in the folder that the run was started in, "
                "in PYTHONPATH and among the installed packages."
            ) from None
        raise ConfigError(f"{key}: the module {module_name!r} needs {missing!r}, which is not installed") from None
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"{key}: importing {module_name!r} raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        ) from None
    function: Any = module
    for part in attribute.split("."):
        if not hasattr(function, part):
            close = difflib.get_close_matches(part, dir(function), n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{key}: {module_name} has no {attribute!r} ({module.__file__}).{hint}")
        function = getattr(function, part)
    if not callable(function):
        raise ConfigError(f"{key}: {name} is a {type(function).__name__}, not a function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{key}: {name} is async; write a plain function, each grading process runs one at a time")
    registered = next((v for v in _REGISTRY.values() if v.function is function), None)
    if registered is not None and registered.function.__module__ in _BUILTIN_MODULES:
        return registered
    return Verifier(
        name,
        registered.version if registered else "0",
        function,
        registered.check if registered else None,
        registered.prepare if registered else None,
        registered.level if registered else None,
        source=_source(function),
    )


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # a builtin, a C function, a callable object: its name has to do
        return getattr(function, "__qualname__", type(function).__qualname__)


def option_problems(verifier: Verifier, options: Mapping[str, Any], key: str) -> list[str]:
    """What is wrong with the options of a verifier; `key` e.g. "reward.criteria.answer.options"."""
    try:
        signature = inspect.signature(verifier.function)
    except (ValueError, TypeError):  # a C function without a signature: nothing can be said before it is called
        return []
    parameters = list(signature.parameters.values())
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if not positional:
        return [f"{key.removesuffix('.options')}.verifier: {verifier.name} takes no sample: write f(sample, **options)"]
    first = None if positional[0].kind is positional[0].VAR_POSITIONAL else positional[0]
    named = [p for p in parameters if p is not first and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = {p.name for p in named}
    problems = []
    for option in options:
        if option not in known and (not takes_any or (first is not None and option == first.name)):
            close = difflib.get_close_matches(option, known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            has = f"It has {', '.join(sorted(known))}." if known else "It has none."
            problems.append(f"{key}.{option}: {verifier.name} has no such option.{hint} {has}")
    missing = [p.name for p in named if p.default is p.empty and p.name not in options]
    missing += [p.name for p in positional[1:] if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    problems += [f"{key}.{option}: {verifier.name} cannot do without this option" for option in missing]
    if not problems and verifier.check is not None:
        try:
            verifier.check(**options)
        except (ValueError, TypeError) as error:
            problems.append(f"{key}: {error}")
    return problems
