"""What a task is: problems before they are prompts, the two splits, and the finished task.

Must not know where problems come from, nor how they are shown to a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr.records import Prompt
from rlvr.tasks.rows import BadRow


@dataclass(frozen=True)
class Problem:
    """One problem with its answer, before it is rendered into a prompt."""

    id: str
    question: str
    reference: str
    """The final answer that a verifier compares with."""
    solution: str = ""
    """A worked solution in the form that exemplars show, without the line that states the answer."""
    category: str = ""
    file: str = ""
    line: int = 0
    row: Mapping[str, Any] = field(default_factory=dict)
    """The data set's record as it was read."""
    answer: str = ""
    """What exemplars show as the final answer; empty: the reference. For references that are tests, not answers."""


@dataclass(frozen=True)
class Splits:
    """What a source of problems yields."""

    train: list[Problem]
    test: list[Problem]


@dataclass(frozen=True)
class Task:
    """Prompts to train on and to be measured by; no problem is in both."""

    name: str
    train: list[Prompt]
    test: list[Prompt]
    stop: tuple[str, ...]
    """Where a completion ends, besides the end-of-sequence token."""
    exemplars: tuple[Problem, ...] = ()
    """Shown before every problem; taken from the training split, and not trained on."""
    bad_rows: tuple[BadRow, ...] = ()
    """Rows that were left out (task.on_bad_row=skip), for the driver to count and log."""
