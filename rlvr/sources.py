"""What people wrote: configuration files, what they extend, and key=value overrides, as one flat list of entries.

Text is taken literally. An entry knows where it was written, so that every complaint names file and line.
Must not know how entries are merged (compose.py) or what a key is for (checks.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rlvr import schema
from rlvr.errors import ConfigError
from rlvr.schema import Key
from rlvr.yaml12 import NULL, Loader

COMMAND_LINE = "command line"
#: The key whose value names a file of keys that take effect where it stands; in a file, before its neighbours.
PRESET = ("algorithm", "preset")


@dataclass(frozen=True)
class Entry:
    """One value that someone set. A None at a named entry or a mapping of those asks for its removal."""

    path: schema.Path
    value: Any
    source: str
    """`folder/file.yaml:12` or `command line`."""
    by_user: bool
    """False for what a packaged configuration says: it may carry keys that a user's choice makes inert."""


@dataclass(frozen=True)
class File:
    """The text of one configuration file. `folder` is where its relative `extends` start; None: packaged."""

    label: str
    text: str
    folder: Path | None

    @property
    def packaged(self) -> bool:
        return self.folder is None


def packaged_names() -> list[str]:
    """Names of the configurations that come with the package."""
    folder = resources.files("rlvr") / "conf"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def chain(conf: str) -> list[File]:
    """`conf` and the files that it extends, the most basic one first.

    Raises ConfigError when one cannot be read or found, or when they extend each other in a circle.
    """
    files = [_open(conf, None)]
    while reference := _extends(files[-1]):
        file = _open(reference, files[-1])
        if any((file.label, file.folder) == (seen.label, seen.folder) for seen in files):
            loop = " -> ".join([*(seen.label for seen in files), file.label])
            raise ConfigError(f"configuration files extend each other in a circle: {loop}")
        files.append(file)
    return files[::-1]


def file_entries(file: File, problems: list[str]) -> Iterator[Entry]:
    """What `file` itself sets. Keys that do not exist are added to `problems`."""
    root = _root(file)
    if root is not None:
        pairs = [pair for pair in root.value if pair[0].value != "extends"]
        walker = _Walker(Loader(file.text), not file.packaged, problems, file.label)
        yield from walker.walk(Key(), yaml.MappingNode(root.tag, pairs, root.start_mark, root.end_mark))


def preset_entries(name: str, problems: list[str]) -> Iterator[Entry]:
    """What the algorithm preset `name` sets. Nothing for a name that does not exist: the schema refuses it."""
    path = resources.files("rlvr") / "conf" / "algorithm" / f"{name}.yaml"
    if re.fullmatch(r"\w+", name) and path.is_file():
        label = f"rlvr/conf/algorithm/{name}.yaml"
        yield from file_entries(File(label, path.read_text(encoding="utf-8"), folder=None), problems)


def override_entries(override: str, problems: list[str]) -> Iterator[Entry]:
    """What one `dotted.key=value` of the command line sets; the value is YAML, or the text of a text key."""
    dotted, equals, text = override.partition("=")
    if not equals or not dotted or dotted.startswith("-"):
        problems.append(f"{override!r} ({COMMAND_LINE}) is not of the form key=value")
        return
    path = tuple(dotted.split("."))
    key = schema.find(path)
    if key is None:
        problems.append(_unknown(path, COMMAND_LINE))
        return
    node: yaml.Node | None = None
    try:
        node = Loader(text).get_single_node()
    except yaml.YAMLError as error:
        if key.hint is not str:
            problems.append(f"{dotted} ({COMMAND_LINE}): cannot read {text!r}: {_reason(error)}")
            return
    if key.hint is str and not isinstance(node, yaml.ScalarNode):
        # Text that happens to look like YAML, as in task.instruction=Answer: yes, or no text at all.
        yield Entry(path, text, COMMAND_LINE, by_user=True)
    elif node is None:
        problems.append(f"{dotted} ({COMMAND_LINE}) has no value; expected {schema.type_text(key.hint)}")
    else:
        yield from _Walker(Loader(text), True, problems, "").walk(key, node)


