"""Files, what they extend, overrides: what comes out, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlvr import schema
from rlvr.compose import compose, packaged_names, save
from rlvr.config import Config, CriterionConfig
from rlvr.errors import ConfigError
from rlvr.yaml12 import Loader, dump

MODEL = "model.path=some/model"
CRITERION = "reward.criteria.answer.verifier=numeric_answer"


def problems(conf: str = "quickstart", *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        compose(conf, overrides)
    return caught.value.problems


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", packaged_names())
def test_every_shipped_configuration_is_valid(name):
    composed = compose(name)
    assert composed.name == name
    assert isinstance(composed.config, Config)


@pytest.mark.parametrize("name", packaged_names())
def test_every_shipped_configuration_sets_only_keys_that_have_an_effect(name, tmp_path, repository):
    # Read as a file of the user's own, where a key without effect is an error.
    for source in (repository / "conf").glob("*.yaml"):
        (tmp_path / source.name).write_text(source.read_text().replace("extends: ", "extends: ./"))
    text = (tmp_path / f"{name}.yaml").read_text()
    lines = [line + ".yaml" if line.startswith("extends: ") else line for line in text.splitlines()]
    compose(write(tmp_path / "copy.yaml", "\n".join(lines)))


def test_shipped_configurations_explain_themselves(repository):
    for path in (repository / "conf").glob("*.yaml"):
        assert path.read_text().startswith("# "), path


def test_without_a_file_the_defaults_hold_but_what_has_none_must_be_set():
    assert "model.path is not set, and it has no default" in problems("")
    config = compose("", [MODEL, CRITERION]).config
    assert config == dataclasses.replace(
        Config(),
        model=dataclasses.replace(Config().model, path="some/model"),
        reward=dataclasses.replace(Config().reward, criteria={"answer": CriterionConfig("numeric_answer")}),
    )


def test_sections_are_real_dataclasses():
    config = compose("quickstart").config
    for key in schema.sections():
        if key.is_section:
            assert type(schema.value_at(config, key.path)) is key.hint
    assert isinstance(config.reward.criteria["answer"], CriterionConfig)


def test_overrides_win_over_files_and_later_ones_over_earlier_ones(tmp_path):
    mine = write(tmp_path / "mine.yaml", "extends: quickstart\nrun: {steps: 3}\n")
    assert compose(mine).config.run.steps == 3
    assert compose(mine, ["run.steps=4", "run.steps=5"]).config.run.steps == 5


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("learner.lr=1e-5", "learner.lr", 1e-5),
        ("learner.lr=1", "learner.lr", 1.0),
        ("rollout.temperature_end=null", "rollout.temperature_end", None),
        ("rollout.temperature_end=0.5", "rollout.temperature_end", 0.5),
        ("run.name=007", "run.name", "007"),
        ("run.name=", "run.name", ""),
        ("run.name='quoted'", "run.name", "quoted"),
        ("run.name=off", "run.name", "off"),
        ("task.instruction=Answer: yes", "task.instruction", "Answer: yes"),
        ("task.instruction=Let ${x} be $5, \\${y}", "task.instruction", "Let ${x} be $5, \\${y}"),
        ("task.instruction=[a", "task.instruction", "[a"),
        ("task.stop=[a, 'b: c', 1]", "task.stop", ["a", "b: c", "1"]),
        (r'task.stop=["\n\n"]', "task.stop", ["\n\n"]),
        ("track.wandb=offline", "track.wandb", "offline"),
        ("learner.overlap=off", "learner.overlap", "off"),
        ("learner.overlap=on", "learner.overlap", "on"),
        ("learner.share_prefix=false", "learner.share_prefix", False),
        ("reward.criteria.answer.weight=2", "reward.criteria.answer.weight", 2.0),
        ("reward.criteria.answer.options.deep.er=[1]", "reward.criteria.answer.options", {"deep": {"er": [1]}}),
        ("reward.criteria.answer.options={a: 1e-3, b: off}", "reward.criteria.answer.options", {"a": 1e-3, "b": "off"}),
    ],
)
def test_a_value_of_the_command_line_is_read_as_its_key_takes_it(override, path, value):
    composed = compose("quickstart", [override])
    assert schema.value_at(composed.config, path.split(".")) == value
    assert any(source == "command line" for source in composed.provenance.values())


def test_yaml_words_are_those_of_version_1_2(tmp_path):
    mine = write(
        tmp_path / "mine.yaml",
        "extends: quickstart\ntrack: {wandb: off}\nlearner: {overlap: on, lr: 3e-6}\nrun.name: 1:30\n",
    )
    config = compose(mine).config
    assert (config.track.wandb, config.learner.overlap, config.learner.lr) == ("off", "on", 3e-6)
    assert config.run.name == "1:30"


def test_criteria_are_added_changed_removed_and_replaced(tmp_path):
    mine = write(
        tmp_path / "mine.yaml",
        "extends: quickstart\nreward: {criteria: {format: {verifier: answer_format, weight: 0.1}}}\n",
    )
    assert list(compose(mine).config.reward.criteria) == ["answer", "format"]  # the base's come first
    assert list(compose(mine, ["reward.criteria.answer=null"]).config.reward.criteria) == ["format"]
    replaced = compose(mine, ["reward.criteria=null", "reward.criteria.mine.verifier=my.module:judge"])
    assert replaced.config.reward.criteria == {"mine": CriterionConfig("my.module:judge")}
    assert problems(mine, "reward.criteria.fromat=null") == [
        "reward.criteria.fromat (command line): nothing is set there that could be removed"
    ]


def test_a_section_with_every_line_commented_out_changes_nothing(tmp_path):
    mine = write(tmp_path / "mine.yaml", "extends: quickstart\nrun:\n#  steps: 3\nreward:\n  criteria:\n")
    assert compose(mine).config == compose("quickstart").config


def test_extends_is_relative_to_its_file_and_goes_on(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "base.yaml", "extends: quickstart\nrun.steps: 2\nrun.seed: 2\n")
    write(tmp_path / "sub" / "middle.yaml", "extends: ../base.yaml\nrun.steps: 3\n")
    top = write(tmp_path / "sub" / "top.yaml", "extends: middle.yaml\nlearner.lr: 2e-5\n")
    monkeypatch.chdir("/")
    composed = compose(top)
    assert (composed.config.run.steps, composed.config.run.seed, composed.config.learner.lr) == (3, 2, 2e-5)
    assert composed.provenance["run.steps"].endswith("sub/middle.yaml:2")
    assert composed.provenance["model.path"].startswith("rlvr/conf/quickstart.yaml:")


def test_files_that_extend_each_other_are_refused(tmp_path):
    write(tmp_path / "a.yaml", "extends: b.yaml\n")
    write(tmp_path / "b.yaml", "extends: ./a.yaml\n")
    [problem] = problems(str(tmp_path / "a.yaml"))
    assert "in a circle" in problem and "a.yaml -> " in problem


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert problems("./none.yaml") == ["cannot read the configuration none.yaml: No such file or directory"]
    child = write(tmp_path / "child.yaml", "extends: none.yaml\n")
    assert problems(child) == [
        "cannot read the configuration none.yaml, which child.yaml extends: No such file or directory"
    ]


def test_an_unknown_packaged_configuration_gets_a_suggestion():
    [problem] = problems("gsm8")
    assert "Did you mean gsm8k?" in problem and "quickstart" in problem and "./gsm8.yaml" in problem


@pytest.mark.parametrize(
    ("override", "suggestion"),
    [
        ("learner.rl=1", "learner.lr"),
        ("lr=1", "learner.lr"),
        ("learnr.lr=1", "learner.lr"),
        ("prompt_per_step=1", "prompts_per_step"),
        ("run.prompts_per_step=1", "prompts_per_step"),
        ("zero_stag=1", "learner.zero_stage"),
        ("reward.criteria.answer.wieght=1", "reward.criteria.answer.weight"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(override, suggestion):
    [problem] = problems("quickstart", override)
    assert problem.startswith(f"unknown key {override.partition('=')[0]} (command line)")
    assert problem.endswith(f"Did you mean {suggestion}?")


def test_an_unknown_key_of_a_file_is_named_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.yaml", "extends: quickstart\nlearner:\n  lr: 1e-6\n  warmup: 3\n")
    [problem] = problems("./mine.yaml")
    assert problem == "unknown key learner.warmup (mine.yaml:4). Did you mean learner.warmup_steps?"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("run.steps=many", "expected int, got 'many'"),
        ("run.steps=2.5", "expected int, got 2.5"),
        ("run.steps=true", "expected int, got True"),
        ("run.steps=null", "expected int, got null"),
        ("learner.lr=[1]", "expected float, got [1]"),
        ("learner.share_prefix=maybe", "expected bool, got 'maybe'"),
        ("model.path=null", "expected str, got null"),
        ("model.dtype=float16", "expected float32 | bfloat16, got 'float16'"),
        ("rollout.temperature_end=hot", "expected float or null, got 'hot'"),
        ("task.stop=word", "expected list of str, got 'word'"),
        ("task.arithmetic.operations=[add, power]", "expected list of add | subtract | multiply | divide"),
        ("reward.criteria.answer.weight=heavy", "expected float, got 'heavy'"),
        ("run=3", "is a section of keys"),
        ("run=null", "is a section of keys"),
        ("reward.criteria.answer=numeric_answer", "is a section of keys"),
        ("run.steps=", "has no value; expected int"),
        ("run.steps={a: 1}", "expected int, got {'a': 1}"),
        ("learner.lr=[1", "cannot read '[1'"),
        ("task.stop=[1]]", "cannot read"),
        ("steps", "is not of the form key=value"),
        ("--run.steps=3", "is not of the form key=value"),
        ("=3", "is not of the form key=value"),
    ],
)
def test_a_wrong_value_is_refused_with_the_expected_type(override, expected):
    [problem] = problems("quickstart", override)
    assert "command line" in problem and expected in problem


def test_all_problems_are_reported_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.yaml", "extends: quickstart\nlearner: {rl: 3, lr: fast}\ncompletions_per_prompt: 1\n")
    found = problems("./mine.yaml", "model.dtype=int8", "rollout.top_p=0.9", "task.system=Be brief.")
    assert len(found) == 6
    for part in ("mine.yaml:2). Did", "lr (mine.yaml:2)", "at least 2", "float32 | bfloat16", "top_p", "task.system"):
        assert sum(part in problem for problem in found) == 1, part
    assert str(ConfigError(found)).startswith("6 problems in the configuration:\n  - ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("run: {steps: 1\n", "mine.yaml: line "),
        ("- a list\n", "mine.yaml: a configuration is a mapping"),
        ("run: {steps: 1}\nmodel: {}\nrun: {seed: 1}\n", "key 'run' stands twice, here and in line 1"),
        ("extends: [a, b]\n", "mine.yaml:1: extends takes the name or path of one configuration"),
        ("run: !!python/object/apply:os.getcwd []\n", "run (mine.yaml:1)"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, monkeypatch, text, reason):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.yaml", text)
    assert any(reason in problem for problem in problems("./mine.yaml"))


def test_a_value_that_would_build_an_object_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.yaml", "extends: quickstart\ntask: {stop: !!python/object/apply:os.getcwd []}\n")
    assert any("task.stop (mine.yaml:2)" in problem for problem in problems("./mine.yaml"))


def test_a_key_without_effect_is_refused_with_its_condition(tmp_path, monkeypatch):
    assert problems("quickstart", "algorithm.kl.estimator=k3") == [
        "algorithm.kl.estimator (command line) has no effect unless algorithm.kl.coef > 0"
    ]
    compose("quickstart", ["algorithm.kl.estimator=k3", "algorithm.kl.coef=0.1"])
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine.yaml", "extends: quickstart\ntask:\n  fields:\n    prompt: text\n")
    assert problems("./mine.yaml") == ["task.fields.prompt (mine.yaml:4) has no effect unless task.name in jsonl,hub"]


def test_what_a_packaged_configuration_sets_may_become_inert():
    # gsm8k's exemplars are gone, and with them the effect of whatever it says about them.
    compose("quickstart_kl", ["algorithm.kl.coef=0"])
    compose("quickstart", ["task.name=gsm8k", "task.few_shot.k=0"])


def test_a_saved_configuration_reproduces_the_run(tmp_path):
    overrides = [
        "task.stop=['\\n', 'off', '1e5', '${x}', '#']",
        "task.instruction=Let ${x} be: 5",
        "run.name=1e5",
        "reward.criteria.answer.options={text: '1e5', word: off, nothing: null, nested: {a.b: [1, 2.5]}}",
        "reward.criteria.extra={verifier: 'm:f', weight: -0.5}",
        "rollout.temperature_end=0.7",
        "learner.lr=3e-7",
    ]
    first = compose("quickstart", overrides)
    save(first.config, tmp_path / "config.yaml")
    second = compose(str(tmp_path / "config.yaml"))
    assert second.config == first.config
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("name", packaged_names())
def test_shipped_configurations_survive_saving_though_they_hold_inert_defaults(name, tmp_path):
    first = compose(name).config
    save(first, tmp_path / "config.yaml")
    assert compose(str(tmp_path / "config.yaml")).config == first


def test_an_inert_value_of_a_preset_is_not_saved(tmp_path):
    config = compose("gsm8k", ["task.few_shot.k=0"]).config
    config.task.few_shot.seed = 5
    save(config, tmp_path / "config.yaml")
    assert compose(str(tmp_path / "config.yaml")).config.task.few_shot.seed == 0


def test_saving_fails_cleanly(tmp_path):
    config = compose("quickstart").config
    (tmp_path / "config.yaml").mkdir()
    (tmp_path / "config.yaml" / "x").touch()
    with pytest.raises(OSError):
        save(config, tmp_path / "config.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3)
)


@given(trees)
@example({"a\x85b": "\u2028 c\u2029", "\x85": "\ufeff\x00"})
def test_yaml_is_read_back_as_it_was_written(value):
    for flow in (False, True):
        assert _load(dump([value], flow=flow)) == [value]


@settings(max_examples=30)
@given(st.text(st.sampled_from("\\${}ax: "), max_size=12))
def test_text_is_taken_literally_whatever_it_looks_like(text):
    composed = compose("quickstart", [f"task.stop={dump([text + '.'], flow=True)}"])
    assert composed.config.task.stop == [text + "."]


def test_numbers_that_are_none_are_refused():
    assert problems("quickstart", "learner.lr=.nan") == [f"learner.lr must be a finite number, got {math.nan}"]
    assert problems("quickstart", "run.start_timeout_s=.inf") == [
        f"run.start_timeout_s must be a finite number, got {math.inf}"
    ]


def _load(text: str):
    loader = Loader(text)
    return loader.get_single_data()
