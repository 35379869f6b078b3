"""What a verifier is shown: one completion of one problem, as plain text and plain data.

Must not know how a completion was made (no logprobs, no weight versions) nor what is done with the score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr.records import Group, Message


@dataclass(frozen=True)
class Sample:
    """One completion to judge. The first argument of every verifier."""

    completion: str
    """What the model wrote, without the stop string."""
    reference: str = ""
    """The reference answer, as the task gives it."""
    prompt: str | tuple[Message, ...] = ""
    """The problem: text, or the messages of a conversation."""
    truncated: bool = False
    """The length limit ended the completion."""
    token_ids: tuple[int, ...] = ()
    """The sampled tokens."""
    category: str = ""
    """Category of the problem."""
    prompt_id: str = ""
    """Stable id of the problem."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The data set's other columns."""
    locale: str = ""
    """How this problem's numbers are written, e.g. es-MX; empty: as the verifier's options say."""


def samples_of(group: Group) -> list[Sample]:
    """The completions of a group as samples, in order."""
    prompt = group.prompt
    return [
        Sample(
            completion=completion.text,
            reference=prompt.reference,
            prompt=prompt.text if prompt.text is not None else tuple(prompt.messages or ()),
            truncated=completion.truncated,
            token_ids=completion.token_ids,
            category=prompt.category,
            prompt_id=prompt.id,
            extra=prompt.extra,
            locale=str(prompt.extra.get("locale") or ""),
        )
        for completion in group.completions
    ]
