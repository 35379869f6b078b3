"""Making any value safe to write: strict JSON, no broken Unicode, no secrets.

Model text and error messages are hostile or careless: they hold lone surrogates, NaN, and now and then
the key that a library put into its complaint. Every writer of this package goes through here. Pure
except that it reads the environment to know which secrets must not appear.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

REDACTED = "[redacted]"

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:api_?key|password|passwd|secret|secret_?(?:access_?)?key|credentials?|access_?key|"
    r"(?:auth|access|session|bearer|api|hub|hf)_?token|token)$",
    re.IGNORECASE,
)
# A tokenizer's special tokens are no secrets.
_SPECIAL_TOKEN = re.compile(r"(?:pad|eos|bos|unk|sep|cls|mask|stop|special)_token$", re.IGNORECASE)
# Shorter values are words like "true" or "none": replacing them would garble honest text.
_SHORTEST_SECRET = 8


def clean(text: str) -> str:
    """`text` with lone surrogates replaced, so that it can be encoded as UTF-8."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def is_secret_name(name: str) -> bool:
    """Whether a key or environment variable of this name holds a secret ("api_key", "HF_TOKEN")."""
    return _SECRET_KEY.search(name) is not None and _SPECIAL_TOKEN.search(name) is None


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` without the value of any environment variable whose name says that it is a secret."""
    for name, value in (os.environ if environ is None else environ).items():
        if len(value) >= _SHORTEST_SECRET and value in text and is_secret_name(name):
            text = text.replace(value, REDACTED)
    return text


def plain(value: Any, non_finite: dict[str, str] | None = None, path: str = "") -> Any:
    """`value` as what strict JSON can hold: None, bool, int, float, str, list, dict with string keys.

    NaN and infinities become None; `non_finite`, where given, notes their dotted path and what they were.
    Values under keys that name a secret are replaced. Raises TypeError on a type that has no JSON form.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        if non_finite is not None:
            non_finite[path] = str(value)
        return None
    if isinstance(value, str):
        return redact(clean(value))
    if isinstance(value, PurePath):
        return redact(clean(str(value)))
    if isinstance(value, BaseException):
        return redact(clean(f"{type(value).__name__}: {value}"))
    if isinstance(value, np.ndarray):
        value = value.tolist()
        if not isinstance(value, list):
            return plain(value, non_finite, path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {
            clean(str(key)): REDACTED
            if isinstance(item, str) and item and is_secret_name(str(key))
            else plain(item, non_finite, f"{path}.{key}" if path else str(key))
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, non_finite, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item, non_finite, path) for item in value), key=str)
    raise TypeError(f"{path or 'value'} is a {type(value).__name__}, which has no JSON form")


def to_json(value: Any) -> str:
    """One line of strict JSON, ASCII only: no separator that a reader could take for the end of the line."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
