"""Prompts become token ids with exactly the special tokens that belong there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr.errors import UserError
from rlvr.models import encode_prompt, load_tokenizer
from rlvr.records import Prompt
from tests.tiny import make_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def tokenizer(folder):
    return load_tokenizer(folder)


def with_special_tokens(tokenizer, single: str):
    """Let it wrap every text, as Llama's tokenizers do."""
    from tokenizers.processors import TemplateProcessing

    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    return tokenizer


def text_prompt(text: str) -> Prompt:
    return Prompt(id="p", reference="", text=text)


def test_text_gets_no_special_token_where_the_tokenizer_adds_none(tokenizer):
    ids = encode_prompt(tokenizer, text_prompt("2 + 2 = "))
    assert tokenizer.decode(ids) == "2 + 2 = "


def test_text_gets_the_tokenizers_own_beginning_once(tokenizer):
    with_special_tokens(tokenizer, "<s> $A")
    once = encode_prompt(tokenizer, text_prompt("2 + 2"))
    assert once[0] == tokenizer.bos_token_id and once[1:].count(tokenizer.bos_token_id) == 0
    assert encode_prompt(tokenizer, text_prompt("<s>2 + 2")) == once


def test_text_is_left_open_even_by_a_tokenizer_that_closes_it(tokenizer):
    with_special_tokens(tokenizer, "<s> $A </s>")
    assert encode_prompt(tokenizer, text_prompt("2 + 2"))[-1] != tokenizer.eos_token_id
    closed = encode_prompt(tokenizer, text_prompt("2 + 2</s>"))
    assert closed[-1] == tokenizer.eos_token_id != closed[-2]


def test_messages_go_through_the_template_and_open_the_assistants_turn(tokenizer):
    with_special_tokens(tokenizer, "<s> $A </s>")  # what the template writes is not wrapped again
    messages = ({"role": "user", "content": "2 + 2?"},)
    ids = encode_prompt(tokenizer, Prompt(id="p", reference="", messages=messages))
    assert tokenizer.decode(ids) == "user: 2 + 2?</s>assistant: "


def test_messages_without_a_chat_template_say_what_to_change(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"no chat template.*task\.template=plain"):
        encode_prompt(tokenizer, Prompt(id="p", reference="", messages=({"role": "user", "content": "x"},)))


def test_a_template_that_refuses_the_messages_is_reported(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(UserError, match="refuses prompt 'p': System role not supported"):
        encode_prompt(tokenizer, Prompt(id="p", reference="", messages=({"role": "system", "content": "x"},)))


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="the tokenizer in"):
        load_tokenizer(tmp_path)
