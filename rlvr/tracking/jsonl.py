"""Append-only files of strict JSON, one record per line: metrics.jsonl and events.jsonl.

A line is either whole or not there: each goes to the kernel in one write, and what a full disk left of it is
cut off again. So a reader may follow the file while the run goes on, and a killed run loses nothing before.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from rlvr.errors import UserError
from rlvr.tracking.files import write_failure
from rlvr.tracking.text import plain, to_json


class JsonlWriter:
    """Appends records to `path`. May be called from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_failure(path, error) from error
        self._cut_torn_line()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record. NaN and infinities become null, and `non_finite` in the record says which they were.

        Raises UserError when the disk is full, TypeError on a value without a JSON form.
        """
        non_finite: dict[str, str] = {}
        content = plain(record, non_finite)
        if non_finite:
            content["non_finite"] = non_finite
        self._append(to_json(content).encode() + b"\n")

    def close(self) -> None:
        """Make everything durable. Closing twice is fine."""
        with self._lock:
            if self._descriptor >= 0:
                if os.path.isfile(self.path):
                    os.fsync(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = -1

    def _append(self, line: bytes) -> None:
        with self._lock:
            size = os.fstat(self._descriptor).st_size
            written = 0
            try:
                while written < len(line):
                    written += os.write(self._descriptor, line[written:])
            except OSError as error:
                if written:
                    os.ftruncate(self._descriptor, size)
                raise write_failure(self.path, error, written) from error

    def _cut_torn_line(self) -> None:
        """A machine that lost power may leave half a line: it was never a record, and would spoil the next one."""
        size = os.fstat(self._descriptor).st_size
        keep = size
        while keep > 0 and os.pread(self._descriptor, 1, keep - 1) != b"\n":
            keep -= 1
        if keep < size:
            os.ftruncate(self._descriptor, keep)


class EventLog:
    """events.jsonl: what happened, when. `time` is Unix seconds, `at` the same in ISO 8601 (UTC)."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._writer = JsonlWriter(path)
        self._clock = clock

    def write(self, kind: str, /, **fields: Any) -> None:
        """Append an event. Fields that name a secret, and values of secret environment variables, are redacted."""
        now = self._clock()
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        self._writer.write({"time": now, "at": at, "kind": kind, **fields})

    def close(self) -> None:
        self._writer.close()


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All records of a file, also while it is being written: a last line that is not whole yet is left out.

    Raises UserError naming the line that is no JSON object.
    """
    *lines, _rest = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise UserError(f"{path}, line {number} is not a JSON object")
        records.append(record)
    return records
