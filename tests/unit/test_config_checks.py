"""Ranges and sense across keys: each bad configuration is refused by name, and the good one beside it is not."""

from __future__ import annotations

import pytest

from rlvr import checks, schema
from rlvr.compose import compose
from rlvr.errors import ConfigError
from rlvr.launch.machine import check_machine, visible_gpus

#: Of this module's own, so that tuning a shipped configuration breaks nothing here.
BASE = (
    "model={path: some/model, max_length: 1024}",
    "run.steps=8",
    "prompts_per_step=8",
    "reward.criteria.answer.verifier=numeric_answer",
)


def refusals(*overrides: str) -> list[str]:
    try:
        compose("", [*BASE, *overrides])
    except ConfigError as error:
        return error.problems
    return []


CASES = [
    # refused, accepted, said
    ("completions_per_prompt=1", "completions_per_prompt=2", "completions_per_prompt must be at least 2, got 1"),
    ("prompts_per_step=0", "prompts_per_step=1", "prompts_per_step must be greater than 0, got 0"),
    ("learner.ranks=3", "learner.ranks=2", "prompts_per_step (8) cannot be shared equally by learner.ranks (3)"),
    ("learner.ranks=16", "learner.ranks=8", "prompts_per_step (8) cannot be shared equally by learner.ranks (16)"),
    ("learner.ranks=0", "learner.ranks=1", "learner.ranks must be greater than 0, got 0"),
    ("run.steps=0", "run.steps=1", "run.steps must be greater than 0, got 0"),
    ("run.seed=-1", "run.seed=0", "run.seed must not be negative, got -1"),
    ("run.name=a/b", "run.name=a-b", "run.name is a name, not a path"),
    ("learner.lr=0", "learner.lr=1e-9", "learner.lr must be greater than 0, got 0"),
    ("learner.beta2=1", "learner.beta2=0.95", "learner.beta2 must be below 1, got 1"),
    ("learner.zero_stage=4", "learner.zero_stage=3", "learner.zero_stage must be at most 3, got 4"),
    ("learner={zero_stage: 0}", "learner={zero_stage: 1}", "learner.zero_stage=0 with model.dtype=bfloat16"),
    ("learner.warmup_steps=9", "learner.warmup_steps=8", "learner.warmup_steps (9) is more than run.steps (8)"),
    ("max_new_tokens=1024", "max_new_tokens=1023", "max_new_tokens (1024) leaves no room for a prompt"),
    ("eval.max_new_tokens=1024", "eval.max_new_tokens=1000", "eval.max_new_tokens (1024) leaves no room"),
    ("task.max_prompt_tokens=1000", "task.max_prompt_tokens=900", "together are more than model.max_length (1024)"),
    ("rollout.temperature=0", "rollout.temperature=0.1", "rollout.temperature must be greater than 0, got 0"),
    ("rollout.temperature_end=0", "rollout.temperature_end=2", "rollout.temperature_end must be greater than 0"),
    ("rollout.top_p=0.95", "rollout.top_p=1", "rollout.top_p must be 1 for training, got 0.95"),
    ("rollout.top_p=0", "rollout.top_p=1.0", "rollout.top_p must be greater than 0, got 0"),
    ("rollout.top_p=1.5", "rollout.top_p=1", "rollout.top_p must be at most 1, got 1.5"),
    ("rollout.max_staleness=1", "rollout.max_staleness=0", "rollout.max_staleness must be 0 in this version, got 1"),
    ("rollout.gpu_memory_share=1.1", "rollout.gpu_memory_share=1", "rollout.gpu_memory_share must be at most 1"),
    ("reward.max_failure_rate=1.1", "reward.max_failure_rate=1", "reward.max_failure_rate must be at most 1"),
    (
        "reward={sandbox: {min_level: namespaces}}",
        "reward={sandbox: {min_level: namespaces}, criteria: {answer: {verifier: python}}}",
        "reward.sandbox has no effect: no criterion runs programs",
    ),
    ("reward.criteria=null", "reward.timeout_s=1", "reward.criteria is empty"),
    ("reward.criteria.answer.weight=0", "reward.criteria.answer.weight=-1", "reward.criteria all have weight 0"),
    (
        "reward.criteria.answer.verifier=my.module:",
        "reward.criteria.answer.verifier=my.module:judge",
        "reward.criteria.answer.verifier must be a name or module:function",
    ),
    ("task.categorise=hard", "task.categorise=my.module:kind", "task.categorise must be difficulty, operators or"),
    ("task.arithmetic.operations=[]", "task.arithmetic.operations=[divide]", "operations is empty"),
    ("task.arithmetic.difficulties=[5]", "task.arithmetic.difficulties=[4]", "difficulties go from 1 to 4, got 5"),
    ("task.few_shot.k=2048", "task.few_shot.k=8", "nothing is left to train on"),
    ("task.stop=['']", "task.stop=[Q]", "task.stop holds an empty text"),
    ("task.name=jsonl", "task={name: jsonl, path: data}", "task.path must be set for task.name=jsonl"),
    ("task.name=hub", "task={name: hub, path: org/data}", "task.path must be set for task.name=hub"),
    ("eval.samples=4", "eval={samples: 4, temperature: 1}", "eval.samples (4) must be 1 with eval.temperature=0"),
    ("cluster.address=here", "cluster.address=127.0.0.1:6379", "cluster.address must be auto or host:port"),
    ("cluster.dashboard_port=70000", "cluster.dashboard_port=8266", "dashboard_port must be at most 65535"),
]


