"""From the configuration to a finished task. New kinds of task are registered here, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from rlvr.config import Config
from rlvr.errors import ConfigError, DataError
from rlvr.tasks import arithmetic, few_shot, functions, gsm8k, tabular
from rlvr.tasks.categorise import categorise
from rlvr.tasks.rows import BadRows
from rlvr.tasks.task import Splits, Task


@dataclass(frozen=True)
class Kind:
    """A kind of task: how its problems are loaded, and where a plain-text answer to one of them ends."""

    load: Callable[[Config, BadRows], Splits]
    stop: tuple[str, ...]


KINDS = {
    "arithmetic": Kind(arithmetic.load, arithmetic.STOP),
    "functions": Kind(functions.load, functions.STOP),
    "gsm8k": Kind(gsm8k.load, gsm8k.STOP),
    "jsonl": Kind(tabular.load_jsonl, tabular.STOP),
    "hub": Kind(tabular.load_hub, tabular.STOP),
}


def build(config: Config) -> Task:
    """The task that `config` describes. Deterministic: the same configuration and files give the same task.

    Raises ConfigError for what the configuration gets wrong, DataError for data that is missing, empty or bad.
    """
    name = config.task.name
    if name not in KINDS:
        near = difflib.get_close_matches(name, KINDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no task named {name!r} ({', '.join(KINDS)}){hint}")
    if config.task.few_shot.k > 0 and few_shot.ANSWER not in config.task.answer_line:
        raise ConfigError(f"task.answer_line={config.task.answer_line!r} has no {few_shot.ANSWER} in it")
    kind = KINDS[name]
    bad = BadRows()
    splits = kind.load(config, bad)
    train = categorise(splits.train, config.task.categorise, bad)
    test = categorise(splits.test, config.task.categorise, bad)
    bad_rows = bad.settle(config.task.on_bad_row)
    for split, problems in (("training", train), ("held-out", test)):
        if not problems:
            raise DataError(
                f"task {name} ({config.task.path or 'generated'}): the {split} split has no usable row"
                + (f" (all of {len(bad_rows)} are bad, the first: {bad_rows[0]})" if bad_rows else "")
            )
    exemplars, train = few_shot.choose(train, config.task.few_shot.k, config.task.few_shot.seed)
    return Task(
        name=name,
        train=[few_shot.render(problem, exemplars, config.task) for problem in train],
        test=[few_shot.render(problem, exemplars, config.task) for problem in test],
        stop=few_shot.stop_strings(config.task, kind.stop),
        exemplars=exemplars,
        bad_rows=bad_rows,
    )
