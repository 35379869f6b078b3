"""How a configuration comes about: files that extend each other, then key=value overrides, then all checks at once.

There is no interpolation, because prompts are full of `${x}`. YAML words follow YAML 1.2, so `off` is a word and 1e-5
a number. Must not know what any key is for (checks.py does) or how files are read (sources.py does).
"""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlvr import checks, schema, sources
from rlvr.config import Config
from rlvr.errors import ConfigError
from rlvr.schema import Key
from rlvr.sources import Entry, packaged_names
from rlvr.yaml12 import dump

__all__ = ["Composed", "compose", "packaged_names", "save", "to_yaml"]

_HEADER = """\
# The resolved configuration of a run. To do the same again: conf=<this file> run.dir=<a new folder>
# Keys that have no effect under these settings are left out.
"""


@dataclass(frozen=True)
class Composed:
    """A configuration that passed every check, and where it came from."""

    config: Config
    name: str
    """Name of the configuration: that of its file without .yaml, or `custom` when there was none."""
    provenance: dict[str, str] = field(default_factory=dict)
    """Source of each key that was set: `folder/file.yaml:12` or `command line`. Other keys have their defaults."""


def compose(conf: str = "", overrides: Sequence[str] = ()) -> Composed:
    """Load `conf`, apply `overrides` in order, and check the result.

    conf: name of a packaged configuration, or a path (it has a "/" or ends in .yaml). Empty: defaults only.
    overrides: `dotted.key=value`, the value in YAML. `reward.criteria.<name>=null` removes a criterion, and
    `reward.criteria=null` all of those set before.
    Raises ConfigError with every problem found.
    """
    problems: list[str] = []
    merged: dict[schema.Path, Entry] = {}
    files = sources.chain(conf) if conf else []
    written = chain.from_iterable(
        [*(sources.file_entries(file, problems) for file in files),
         *(sources.override_entries(override, problems) for override in overrides)]
    )  # fmt: skip
    for entry in written:
        _put(merged, entry, problems)
        if entry.path == sources.PRESET:
            for preset_entry in sources.preset_entries(str(entry.value), problems):
                _put(merged, preset_entry, problems)
    config = _build(merged, problems)
    problems += checks.check(config)
    problems += _inert(merged.values(), config)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    provenance = {".".join(path): entry.source for path, entry in merged.items()}
    return Composed(config, Path(conf).stem if conf else "custom", provenance)


def to_yaml(config: Config) -> str:
    """The configuration as YAML. Keys that have no effect are left out, so that loading it again is no error."""
    return dump(_plain(Key(), config, config))


def save(config: Config, path: Path) -> None:
    """Write the configuration to `path`, atomically; `conf=<path>` then reproduces it. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_HEADER + to_yaml(config))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _put(merged: dict[schema.Path, Entry], entry: Entry, problems: list[str]) -> None:
    """Let `entry` take the place of whatever was set before at its path, above it and below it."""
    path = entry.path
    below = [other for other in merged if other[: len(path)] == path and other != path]
    above = [path[:length] for length in range(1, len(path)) if path[:length] in merged]
    for other in [*below, *above]:
        del merged[other]
    key = cast(Key, schema.find(path))
    if key.is_section or key.entry_hint is not None:  # only a removal arrives here with such a path
        if not below:
            problems.append(f"{key.name} ({entry.source}): nothing is set there that could be removed")
        return
    merged[path] = entry


def _build(merged: dict[schema.Path, Entry], problems: list[str]) -> Config:
    """The configuration of all entries that fit; a problem for each of those that do not, and for what is missing."""
    tree = OmegaConf.structured(Config)
    misfits: set[str] = set()
    try:
        tree = OmegaConf.merge(tree, _nest(merged.values()))
    except (OmegaConfBaseException, TypeError, ValueError):
        for entry in merged.values():  # find every culprit, not only the first
            try:
                tree = OmegaConf.merge(tree, _nest([entry]))
            except (OmegaConfBaseException, TypeError, ValueError):
                problems.append(_mismatch(entry))
                misfits.add(".".join(entry.path))
    for name in sorted(OmegaConf.missing_keys(tree)):
        if name not in misfits:
            problems.append(f"{name} is not set, and it has no default")
        OmegaConf.update(tree, name, "")
    return cast(Config, OmegaConf.to_object(cast(DictConfig, tree)))


def _nest(entries: Iterable[Entry]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for entry in entries:
        *parents, last = entry.path
        here = tree
        for part in parents:
            here = here.setdefault(part, {})
        here[last] = _literal(entry.value)
    return tree


def _literal(value: Any) -> Any:
    """`value` such that OmegaConf reads no interpolation into its text."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, dict):
        return {name: _literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value


def _mismatch(entry: Entry) -> str:
    key = cast(Key, schema.find(entry.path))
    shown = "null" if entry.value is None else repr(entry.value)
    return f"{key.name} ({entry.source}): expected {schema.type_text(key.hint)}, got {shown}"


def _inert(entries: Iterable[Entry], config: Config) -> list[str]:
    return [
        f"{'.'.join(entry.path)} ({entry.source}) has no effect unless {condition}"
        for entry in entries
        if entry.by_user
        for condition in cast(Key, schema.find(entry.path)).conditions
        if not schema.holds(condition, config)
    ]


def _plain(key: Key, value: Any, config: Config) -> Any:
    """The dataclass `value` at `key` as plain mappings, without the keys that have no effect."""
    if dataclasses.is_dataclass(value):
        live = [child for child in schema.children(key) if all(schema.holds(c, config) for c in child.conditions)]
        return {child.path[-1]: _plain(child, getattr(value, child.path[-1]), config) for child in live}
    if key.entry_hint is not None:
        return {name: _plain(Key((*key.path, name), key.entry_hint), item, config) for name, item in value.items()}
    return value
