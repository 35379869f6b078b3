"""The documentation of the keys, and the verb that prints it."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from rlvr import config as config_module
from rlvr import schema
from rlvr.compose import compose
from rlvr.describe import entries
from rlvr.errors import ConfigError
from rlvr.launch import config_verb


def test_every_key_is_described_with_type_default_and_meaning():
    described = {entry.name: entry for entry in entries()}
    assert list(described) == [key.name for key in schema.leaves()]
    for entry in described.values():
        assert entry.type and entry.default, entry
        assert len(entry.doc) > 10, f"{entry.name} has no docstring"
    lr = described["learner.lr"]
    assert (lr.type, lr.default) == ("float", "1e-05")
    assert described["model.path"].default == "required"
    assert described["model.dtype"].type == "float32 | bfloat16"
    assert described["rollout.temperature_end"].type == "float or null"
    assert described["task.fields.prompt"].conditions == ("task.name in jsonl,hub",)
    assert described["reward.criteria.<name>.verifier"].doc.startswith("Name of a registered verifier")


def test_no_field_of_the_schema_escapes_the_listing():
    declared = {
        (cls.__name__, field.name)
        for cls in vars(config_module).values()
        if dataclasses.is_dataclass(cls)
        for field in dataclasses.fields(cls)
    }
    sections = {(key.owner[0].__name__, key.owner[1]) for key in schema.sections() if key.owner}
    listed = {(key.owner[0].__name__, key.owner[1]) for key in schema.leaves() if key.owner}
    assert declared == listed | sections


def test_the_verb_prints_every_key(capsys):
    assert config_verb.main("", ()) == 0
    printed = capsys.readouterr().out
    for key in schema.leaves():
        assert f"\n{key.name}: " in f"\n{printed}"
    assert "(only when algorithm.kl.coef > 0)" in printed


def test_the_verb_prints_every_key_on_a_terminal_too(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert config_verb.main("", ()) == 0
    printed = capsys.readouterr().out
    assert all(key.name in printed for key in schema.leaves())


def test_with_a_configuration_the_verb_prints_what_it_resolves_to(capsys):
    assert config_verb.main("quickstart_kl", ("run.steps=3",)) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    config = compose("quickstart_kl", ["run.steps=3"]).config
    assert printed["run"]["steps"] == 3
    assert printed["algorithm"]["kl"] == {"coef": config.algorithm.kl.coef, "place": "loss", "estimator": "k3"}
    assert "fields" not in printed["task"]  # no effect with generated problems


def test_the_verb_refuses_what_a_run_would_refuse():
    with pytest.raises(ConfigError):
        config_verb.main("", ("run.step=3",))
