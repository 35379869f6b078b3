"""Values become strict JSON without broken Unicode and without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.errors import UserError
from rlvr.records import Part, Status
from rlvr.tracking.text import REDACTED, clean, is_secret_name, plain, redact, to_json


@given(st.text(st.characters()))
def test_any_text_can_be_encoded_and_read_back(text):
    assert json.loads(to_json({"text": text}))["text"] == clean(text)
    clean(text).encode()


def test_lone_surrogates_and_nuls_are_handled():
    assert clean("a\ud800b\0") == "a\ufffdb\0"
    assert json.loads(to_json("x\udfff\0\u2028")) == "x\ufffd\0\u2028"
    assert "\u2028" not in to_json("\u2028"), "some readers split lines there"


def test_what_is_not_finite_becomes_null_and_is_noted():
    noted: dict[str, str] = {}
    found = plain({"a": float("nan"), "b": [1.5, np.float32("inf")], "c": {"d": -np.inf}}, noted)
    assert found == {"a": None, "b": [1.5, None], "c": {"d": None}}
    assert noted == {"a": "nan", "b[1]": "inf", "c.d": "-inf"}


def test_numpy_enums_paths_dataclasses_and_errors_have_a_form():
    value = {
        "i": np.int64(3),
        "f": np.float32(0.5),
        "b": np.bool_(True),
        "array": np.arange(3),
        "scalar": np.array(2.0),
        "status": Status.OK,
        "path": Path("a/b"),
        "part": Part(None, 1.0, Status.TIMEOUT),
        "error": UserError("no such file"),
        "set": {"b", "a"},
    }
    assert plain(value) == {
        "i": 3,
        "f": 0.5,
        "b": True,
        "array": [0, 1, 2],
        "scalar": 2.0,
        "status": "ok",
        "path": "a/b",
        "part": {"score": None, "weight": 1.0, "status": "timeout", "evidence": ""},
        "error": "UserError: no such file",
        "set": ["a", "b"],
    }
    with pytest.raises(TypeError, match=r"x\.y is a object"):
        plain({"x": {"y": object()}})


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "api_key", "db.password", "token"]
)
def test_names_of_secrets_are_known(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["tokens", "generation_tokens", "max_new_tokens", "PATH", "tokens_per_s", "key", "pad_token"]
)
def test_names_of_other_things_are_not_secrets(name):
    assert not is_secret_name(name)


def test_secrets_are_replaced_by_name_and_by_value(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setenv("SHORT_TOKEN", "true")
    assert redact("401 for key 0123456789abcdef, true") == f"401 for key {REDACTED}, true"
    assert plain({"wandb": {"api_key": "hush"}, "tokens": 3}) == {"wandb": {"api_key": REDACTED}, "tokens": 3}
    assert plain(RuntimeError("0123456789abcdef")) == f"RuntimeError: {REDACTED}"
