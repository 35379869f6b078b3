"""What keys the configuration has: names, types, defaults and conditions, read off the dataclasses of `config.py`.

Composition, checks and documentation all ask here, so a key is declared once. Must not know where values come from.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import MISSING

from rlvr.config import Config

#: Stands for the name that the user gives, as in reward.criteria.<name>.weight.
WILDCARD = "<name>"

Path = tuple[str, ...]


@dataclass(frozen=True)
class Key:
    """A place in the configuration: a section, a mapping with names of the user's own, or a key with a value."""

    path: Path = ()
    hint: Any = Config
    """Resolved type hint. The key of no path is the whole configuration."""
    default: Any = MISSING
    conditions: tuple[str, ...] = ()
    """All must hold for the key to have an effect: its own, and those of the sections around it."""
    owner: tuple[type, str] | None = None
    """Dataclass and field that declare it."""

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_section(self) -> bool:
        return dataclasses.is_dataclass(self.hint)

    @property
    def entry_hint(self) -> Any:
        """Type of the values when this is a mapping with names of the user's own, else None."""
        return get_args(self.hint)[1] if get_origin(self.hint) is dict else None

    @property
    def is_free(self) -> bool:
        """Anything may stand here and below."""
        return self.hint is Any


def children(key: Key) -> list[Key]:
    """The keys directly under a section, in order of declaration; [] for anything else."""
    return list(_fields(key.hint, key.path, key.conditions)) if key.is_section else []


def find(path: Sequence[str]) -> Key | None:
    """The key at `path`, or None where the schema has none. `find(())` is the whole configuration."""
    here = Key()
    for part in path:
        below = _child(here, part)
        if below is None:
            return None
        here = below
    return here


@cache
def leaves() -> tuple[Key, ...]:
    """Every key that takes a value, in order of declaration, with <name> where the user chooses the name."""
    return tuple(_leaves(Key()))


@cache
def sections() -> tuple[Key, ...]:
    """Every section but the whole, in order of declaration."""
    return tuple(_sections(Key()))


def suggest(path: Sequence[str]) -> list[str]:
    """Keys that an unknown `path` may have meant, at most three.

    A sibling spelt almost alike, else the same word elsewhere, else anything spelt almost alike.
    """
    depth = next(depth for depth in range(len(path)) if find(path[: depth + 1]) is None)
    parent, rest = tuple(path[:depth]), tuple(path[depth + 1 :])
    siblings = [child.path[-1] for child in children(find(parent) or Key())]
    if close := difflib.get_close_matches(path[depth], siblings, n=1):
        corrected = (*parent, close[0], *rest)
        return [".".join(corrected if find(corrected) else (*parent, close[0]))]
    words = {key.name: key.path[-1] for key in leaves()}
    if same := [name for name, word in words.items() if word == path[-1]]:
        return same[:3]
    if close := difflib.get_close_matches(".".join(path), words, n=1):
        return close
    alike = difflib.get_close_matches(path[-1], set(words.values()), n=1)
    return [name for name, word in words.items() if word in alike][:3]


def type_text(hint: Any) -> str:
    """A type as a person writes it: `float`, `auto | on | off`, `list of str`, `float or null`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if origin in (Union, types.UnionType):
        inner = [type_text(argument) for argument in arguments if argument is not type(None)]
        return " or ".join([*inner, "null"] if type(None) in arguments else inner)
    if origin is list:
        return f"list of {type_text(arguments[0])}"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "mapping"
    return "anything" if hint is Any else hint.__name__


_CONDITION = re.compile(r"(?P<key>[\w.]+) (?P<operator>>|==|!=|in) (?P<operand>\S+)")


def holds(condition: str, config: Config) -> bool:
    """Whether `key > 0`, `key == word`, `key != word` or `key in word,word` is true of `config`.

    Raises ValueError for a condition of any other form: a mistake in `config.py`, not the user's.
    """
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise ValueError(f"condition {condition!r} is not of the form 'key operator value'")
    value = value_at(config, match["key"].split("."))
    operator, operand = match["operator"], match["operand"]
    if operator == ">":
        return bool(value > float(operand))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if operator == "in":
        return text in operand.split(",")
    return (text == operand) is (operator == "==")


def value_at(config: Any, path: Sequence[str]) -> Any:
    """The value at `path` of a configuration made of dataclasses and dicts. Raises KeyError or AttributeError."""
    for part in path:
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return config


def _child(key: Key, part: str) -> Key | None:
    if key.is_section:
        return next((child for child in children(key) if child.path[-1] == part), None)
    if key.is_free:
        return Key((*key.path, part), Any, conditions=key.conditions)
    if key.entry_hint is not None:
        return Key((*key.path, part), key.entry_hint, conditions=key.conditions)
    return None


def _fields(cls: type, prefix: Path, conditions: tuple[str, ...]) -> Iterator[Key]:
    hints = _hints(cls)
    for field in dataclasses.fields(cls):
        own = tuple(field.metadata["when"].split(" and ")) if "when" in field.metadata else ()
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        yield Key((*prefix, field.name), hints[field.name], default, conditions + own, (cls, field.name))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _leaves(key: Key) -> Iterator[Key]:
    if key.is_section:
        for child in children(key):
            yield from _leaves(child)
    elif dataclasses.is_dataclass(key.entry_hint):
        yield from _leaves(Key((*key.path, WILDCARD), key.entry_hint, conditions=key.conditions))
    else:
        yield key


def _sections(key: Key) -> Iterator[Key]:
    for child in children(key):
        if child.is_section or dataclasses.is_dataclass(child.entry_hint):
            yield child
            yield from _sections(child)
