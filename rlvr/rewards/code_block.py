"""Which part of a completion is the program. Pure text work; must not know what is done with it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from rlvr.rewards.extract import final_region

_BLOCK = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n`]*\n(.*?)(^[ \t]*\1[`~]*[ \t]*$|\Z)", re.M | re.S)
_TAGS = frozenset({"", "python", "py", "python3"})


@dataclass(frozen=True)
class Block:
    """A program as it stands in a completion."""

    code: str
    fenced: bool
    closed: bool


def program(text: str) -> Block | None:
    """The last fenced Python block after a closed think block; without any fence, the whole text. None: there is none.

    A block that is begun and not closed is the last one too: a program that was cut off is not replaced by an earlier.
    """
    begin = final_region(text)
    if begin is None:
        return None
    region = text[begin:]
    blocks = [match for match in _BLOCK.finditer(region) if match[2].lower() in _TAGS]
    if blocks:
        last = blocks[-1]
        return Block(textwrap.dedent(last[3]), True, bool(last[4]))
    if not region.strip() or "```" in region:
        return None
    return Block(textwrap.dedent(region).lstrip(), False, False)