def _open(reference: str, parent: File | None) -> File:
    if "/" in reference or reference.endswith((".yaml", ".yml")):
        return _open_path(reference, parent)
    names = packaged_names()
    if reference not in names:
        said = f"{parent.label} extends {reference!r}, but there" if parent else "There"
        text = f"{said} is no packaged configuration {reference!r}. There are: {', '.join(names)}."
        if close := difflib.get_close_matches(reference, names, n=1):
            text += f" Did you mean {close[0]}?"
        raise ConfigError(f"{text} A file of your own is named by its path, as in ./{reference}.yaml")
    text = (resources.files("rlvr") / "conf" / f"{reference}.yaml").read_text(encoding="utf-8")
    return File(f"rlvr/conf/{reference}.yaml", text, folder=None)


def _open_path(reference: str, parent: File | None) -> File:
    if parent is not None and parent.folder is None:
        raise ConfigError(f"{parent.label}: a packaged configuration extends packaged ones only, not {reference}")
    start = parent.folder if parent is not None and parent.folder is not None else Path.cwd()
    path = (start / Path(reference).expanduser()).resolve()
    label = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    try:
        return File(label, path.read_text(encoding="utf-8"), path.parent)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        said = f", which {parent.label} extends" if parent else ""
        raise ConfigError(f"cannot read the configuration {label}{said}: {reason}") from None


def _root(file: File) -> yaml.MappingNode | None:
    try:
        node = Loader(file.text).get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError(f"{file.label}: {_reason(error)}") from None
    if node is None or isinstance(node, yaml.MappingNode):
        return node
    raise ConfigError(f"{file.label}: a configuration is a mapping of keys to values")


def _extends(file: File) -> str:
    root = _root(file)
    for key, value in root.value if root else []:
        if key.value == "extends":
            if isinstance(value, yaml.ScalarNode) and value.value and value.tag != NULL:
                return str(value.value)
            raise ConfigError(f"{_place(file.label, value)}: extends takes the name or path of one configuration")
    return ""


@dataclass
class _Walker:
    """Flattens YAML nodes into entries along the schema, and collects what does not fit it."""

    loader: Loader
    by_user: bool
    problems: list[str]
    label: str
    """Of the file; empty for the command line."""

    def walk(self, key: Key, node: yaml.Node) -> Iterator[Entry]:
        source = _place(self.label, node)
        nested = key.is_section or key.entry_hint is not None
        null = node.tag == NULL
        if isinstance(node, yaml.MappingNode) and (nested or (key.is_free and node.value)):
            for word, value in sorted(node.value, key=lambda pair: not self._is_preset(key, pair[0])):
                yield from self._walk_child(key, word, value)
        elif nested and null and not node.value:
            return  # a section of which every line is commented out
        elif nested and null and not (key.is_section and key.owner is not None):
            yield Entry(key.path, None, source, self.by_user)
        elif nested:
            self.problems.append(f"{key.name} ({source}) is a section of keys, and takes no value of its own")
        else:
            yield Entry(key.path, self._value(key, node), source, self.by_user)

    @staticmethod
    def _is_preset(key: Key, word: yaml.Node) -> bool:
        return (*key.path, str(word.value)) == PRESET

    def _walk_child(self, key: Key, word: yaml.Node, value: yaml.Node) -> Iterator[Entry]:
        # A file may say `run.steps: 3` for `run: {steps: 3}`; names that the user chooses are left whole.
        parts = str(word.value).split(".") if key.is_section else [str(word.value)]
        path = (*key.path, *parts)
        child = schema.find(path)
        if child is None:
            self.problems.append(_unknown(path, _place(self.label, word)))
        else:
            yield from self.walk(child, value)

    def _value(self, key: Key, node: yaml.Node) -> Any:
        if key.hint is str and isinstance(node, yaml.ScalarNode) and node.tag != NULL:
            return node.value  # run.name: 007 is text
        try:
            return self.loader.construct_object(node, deep=True)
        except yaml.YAMLError as error:
            self.problems.append(f"{key.name} ({_place(self.label, node)}): {_reason(error)}")
            return None


def _reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {reason}" if mark else reason


def _place(label: str, node: yaml.Node) -> str:
    return f"{label}:{node.start_mark.line + 1}" if label else COMMAND_LINE


def _unknown(path: schema.Path, source: str) -> str:
    text = f"unknown key {'.'.join(path)} ({source})"
    suggestions = schema.suggest(path)
    return f"{text}. Did you mean {' or '.join(suggestions)}?" if suggestions else text
