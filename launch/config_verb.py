"""The verb `config`: the documentation of every key, or a resolved configuration as YAML. Starts nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rlvr.compose import compose, to_yaml
from rlvr.describe import Entry, entries
from rlvr.errors import ConfigError
from rlvr.launch.verifiers import unknown_verifiers


def main(conf: str, overrides: Sequence[str]) -> int:
    """Print every key; with a configuration or overrides, print what they resolve to. Raises ConfigError."""
    if conf or overrides:
        config = compose(conf, overrides).config
        if problems := unknown_verifiers(config):
            raise ConfigError(problems)
        sys.stdout.write(to_yaml(config))
    elif sys.stdout.isatty():
        _print_coloured(entries())
    else:
        sys.stdout.write(plain(entries()))
    return 0


def plain(described: Iterable[Entry]) -> str:
    """One block of lines a key: `name: type = default`, then what it means."""
    return "\n".join(f"{entry.name}: {entry.type} = {entry.default}\n    {_meaning(entry)}\n" for entry in described)


def _meaning(entry: Entry) -> str:
    only = f" (only when {' and '.join(entry.conditions)})" if entry.conditions else ""
    return entry.doc + only


def _print_coloured(described: Iterable[Entry]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for entry in described:
        line = Text.assemble((entry.name, "bold cyan"), ": ", (entry.type, "green"), " = ", (entry.default, "yellow"))
        console.print(line, soft_wrap=True)
        console.print(Padding(Text(_meaning(entry)), (0, 0, 1, 4)))