@pytest.mark.parametrize(("refused", "accepted", "said"), CASES, ids=[case[0] for case in CASES])
def test_a_bad_value_is_refused_by_name_and_its_good_neighbour_is_not(refused, accepted, said):
    common = ["model.dtype=bfloat16"] if "bfloat16" in said else []
    found = refusals(refused, *common)
    assert [problem for problem in found if said in problem], found
    assert refusals(accepted, *common) == []


def test_problems_of_different_rules_come_together():
    assert len(refusals("run.steps=0", "completions_per_prompt=1", "rollout.top_p=0.5", "reward.criteria=null")) == 4


def test_every_key_named_by_a_rule_exists():
    names = {key.name for key in schema.leaves()}
    assert names >= checks.POSITIVE | checks.SIGNED | set(checks.AT_MOST) | set(checks.BELOW)


def test_every_condition_of_the_schema_can_be_judged():
    config = compose("quickstart").config
    conditions = {condition for key in schema.leaves() for condition in key.conditions}
    assert conditions
    for condition in conditions:
        assert schema.holds(condition, config) in (True, False)


@pytest.mark.parametrize(
    ("condition", "true"),
    [
        ("algorithm.kl.coef > 0", False),
        ("task.few_shot.k > 0", True),
        ("task.name == arithmetic", True),
        ("task.name != arithmetic", False),
        ("task.name in jsonl,hub", False),
        ("task.name in jsonl,arithmetic", True),
        ("algorithm.drop_equal_groups == true", True),
        ("cluster.dashboard != true", False),
    ],
)
def test_a_condition_is_judged(condition, true):
    config = compose("quickstart", ["task.few_shot.k=2"]).config
    assert schema.holds(condition, config) is true


def test_a_condition_of_another_form_is_a_mistake_of_ours():
    with pytest.raises(ValueError, match="not of the form"):
        schema.holds("task.name is arithmetic", compose("quickstart").config)


def test_a_gpu_asked_for_where_there_is_none_is_refused(monkeypatch):
    config = compose("quickstart", ["rollout.device=cuda", "learner.device=cuda"]).config
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == 0
    rollout, learner = check_machine(config, learns=True)
    assert rollout.startswith("rollout.device is cuda, but there is no visible NVIDIA GPU")
    assert learner.startswith("learner.device is cuda")
    assert check_machine(config, learns=False) == [rollout]
    config.cluster.address = "10.0.0.1:6379"  # the cluster may have them
    assert check_machine(config, learns=True) == []


@pytest.mark.parametrize(("hidden", "count"), [(None, 2), ("0", 1), ("0,1,2", 2), ("-1", 0), ("1,-1,0", 1)])
def test_gpus_are_counted_as_cuda_would(monkeypatch, tmp_path, hidden, count):
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("rlvr.launch.machine._GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert visible_gpus() == count


def test_gpus_are_found_by_their_devices_where_the_driver_shows_no_folder(monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr("rlvr.launch.machine._GPUS", tmp_path / "none")
    monkeypatch.setattr("rlvr.launch.machine._DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == 2
