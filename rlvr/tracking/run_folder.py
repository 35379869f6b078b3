"""The run folder: one folder per run, its parts under stable names, never two runs in one.

It is the interface of a run to the outside. This module knows where things are, not what is in them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlvr.errors import ConfigError, UserError
from rlvr.tracking import files

#: Created exclusively, so that of two runs that start together exactly one gets the folder.
MARKER = "run.json"
_PARTS = ("config.yaml", "metrics.jsonl", "events.jsonl", "ledger", "checkpoints", "summary.json")
_CHECKPOINT = re.compile(r"step_(\d+)")


@dataclass(frozen=True)
class RunFolder:
    """Paths of the parts of one run. Make one with `create` (a new run) or `open` (an existing one)."""

    path: Path

    @classmethod
    def create(cls, path: Path | str) -> RunFolder:
        """Claim `path` for a new run, making it and its parents.

        Raises ConfigError when it holds a run already, also when that one started at the same moment, when a
        file is in the way, or when it cannot be written.
        """
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(f"run.dir={folder}: a file is in the way. Remove it, or choose another run.dir") from None
        except OSError as error:
            raise ConfigError(_unwritable(folder, error)) from error
        if found := [name for name in _PARTS if (folder / name).exists()]:
            raise ConfigError(_taken(folder, f"found {', '.join(found)}"))
        try:
            with (folder / MARKER).open("x") as file:
                json.dump({"started": time.time(), "pid": os.getpid()}, file)
            (folder / "ledger").mkdir()
            (folder / "checkpoints").mkdir()
        except FileExistsError:
            raise ConfigError(_taken(folder, _describe(folder))) from None
        except OSError as error:
            raise ConfigError(_unwritable(folder, error)) from error
        return cls(folder)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """An existing run folder, to read from. Raises UserError when `path` is none."""
        folder = Path(path)
        if not (folder / MARKER).is_file():
            raise UserError(f"{folder} is not a run folder: it has no {MARKER}")
        return cls(folder)

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One line of JSON per step and per evaluation; the names are documented in `metrics.py`."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """One line of JSON per thing that happened."""
        return self.path / "events.jsonl"

    @property
    def ledger(self) -> Path:
        """Folder of parquet files: every completion and its verdict."""
        return self.path / "ledger"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoint_path(self, step: int) -> Path:
        """Where the model after `step` is, in Hugging Face format with a manifest."""
        return self.checkpoints / f"step_{step}"

    @contextmanager
    def checkpoint(self, step: int, *, bytes_needed: int = 0) -> Iterator[Path]:
        """The body fills a folder that becomes the checkpoint of `step`, whole or not at all.

        Raises UserError when fewer than `bytes_needed` are free, the disk gets full, or that step is saved already.
        """
        files.check_free_space(self.checkpoints, bytes_needed, f"the checkpoint of step {step}")
        with files.atomic_folder(self.checkpoint_path(step)) as folder:
            yield folder

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def curve(self) -> Path:
        return self.path / "learning_curve.png"


def checkpoint_steps(folder: RunFolder) -> list[int]:
    """Steps that have a checkpoint folder, ascending. Half-written ones have another name until they are whole."""
    if not folder.checkpoints.is_dir():
        return []
    matches = (_CHECKPOINT.fullmatch(entry.name) for entry in folder.checkpoints.iterdir() if entry.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def last_checkpoint(folder: RunFolder) -> Path:
    """The newest checkpoint of a run.

    Raises UserError when there is none, or when the newest is damaged (names and sizes are compared, contents
    are not): it then names the older ones that are whole, for the person to choose; none is taken silently.
    """
    steps = checkpoint_steps(folder)
    if not steps:
        raise UserError(f"{folder.path} has no checkpoint yet: checkpoint.final or checkpoint.every_steps saves one")
    newest = folder.checkpoint_path(steps[-1])
    if damage := files.verify(newest, contents=False):
        older = [folder.checkpoint_path(step) for step in steps[:-1]]
        whole = [str(path) for path in older if not files.verify(path, contents=False)]
        raise UserError(
            f"{newest} is damaged: {'; '.join(damage)}. "
            + (f"Older ones that are whole: {', '.join(whole)}" if whole else "No older one is whole")
        )
    return newest


def resolve_checkpoint(path: Path) -> Path:
    """The model folder that `path` names: a checkpoint, or the last checkpoint of a run folder.

    Raises UserError when it is neither, or when the checkpoint is damaged (contents are compared, too).
    """
    if (path / MARKER).is_file():
        path = last_checkpoint(RunFolder.open(path))
    elif not path.is_dir():
        raise UserError(f"{path} does not exist; name a checkpoint folder (.../checkpoints/step_N) or a run folder")
    if damage := files.verify(path):
        raise UserError(f"{path} is damaged, or no checkpoint of a run: {'; '.join(damage)}")
    return path


def _describe(folder: Path) -> str:
    try:
        marker = json.loads((folder / MARKER).read_text())
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(marker["started"]))
        return f"started {started} by process {marker['pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"found {MARKER}"  # the other run is just writing it


def _taken(folder: Path, evidence: str) -> str:
    return (
        f"run.dir={folder} already holds a run ({evidence}). "
        "Choose another run.dir, or move that folder away; two runs are never mixed in one"
    )


def _unwritable(folder: Path, error: OSError) -> str:
    return f"run.dir={folder} cannot be written: {error.strerror}. Mend that, or choose another run.dir"
