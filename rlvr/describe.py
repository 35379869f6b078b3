"""What every key of the configuration means: its type, default, docstring and condition, read from the source.

The docstring under a field is the documentation; nothing is written twice. Knows the schema, and no output format.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from omegaconf import MISSING

from rlvr import schema
from rlvr.schema import Key
from rlvr.yaml12 import dump


@dataclass(frozen=True)
class Entry:
    """One key as a person reads about it."""

    name: str
    type: str
    default: str
    """In YAML; `required` where there is none."""
    doc: str
    conditions: tuple[str, ...]
    """The key has an effect only when all of these hold."""


def entries() -> list[Entry]:
    """Every key that takes a value, in order of declaration."""
    return [
        Entry(key.name, schema.type_text(key.hint), _default(key.default), _doc(key), key.conditions)
        for key in schema.leaves()
    ]


def _default(value: Any) -> str:
    if value == MISSING:
        return "required"
    # One line: the flow style of a list that holds the value, without the brackets of that list.
    return dump([value], flow=True).strip()[1:-1]


def _doc(key: Key) -> str:
    if key.owner is None:
        return ""
    cls, name = key.owner
    return " ".join(_docs(cls).get(name, "").split())


@cache
def _docs(cls: type) -> dict[str, str]:
    """The string that stands under each field of a dataclass."""
    body = ast.parse(inspect.getsource(cls)).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{cls} is not a class statement")
    docs = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            docs[field.target.id] = text.value.value
    return docs
