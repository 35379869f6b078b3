"""What the driver asks of a model folder: its tokenizer, its context length, and a prompt's token ids.

Transformers is imported inside the functions: it costs seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlvr.errors import DataError, UserError
from rlvr.models.folder import read_config
from rlvr.records import Prompt

# The names that architectures use for their longest sequence.
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx", "max_sequence_length")


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer saved in `folder`; never asks the hub, never runs code of the model's."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"the tokenizer in {folder} cannot be loaded: {error}") from error


def context_length(folder: Path) -> int:
    """Tokens that the model in `folder` can attend over, by its config.json."""
    config = read_config(folder)
    text = config.get("text_config")  # multimodal models keep the language model's configuration here
    for source in (config, text if isinstance(text, dict) else {}):
        for name in _LENGTH_KEYS:
            value = source.get(name)
            if isinstance(value, int) and value > 0:
                return value
    raise UserError(
        f"{Path(folder) / 'config.json'} does not say how long the model's context is "
        f"(none of {', '.join(_LENGTH_KEYS)}); set model.max_length"
    )


def encode_prompt(tokenizer: Any, prompt: Prompt) -> tuple[int, ...]:
    """Token ids of `prompt`, ready to be continued.

    Text gets the tokenizer's own beginning-of-sequence token, once, and no end-of-sequence token. Messages go
    through the chat template, which writes its special tokens itself, and end with the opening of the
    assistant's turn. Raises DataError when the prompt cannot be encoded.
    """
    ids = _encode_text(tokenizer, prompt.text) if prompt.text is not None else _encode_messages(tokenizer, prompt)
    if not ids:
        raise DataError(f"prompt {prompt.id!r} has no tokens")
    return tuple(ids)


def _encode_text(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text).input_ids
    bare: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    if len(ids) > len(bare) and ids[-len(bare) - 1 : -1] == bare and ids[-1] == tokenizer.eos_token_id:
        ids = ids[:-1]  # a tokenizer that closes every text would make the model start a new one
    bos = tokenizer.bos_token_id
    if len(ids) > len(bare) and bos is not None and ids[:2] == [bos, bos]:
        ids = ids[1:]  # the text itself begins with the token that the tokenizer adds
    return ids


def _encode_messages(tokenizer: Any, prompt: Prompt) -> list[int]:
    if not tokenizer.chat_template:
        raise UserError(
            "the model has no chat template, and task.template=chat needs one. "
            "Use task.template=plain, or an instruction-tuned model"
        )
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in prompt.messages or ()], tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:  # e.g. a template that accepts no system message
        raise UserError(f"the model's chat template refuses prompt {prompt.id!r}: {error}") from error
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids
