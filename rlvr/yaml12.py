"""Reading and writing YAML by the scalar rules of version 1.2, which PyYAML alone does not follow.

Under PyYAML's rules `off` is false, `1e-5` is text, `010` is 8 and `1:30` is 90: each would turn a configuration into
another one without a word. A key given twice is refused. Knows nothing of configurations.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
#: Tag of a node that stands for nothing.
NULL = _TAG + "null"
_RULES: list[tuple[str, str, str]] = [
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
]


def _resolvers() -> dict[Any, list[tuple[str, re.Pattern[str]]]]:
    table: dict[Any, list[tuple[str, re.Pattern[str]]]] = {}
    for name, pattern, first in _RULES:
        rule = (_TAG + name, re.compile(f"(?:{pattern})\\Z"))
        for character in [*first, *([""] if name == "null" else [])]:
            table.setdefault(character, []).append(rule)
    return table


class Loader(yaml.SafeLoader):
    """Builds plain Python values only."""

    yaml_implicit_resolvers = _resolvers()

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.composer.ComposerError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                message = f"key {key.value!r} stands twice, here and in line {seen[key.value]}"
                raise yaml.composer.ComposerError(None, None, message, key.start_mark)
            seen[key.value] = line
        return node


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _float(dumper: _Dumper, value: float) -> yaml.ScalarNode:
    if value != value or value in (float("inf"), float("-inf")):
        return yaml.SafeDumper.represent_float(dumper, value)
    return dumper.represent_scalar(_TAG + "float", repr(value))


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    # PyYAML takes these for printable, writes them as they are, and reads them back as line breaks.
    quoted = any(character in "\x85\u2028\u2029" for character in value)
    return dumper.represent_scalar(_TAG + "str", value, style='"' if quoted else None)


_Dumper.add_representer(float, _float)
_Dumper.add_representer(str, _text)


def dump(value: Any, *, flow: bool = False) -> str:
    """`value`, of plain Python types, as YAML text that Loader reads back equal. Mappings keep their order.

    flow: on one line, in brackets.
    """
    width = float("inf") if flow else 100
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width, default_flow_style=flow)
