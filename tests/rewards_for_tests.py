"""User-written reward functions, named in tests as module:function."""

from __future__ import annotations

DIGITS = set("0123456789")


def digit_share(sample) -> float:
    """Share of digits in the completion: even random weights earn some, so learning shows within seconds."""
    text = sample.completion
    return sum(character in DIGITS for character in text) / len(text) if text else 0.0
