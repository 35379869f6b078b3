"""Rows of a data set, from JSON Lines files or anything else, and what is wrong with the bad ones.

Every row knows the file and line it stands on, because every complaint must name them. This module knows nothing
of what the columns mean.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr.errors import DataError

_SHOWN = 5  # bad rows spelled out in one error message


@dataclass(frozen=True)
class Row:
    """One record of a data set and where it stands."""

    data: Mapping[str, Any]
    file: str
    line: int
    """Counted from 1. For a hub data set: the row's number."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass
class BadRows:
    """Collects bad rows, so that one error reports them all, or a run can go on without them and count them."""

    rows: list[BadRow] = field(default_factory=list)

    def add(self, row: Row, reason: str) -> None:
        self.rows.append(BadRow(row.file, row.line, reason))

    def settle(self, on_bad_row: str) -> tuple[BadRow, ...]:
        """All of them, in order. Raises DataError naming the first few when `on_bad_row` is "error"."""
        if self.rows and on_bad_row == "error":
            raise refusal(self.rows)
        return tuple(self.rows)


def refusal(rows: list[BadRow]) -> DataError:
    """The error for `rows`, of which there is at least one."""
    lines = [str(row) for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"and {len(rows) - _SHOWN} more bad rows")
    lines.append("Mend the data, or leave such rows out, counted, with task.on_bad_row=skip")
    return DataError("\n".join(lines))


def read_jsonl(path: Path, bad: BadRows) -> Iterator[Row]:
    """The objects of a JSON Lines file. Lines that are none go to `bad`.

    UTF-8 with or without byte order mark, LF or CRLF; blank lines are passed over, and counted as lines. Raises
    DataError when the file is missing, unreadable, or not JSON Lines at all.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"task file {path} cannot be read: {error.strerror or error}") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"task file {path} is in UTF-16; save it as UTF-8")
    content = content.removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise DataError(f"task file {path} is empty")
    if content.lstrip().startswith(b"["):
        raise DataError(f"task file {path} is one JSON array; write one JSON object per line instead")
    # Only \n ends a line: JSON strings may hold other characters that Unicode calls line separators.
    for line, raw in enumerate(content.split(b"\n"), start=1):
        if not raw.strip():
            continue
        row = Row(data={}, file=str(path), line=line)
        try:
            value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError as error:
            bad.add(row, f"not UTF-8: byte {raw[error.start]:#04x} at column {error.start + 1}")
        except (ValueError, RecursionError) as error:
            bad.add(row, f"not JSON: {error}")
        else:
            if isinstance(value, dict):
                yield Row(data=value, file=str(path), line=line)
            else:
                bad.add(row, f"holds {type(value).__name__}, expected a JSON object")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


class BadValue(ValueError):
    """A row's value cannot be used; the message is the reason."""


def text_of(row: Row, column: str, key: str) -> str:
    """The value of `column` as text, stripped. `key` is the configuration key that names the column.

    Numbers and booleans are written as JSON writes them (72, 0.5, true), lists and objects as JSON with sorted keys.
    Raises BadValue when the column is missing, empty or null, or not text that a tokenizer takes.
    """
    if column not in row.data:
        columns = ", ".join(map(str, row.data)) or "none"
        raise BadValue(f"no field {column!r} ({key}); the row has: {columns}")
    value = row.data[column]
    text = value.strip() if isinstance(value, str) else "" if value is None else _as_json(value)
    if not text:
        raise BadValue(f"field {column!r} ({key}) is {'null' if value is None else 'empty'}")
    return printable(text, column)


def printable(text: str, column: str) -> str:
    """`text` itself. Raises BadValue for half a surrogate pair, which JSON can hold and no tokenizer takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadValue(f"field {column!r} holds half a surrogate pair at character {error.start + 1}") from None
    return text


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:  # only data sets of the hub hold such values
        raise BadValue(f"value of type {type(value).__name__} cannot be written as text: {error}") from None
