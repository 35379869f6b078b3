"""From a task's prompts to prompts with token ids: lazily for training, and with the length limit checked up front.

Knows the tokenizer only as a function. Tokenising a whole data set of few-shot prompts takes long, so a
prompt is tokenised at the start only when its size in bytes leaves any doubt about the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlvr.records import Prompt

Encode = Callable[[Prompt], tuple[int, ...]]

TEMPLATE_ALLOWANCE_BYTES = 2048
"""What a chat template may add around the messages, generously."""


def with_token_ids(prompt: Prompt, encode: Encode) -> Prompt:
    """The prompt with its token ids; unchanged where it has them."""
    return prompt if prompt.token_ids is not None else replace(prompt, token_ids=encode(prompt))


def length_bound(prompt: Prompt) -> int:
    """An upper bound on the number of tokens: no tokenizer in use makes more tokens than bytes."""
    texts = [prompt.text] if prompt.text is not None else [m["content"] for m in prompt.messages or ()]
    return sum(len(text.encode("utf-8", errors="surrogatepass")) for text in texts) + TEMPLATE_ALLOWANCE_BYTES


def lengths(prompts: Sequence[Prompt], encode: Encode, limit: int) -> list[int]:
    """Tokens of each prompt: exact where it might exceed `limit`, otherwise an upper bound below it."""
    return [bound if (bound := length_bound(prompt)) <= limit else len(encode(prompt)) for prompt in prompts]
