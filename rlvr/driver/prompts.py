"""From a task's prompts to prompts with token ids: lazily for training, and with the length limit checked up front.

Knows the tokenizer only as a function. Tokenising a whole data set of few-shot prompts takes long, so a
prompt is tokenised at the start only when its size in bytes leaves any doubt about the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlvr.records import Prompt

Encode = Callable[[Prompt], tuple[int, ...]]

TEMPLATE_ALLOWANCE = 2048
"""Tokens that a chat template may add around the messages, generously."""

SEAM_ALLOWANCE = 16
"""Tokens that special tokens, and the seam after a prefix that was tokenised by itself, may add to a text."""


def with_token_ids(prompt: Prompt, encode: Encode) -> Prompt:
    """The prompt with its token ids; unchanged where it has them."""
    return prompt if prompt.token_ids is not None else replace(prompt, token_ids=encode(prompt))


def lengths(prompts: Sequence[Prompt], encode: Encode, limit: int) -> list[int]:
    """Tokens of each prompt: exact where it might exceed `limit`, otherwise an upper bound below it.

    No tokenizer in use makes more tokens than bytes. What all texts begin with (the exemplars) is tokenised once.
    """
    prefix = _common_beginning([prompt.text for prompt in prompts if prompt.text is not None])
    prefix_tokens = len(encode(Prompt(id="prefix", reference="", text=prefix))) if prefix else 0

    def bound(prompt: Prompt) -> int:
        if prompt.text is not None:
            return prefix_tokens + _bytes(prompt.text[len(prefix) :]) + SEAM_ALLOWANCE
        return sum(_bytes(message["content"]) for message in prompt.messages or ()) + TEMPLATE_ALLOWANCE

    return [most if (most := bound(prompt)) <= limit else len(encode(prompt)) for prompt in prompts]


def _common_beginning(texts: Sequence[str]) -> str:
    if len(texts) < 2:
        return ""
    low, high = min(texts), max(texts)  # the extremes differ first where any two do
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", errors="surrogatepass"))
