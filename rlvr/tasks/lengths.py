"""Which prompts are too long for the model. The driver, which has the tokenizer, supplies the lengths."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.errors import DataError
from rlvr.records import Prompt
from rlvr.tasks.rows import BadRow, refusal

_ADVICE = "raise task.max_prompt_tokens or model.max_length, or lower max_new_tokens or task.few_shot.k"


def check_lengths(
    prompts: Sequence[Prompt], lengths: Sequence[int], limit: int, on_bad_row: str
) -> tuple[list[Prompt], list[BadRow]]:
    """Split `prompts`, of `lengths` tokens each, into those within `limit` tokens and the rest as bad rows.

    Raises DataError when one is too long and `on_bad_row` is "error", or when none is left.
    """
    kept: list[Prompt] = []
    bad: list[BadRow] = []
    for prompt, length in zip(prompts, lengths, strict=True):
        if length <= limit:
            kept.append(prompt)
        else:
            reason = f"prompt {prompt.id!r} has {length} tokens, and the limit is {limit}; {_ADVICE}"
            bad.append(BadRow(str(prompt.extra.get("file", "")), int(prompt.extra.get("line", 0)), reason))
    if bad and on_bad_row == "error":
        raise refusal(bad)
    if prompts and not kept:
        shortest = min(lengths)
        raise DataError(
            f"all {len(prompts)} prompts are longer than {limit} tokens, the shortest has {shortest}; {_ADVICE}"
        )
    return kept, bad
