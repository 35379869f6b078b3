"""Values as plain data across the sandbox's border, and their comparison. Runs on both sides.

JSON with tags, exact for None, bool, int, float, complex, str, bytes, list, tuple, dict, set and frozenset. An object
of a subclass is sent as what its base class holds, whatever its own methods say. `decode` trusts nothing: it builds
exact builtin types or raises ValueError, so no method of a program's object is ever called on the owner's side.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 64
#: Characters of an exception that are sent.
MAX_TEXT = 300
#: Whole numbers beyond are sent in base 16: Python refuses to write longer ones in base 10.
_DIRECT = 10**15


class NotPlain(ValueError):
    """A value that is no plain data; the message says what it is."""


def to_text(value: Any) -> str:
    """A value as text. Raises NotPlain."""
    return json.dumps(encode(value), separators=(",", ":"))


def from_text(text: str | bytes) -> Any:
    """The inverse of `to_text`. Raises ValueError on anything else."""
    try:
        return decode(json.loads(text))
    except (RecursionError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"not an encoded value: {type(error).__name__}") from None


def encode(value: Any, depth: int = 0) -> Any:
    """A value as what JSON can hold. Raises NotPlain."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_DIRECT < value < _DIRECT else {"i": hex(value)}
    if kind is float:
        return {"f": value.hex()}
    if depth > MAX_DEPTH:
        raise NotPlain(f"data nested deeper than {MAX_DEPTH}")
    deeper = depth + 1
    if kind is list:
        return [encode(item, deeper) for item in value]
    if kind is tuple:
        return {"t": [encode(item, deeper) for item in value]}
    if kind is dict:
        return {"d": [[encode(key, deeper), encode(item, deeper)] for key, item in value.items()]}
    if kind is set or kind is frozenset:
        return {"s" if kind is set else "z": [encode(item, deeper) for item in value]}
    if kind is bytes or kind is bytearray:
        return {"b": value.hex()}
    if kind is complex:
        return {"c": [value.real.hex(), value.imag.hex()]}
    return encode(_base(value), depth)


def _base(value: Any) -> Any:
    """What an object of a subclass of a builtin holds. Raises NotPlain for any other object."""
    for base, items in _HELD.items():
        if issubclass(type(value), base):
            return base(items(value))
    raise NotPlain(f"an object of type {type(value).__name__}")


_HELD: dict[type, Any] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    list: list.__iter__,
    tuple: tuple.__iter__,
    dict: dict.items,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
}


def decode(node: Any, depth: int = 0) -> Any:
    """The value that `encode` was given. Raises ValueError, TypeError, KeyError or IndexError on anything else."""
    kind = type(node)
    if node is None or kind is bool or kind is int or kind is str:
        return node
    if depth > MAX_DEPTH + 1:
        raise ValueError("nested too deeply")
    deeper = depth + 1
    if kind is list:
        return [decode(item, deeper) for item in node]
    if kind is not dict or len(node) != 1:
        raise ValueError("not an encoded value")
    ((tag, held),) = node.items()
    if tag == "i":
        return int(_of(held, str), 16)
    if tag == "f":
        return float.fromhex(_of(held, str))
    if tag == "t":
        return tuple(decode(item, deeper) for item in _of(held, list))
    if tag == "d":
        return {decode(key, deeper): decode(item, deeper) for key, item in _of(held, list)}
    if tag == "s":
        return {decode(item, deeper) for item in _of(held, list)}
    if tag == "z":
        return frozenset(decode(item, deeper) for item in _of(held, list))
    if tag == "b":
        return bytes.fromhex(_of(held, str))
    if tag == "c":
        real, imaginary = _of(held, list)
        return complex(float.fromhex(_of(real, str)), float.fromhex(_of(imaginary, str)))
    raise ValueError("not an encoded value")


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError("not an encoded value")
    return value


def describe(error: BaseException) -> str:
    """Type and message of an exception, whatever it does when asked for them."""
    try:
        return f"{type(error).__name__}: {error}"[:MAX_TEXT]
    except BaseException:
        return type(error).__name__[:MAX_TEXT]


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether two decoded values have the same exact types and contents: True is not 1, nor 1 1.0, nor (1,) [1].

    tolerance: floats may differ by so much, absolutely or relative to the larger; NaN equals NaN.
    """
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is float:
        return _close(one, other, tolerance)
    if kind is complex:
        return _close(one.real, other.real, tolerance) and _close(one.imag, other.imag, tolerance)
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(same(x, y, tolerance) for x, y in zip(one, other, strict=True))
    if kind is dict:
        if len(one) != len(other):
            return False
        keys = {_exact(key): key for key in other}
        return all(_exact(key) in keys and same(one[key], other[keys[_exact(key)]], tolerance) for key in one)
    if kind is set or kind is frozenset:
        return {_exact(item) for item in one} == {_exact(item) for item in other}
    return bool(one == other)


def _close(one: float, other: float, tolerance: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    return tolerance > 0 and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


def _exact(value: Any) -> Any:
    """A hashable that keeps types apart: sets and keys hold 1, 1.0 and True to be the same."""
    if type(value) is tuple:
        return (tuple, tuple(_exact(item) for item in value))
    if type(value) is frozenset:
        return (frozenset, frozenset(_exact(item) for item in value))
    return (type(value), value)
