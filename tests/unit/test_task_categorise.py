"""Categories from reference solutions, or from a user's own function."""

from __future__ import annotations

import pytest

from rlvr.errors import ConfigError
from rlvr.tasks.categorise import categorise, difficulty, operators
from rlvr.tasks.rows import BadRows
from rlvr.tasks.task import Problem


def problem(answer: str, solution: str = "") -> Problem:
    return Problem("train/1", "q", "1", solution, row={"question": "q", "answer": answer}, file="f.jsonl", line=1)


@pytest.mark.parametrize(
    ("answer", "steps"),
    [
        ("48/2 = <<48/2=24>>24\n48+24 = <<48+24=72>>72\n#### 72", "2 steps"),
        ("5 - 2 = <<5-2=3>>3\n#### 3", "1 step"),
        ("<<1+1=2>> " * 11, "8 steps or more"),
    ],
)
def test_difficulty_counts_annotated_calculations(answer, steps):
    assert difficulty(problem(answer)) == steps


def test_difficulty_counts_lines_where_nothing_is_annotated():
    assert difficulty(problem("9", "First this.\n\nThen that.\nSo nine.\n#### 9")) == "3 steps"


@pytest.mark.parametrize(
    ("calculation", "expected"),
    [
        ("<<48/2=24>> <<48+24=72>>", "add+divide"),
        ("<<-5+3=-2>>", "add"),
        ("<<(4-1)*2=6>>", "subtract+multiply"),
        ("<<50%*10=5>>", "multiply"),
        ("12 x 3 = <<36=36>>36", "multiply"),
        ("12 \u00d7 3 \u00f7 2 \u2212 1 <<17=17>>", "subtract+multiply+divide"),
        ("2 boxes <<2=2>>", "none"),
    ],
)
def test_operators_are_those_between_operands(calculation, expected):
    assert operators(problem(calculation)) == expected


def test_a_problem_without_solution_is_a_bad_row():
    bad = BadRows()
    assert categorise([problem("72")], "difficulty", bad) == []
    assert "task.fields.solution" in str(bad.rows[0])


def test_a_users_function_gets_the_row_and_names_the_category(tmp_path, monkeypatch):
    (tmp_path / "my_patterns.py").write_text(
        "def pattern(row):\n"
        "    answer = row['answer']\n"
        "    return 'short' if len(answer) < 5 else 1 / 0 if answer == 'boom!' else 3\n"
    )
    monkeypatch.chdir(tmp_path)
    bad = BadRows()
    kept = categorise([problem("72"), problem("boom!"), problem("longer")], "my_patterns:pattern", bad)
    assert [item.category for item in kept] == ["short"]
    assert ["raised ZeroDivisionError" in bad.rows[0].reason, "returned 3" in bad.rows[1].reason] == [True, True]


@pytest.mark.parametrize("how", ["hardness", "no_such_module_here:f", "json:no_such_function", "json:__name__"])
def test_what_cannot_categorise_is_a_configuration_error(how):
    with pytest.raises(ConfigError, match=r"task\.categorise"):
        categorise([problem("1")], how, BadRows())
