"""metrics.jsonl and events.jsonl: strict, whole lines, also after a crash and on a full disk."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from rlvr.errors import UserError
from rlvr.tracking.jsonl import EventLog, JsonlWriter, read_jsonl


def strict(line: str):
    def refuse(name: str):
        raise ValueError(name)

    return json.loads(line, parse_constant=refuse)


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path):
    writer = JsonlWriter(tmp_path / "m.jsonl")
    writer.write({"step": 1, "reward/mean": np.float32(0.5)})
    assert read_jsonl(tmp_path / "m.jsonl") == [{"step": 1, "reward/mean": 0.5}]
    writer.close()
    writer.close()


def test_what_is_not_finite_is_null_and_named(tmp_path):
    writer = JsonlWriter(tmp_path / "m.jsonl")
    writer.write({"step": 1, "learner/kl": float("nan")})
    line = strict((tmp_path / "m.jsonl").read_text())
    assert line == {"step": 1, "learner/kl": None, "non_finite": {"learner/kl": "nan"}}
    writer.close()


def test_a_line_that_a_crash_cut_short_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"st')
    assert read_jsonl(path) == [{"step": 1}]
    writer = JsonlWriter(path)
    writer.write({"step": 2})
    writer.close()
    assert [record["step"] for record in read_jsonl(path)] == [1, 2]


def test_a_full_disk_is_a_clear_error():
    writer = JsonlWriter(Path("/dev/full"))  # a device on which every write fails with ENOSPC
    with pytest.raises(UserError, match="no space left to write /dev/full"):
        writer.write({"step": 1})
    writer.close()


def test_threads_do_not_mix_their_lines(tmp_path):
    writer = JsonlWriter(tmp_path / "m.jsonl")
    threads = [
        threading.Thread(target=lambda n=n: [writer.write({"n": n, "text": "x" * 9000}) for _ in range(20)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert sorted(record["n"] for record in read_jsonl(tmp_path / "m.jsonl")) == sorted(list(range(4)) * 20)


def test_events_carry_time_and_kind_and_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    log = EventLog(tmp_path / "e.jsonl", clock=lambda: 1_700_000_000.25)
    log.write("run_failed", error="401 with hf_0123456789\ud800", group="g")
    log.close()
    assert read_jsonl(tmp_path / "e.jsonl") == [
        {
            "time": 1_700_000_000.25,
            "at": "2023-11-14T22:13:20.250+00:00",
            "kind": "run_failed",
            "error": "401 with [redacted]\ufffd",
            "group": "g",
        }
    ]


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1}\nnonsense\n')
    with pytest.raises(UserError, match="line 2 is not JSON"):
        read_jsonl(tmp_path / "m.jsonl")
