"""The ledger holds every completion, verdict and group, whatever the text."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rlvr.errors import UserError
from rlvr.records import GroupState, Prompt, Status
from rlvr.tracking import ledger
from rlvr.tracking.ledger import ledger_path, read_ledger, rows, schema, write_ledger
from tests.tracking_samples import completion, group


def test_a_step_is_read_back_as_it_was_written(tmp_path):
    trained = group("g1", [1.0, 0.0, None], category="add")
    path = write_ledger(tmp_path, "run", "train", 4, [trained])
    assert path == tmp_path / "step_000004.parquet"
    found = read_ledger(path)
    assert found == rows("run", "train", 4, [trained])
    first, _, masked = found
    assert first["completion"] == "answer 0"
    assert first["weight_versions"] == [{"version": 3, "tokens": 5}]
    assert first["logprob_mean"] == -0.5
    assert first["advantage"] == 0.5
    assert (first["purpose"], first["step"], first["issued_step"], first["category"]) == ("train", 4, 1, "add")
    assert json.loads(first["parts"]) == {"answer": {"score": 1.0, "weight": 1.0, "status": "ok", "evidence": "7 = 7"}}
    assert masked["score"] is None
    assert masked["advantage"] is None
    assert masked["status"] == Status.VERIFIER_ERROR
    assert "issued" in json.loads(first["group_timestamps"])


def test_the_columns_are_exactly_those_of_the_schema():
    full = rows("run", "train", 1, [group("g", [1.0])])[0]
    assert set(full) == set(schema().names)


def test_every_group_has_a_row_also_without_completions(tmp_path):
    failed = group("g2", [], state=GroupState.FAILED, reason="infrastructure")
    unjudged = group("g3", [0.0, 0.0], state=GroupState.DROPPED, reason="equal_scores")
    unjudged.verdicts, unjudged.advantages = [], None
    found = read_ledger(write_ledger(tmp_path, "run", "train", 1, [failed, unjudged]))
    assert [(row["group_id"], row["completion_index"], row["score"]) for row in found] == [
        ("g2", None, None),
        ("g3", 0, None),
        ("g3", 1, None),
    ]
    assert (found[0]["group_state"], found[0]["group_reason"]) == ("failed", "infrastructure")


def test_hostile_text_is_kept_as_far_as_unicode_allows(tmp_path):
    hostile = group("g", [1.0])
    hostile.completions[0].text = "a\0b\ud800c\u202e"
    hostile.verdicts[0].extracted = "\udfff"
    hostile.verdicts[0].parts["answer"].evidence = "\0\ud800"
    found = read_ledger(write_ledger(tmp_path, "run", "eval", 0, [hostile]))[0]
    assert found["completion"] == "a\0b\ufffdc\u202e"
    assert found["extracted"] == "\ufffd"
    assert json.loads(found["parts"])["answer"]["evidence"] == "\0\ufffd"


def test_a_conversation_is_kept_as_json(tmp_path):
    chat = group("g", [1.0])
    chat.prompt = Prompt(id="p", reference="7", messages=({"role": "user", "content": "3 + 4 = ?"},))
    found = read_ledger(write_ledger(tmp_path, "run", "eval", 0, [chat]))[0]
    assert found["prompt_text"] is None
    assert json.loads(found["prompt_messages"]) == [{"role": "user", "content": "3 + 4 = ?"}]


def test_an_empty_completion_and_numbers_that_are_not_finite_are_null(tmp_path):
    odd = group("g", [1.0, 0.0])
    odd.completions[0] = completion("", tokens=0)
    odd.completions[1].logprobs = np.array([-np.inf, -1, -1, -1, -1], dtype=np.float32)
    odd.advantages = [float("nan"), 0.0]
    found = read_ledger(write_ledger(tmp_path, "run", "train", 1, [odd]))
    assert [row["logprob_mean"] for row in found] == [None, None]
    assert [row["advantage"] for row in found] == [None, 0.0]


def test_advantages_that_do_not_match_are_an_error():
    wrong = group("g", [1.0, 0.0])
    wrong.advantages = [0.5]
    with pytest.raises(ValueError, match="1 advantages for 2 completions"):
        rows("run", "train", 1, [wrong])


def test_a_step_is_written_once_and_a_failure_leaves_no_file(tmp_path, monkeypatch):
    write_ledger(tmp_path, "run", "train", 1, [group("g", [1.0])])
    with pytest.raises(ValueError, match="written once"):
        write_ledger(tmp_path, "run", "train", 1, [group("g", [1.0])])
    monkeypatch.setattr(ledger, "ledger_path", lambda *_: tmp_path / "no" / "folder.parquet")
    with pytest.raises(Exception, match="folder"):
        write_ledger(tmp_path, "run", "train", 2, [group("g", [1.0])])
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001.parquet"]


def test_an_empty_step_and_a_whole_folder_can_be_read(tmp_path):
    write_ledger(tmp_path, "run", "train", 2, [group("b", [1.0])])
    write_ledger(tmp_path, "run", "train", 1, [group("a", [1.0])])
    write_ledger(tmp_path, "run", "eval", 0, [])
    assert [row["group_id"] for row in read_ledger(tmp_path)] == ["a", "b"]
    assert ledger_path(tmp_path, "eval", 0).name == "eval_000000.parquet"


def test_a_file_that_is_no_ledger_is_named(tmp_path):
    (tmp_path / "step_000001.parquet").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"step_000001\.parquet cannot be read"):
        read_ledger(tmp_path)
