"""Any data set of questions and answers: JSON Lines files (`jsonl`) or a data set of the hub (`hub`)."""

from __future__ import annotations

from rlvr.config import Config, FieldsConfig
from rlvr.errors import ConfigError
from rlvr.tasks import sources
from rlvr.tasks.few_shot import NEXT_PROBLEM
from rlvr.tasks.rows import BadRows, Row, text_of
from rlvr.tasks.task import Problem, Splits

STOP = (NEXT_PROBLEM,)


def load_jsonl(config: Config, bad: BadRows) -> Splits:
    """Problems of <task.path>/<split>.jsonl, or of the one file task.path."""
    if not config.task.path:
        raise ConfigError("task.name=jsonl needs task.path: a folder with train.jsonl and test.jsonl, or a .jsonl file")
    return _load(config, bad, hub_id="")


def load_hub(config: Config, bad: BadRows) -> Splits:
    """Problems of the hub's data set task.path."""
    if not config.task.path:
        raise ConfigError("task.name=hub needs task.path: the id of a data set, like openai/gsm8k")
    return _load(config, bad, hub_id=config.task.path)


def _load(config: Config, bad: BadRows, hub_id: str) -> Splits:
    task = config.task
    pair = sources.open_splits(
        "" if hub_id else task.path,
        hub_id=hub_id,
        subset=task.subset,
        splits=(task.train_split, task.test_split),
        timeout_s=config.model.hub_timeout_s,
        bad=bad,
    )
    return sources.to_splits(pair, lambda row: _problem(row, task.fields), bad)


def _problem(row: Row, fields: FieldsConfig) -> Problem:
    return Problem(
        id=text_of(row, fields.id, "task.fields.id") if fields.id else "",
        question=text_of(row, fields.prompt, "task.fields.prompt"),
        reference=text_of(row, fields.reference, "task.fields.reference"),
        solution=text_of(row, fields.solution, "task.fields.solution") if fields.solution else "",
        category=text_of(row, fields.category, "task.fields.category") if fields.category else "",
        file=row.file,
        line=row.line,
        row=row.data,
    )
