"""Bad data is reported by file, line and reason, and never taken for something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.errors import DataError
from rlvr.tasks.rows import BadRows, BadValue, Row, read_jsonl, text_of


def read(tmp_path: Path, content: bytes) -> tuple[list[Row], BadRows]:
    path = tmp_path / "train.jsonl"
    path.write_bytes(content)
    bad = BadRows()
    return list(read_jsonl(path, bad)), bad


def test_rows_know_their_line_whatever_ends_it(tmp_path):
    rows, bad = read(tmp_path, b'\xef\xbb\xbf{"q": 1}\r\n\r\n{"q": 2}\n{"q": 3}')
    assert [(row.line, row.data["q"]) for row in rows] == [(1, 1), (3, 2), (4, 3)]
    assert not bad.rows


def test_unicode_line_separators_inside_a_string_do_not_end_a_line(tmp_path):
    rows, bad = read(tmp_path, '{"q": "one\u2028two\x85three"}\n'.encode())
    assert [row.data["q"] for row in rows] == ["one\u2028two\x85three"]
    assert not bad.rows


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"q": 1', "not JSON"),
        (b"[1, 2]", "expected a JSON object"),
        (b'"text"', "expected a JSON object"),
        (b'{"q": "caf\xe9"}', "not UTF-8: byte 0xe9 at column 11"),
        (b'{"q": NaN}', "NaN is no JSON number"),
        (b'{"q": -Infinity}', "-Infinity is no JSON number"),
        (b"[" * 100_000, "not JSON"),
        (b'{"q": ' + b"1" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_malformed_line_is_a_bad_row_and_its_neighbours_are_not(tmp_path, line, reason):
    rows, bad = read(tmp_path, b'{"q": 1}\n' + line + b'\n{"q": 3}\n')
    assert [row.line for row in rows] == [1, 3]
    assert len(bad.rows) == 1
    assert str(bad.rows[0]).startswith(f"{tmp_path / 'train.jsonl'}:2: ")
    assert reason in bad.rows[0].reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \r\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ('{"q": 1}'.encode("utf-16"), "UTF-16"),
        (b'[{"q": 1}]', "one JSON array"),
    ],
)
def test_a_file_that_is_no_json_lines_at_all_is_refused(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl cannot be read: No such file"):
        list(read_jsonl(tmp_path / "nowhere.jsonl", BadRows()))


def test_one_error_reports_several_bad_rows_and_what_to_do(tmp_path):
    _, bad = read(tmp_path, b"x\n" * 7)
    with pytest.raises(DataError) as caught:
        bad.settle("error")
    message = str(caught.value)
    assert "train.jsonl:1:" in message and "train.jsonl:5:" in message
    assert "and 2 more bad rows" in message
    assert "task.on_bad_row=skip" in message
    assert [row.line for row in bad.settle("skip")] == list(range(1, 8))


@pytest.mark.parametrize(
    ("value", "text"),
    [("72", "72"), (" 72\n", "72"), (72, "72"), (0, "0"), (0.5, "0.5"), (False, "false"), (["b", "a"], '["b", "a"]')],
)
def test_numbers_and_structures_become_the_text_that_json_has_for_them(value, text):
    assert text_of(Row({"answer": value}, "f", 1), "answer", "task.fields.reference") == text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"question": "2 + 2?"}, r"no field 'answer' \(task.fields.reference\); the row has: question"),
        ({"answer": ""}, "is empty"),
        ({"answer": " \t"}, "is empty"),
        ({"answer": None}, "is null"),
        (json.loads(r'{"answer": "7\ud800"}'), "half a surrogate pair at character 2"),
    ],
)
def test_a_missing_or_empty_answer_is_refused_with_the_reason(data, reason):
    with pytest.raises(BadValue, match=reason):
        text_of(Row(data, "f", 1), "answer", "task.fields.reference")
