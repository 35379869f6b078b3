"""Where rows come from: two JSON Lines files of a folder, one file that is split here, or a data set of the hub.

Knows files and splits; what a row means is the caller's `to_problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rlvr import hub
from rlvr.errors import DataError, UserError
from rlvr.tasks.rows import BadRows, BadValue, Row, read_jsonl
from rlvr.tasks.task import Problem, Splits

HELD_OUT_PERCENT = 10  # of a data set that comes as one file

Pair = tuple[Iterable[Row], Iterable[Row] | None]
"""Rows of the training and of the held-out split; None: hold out a part of the first."""


def open_splits(
    path: str, *, hub_id: str, subset: str, splits: tuple[str, str], timeout_s: float, bad: BadRows
) -> Pair:
    """Rows of both splits, from the local `path` or, when it is empty, from the hub."""
    if not path:
        return _from_hub(hub_id, subset, splits, timeout_s)
    local = Path(path).expanduser()
    if local.is_file():
        return read_jsonl(local, bad), None
    if not local.is_dir():
        raise DataError(f"task.path {path!r} does not exist (looked for {local.absolute()})")
    files = [local / f"{split}.jsonl" for split in splits]
    if missing := [file.name for file in files if not file.is_file()]:
        there = ", ".join(sorted(file.name for file in local.glob("*.jsonl"))) or "no .jsonl file"
        raise DataError(
            f"task.path {path!r} lacks {' and '.join(missing)}; it has: {there}. Name the splits with task.train_split "
            f"and task.test_split, or name one file, of which {HELD_OUT_PERCENT} % are held out"
        )
    return read_jsonl(files[0], bad), read_jsonl(files[1], bad)


def to_splits(pair: Pair, to_problem: Callable[[Row], Problem], bad: BadRows) -> Splits:
    """Problems of both splits. Rows that `to_problem` refuses with BadValue go to `bad`."""
    train = _problems(pair[0], "train", to_problem, bad)
    if pair[1] is not None:
        return Splits(train, _problems(pair[1], "test", to_problem, bad))
    held_out = [problem for problem in train if _is_held_out(problem)]
    kept = [problem for problem in train if not _is_held_out(problem)]
    return Splits(kept, [replace(problem, id=problem.id.replace("train/", "test/", 1)) for problem in held_out])


def _problems(rows: Iterable[Row], split: str, to_problem: Callable[[Row], Problem], bad: BadRows) -> list[Problem]:
    """Ids are <split>/<the row's id, or its line>: the same number may stand in both splits."""
    problems: list[Problem] = []
    first_seen: dict[str, int] = {}
    for row in rows:
        try:
            problem = to_problem(row)
        except BadValue as error:
            bad.add(row, str(error))
            continue
        id_ = f"{split}/{problem.id or row.line}"
        if id_ in first_seen:
            bad.add(row, f"id {problem.id!r} stands on line {first_seen[id_]} already")
            continue
        first_seen[id_] = row.line
        problems.append(replace(problem, id=id_))
    return problems


def _is_held_out(problem: Problem) -> bool:
    """Decided by the question alone: the same for every seed and every order, and for all rows with one question."""
    digest = blake2b(problem.question.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100 < HELD_OUT_PERCENT


def _from_hub(name: str, subset: str, splits: tuple[str, str], timeout_s: float) -> Pair:
    """Rows of a data set of the hub. Where the hub is forbidden, the copy in the cache of `datasets` is used."""
    instead = (
        "Set task.path to a folder with train.jsonl and test.jsonl, which needs no hub; "
        "if the data set was fetched before, HF_HUB_OFFLINE=1 takes it from the cache."
    )
    if not hub.offline():
        hub.require_reachable(f"data set {name}", timeout_s=timeout_s, instead=instead)
    try:
        import datasets
    except ImportError:
        raise UserError(f"data set {name} needs the package datasets: `pip install datasets`. {instead}") from None

    def load(split: str) -> Any:
        try:
            return datasets.load_dataset(name, subset or None, split=split)
        except Exception as error:  # the library lets errors of its HTTP client, of Arrow and of its own through
            raise UserError(
                f"data set {name} ({subset or 'default'}, {split}) cannot be loaded: {error}. {instead}"
            ) from error

    def rows(split: str) -> Iterable[Row]:
        for number, record in enumerate(load(split), start=1):
            yield Row(data=record, file=f"{name}/{split}", line=number)

    return rows(splits[0]), rows(splits[1])
