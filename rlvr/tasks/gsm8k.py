"""GSM8K (Cobbe et al. 2021): grade-school word problems with worked solutions that end in "#### <answer>"."""

from __future__ import annotations

import re

from rlvr.config import Config
from rlvr.tasks import sources
from rlvr.tasks.few_shot import NEXT_PROBLEM
from rlvr.tasks.rows import BadRows, BadValue, Row, text_of
from rlvr.tasks.task import Problem, Splits

HUB_ID = "openai/gsm8k"
SUBSET = "main"
MARKER = "####"
#: Not "\n\n": a model may well separate the steps of its reasoning by blank lines.
STOP = (NEXT_PROBLEM,)
_ANNOTATION = re.compile(r"<<[^<>]*>>")


def load(config: Config, bad: BadRows) -> Splits:
    """Problems of task.path, or of the hub when it is empty."""
    pair = sources.open_splits(
        config.task.path,
        hub_id=HUB_ID,
        subset=SUBSET,
        splits=("train", "test"),
        timeout_s=config.model.hub_timeout_s,
        bad=bad,
    )
    return sources.to_splits(pair, _problem, bad)


def without_annotations(solution: str) -> str:
    """The solution as a person would write it, without the <<48/2=24>> meant for a calculator."""
    return _ANNOTATION.sub("", solution)


def _problem(row: Row) -> Problem:
    question = text_of(row, "question", "gsm8k's question")
    answer = text_of(row, "answer", "gsm8k's answer")
    solution, marker, final = answer.rpartition(MARKER)
    if not marker:
        raise BadValue(f"field 'answer' has no {MARKER} before the final answer")
    if not final.strip():
        raise BadValue(f"field 'answer' has nothing after {MARKER}")
    return Problem(
        id="",
        question=question,
        reference=final.strip(),
        solution=without_annotations(solution).strip(),
        file=row.file,
        line=row.line,
        row=row.data,
    )
