"""The command line: verbs, exit codes, and where complaints go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types

import pytest

from rlvr.errors import ConfigError, InfrastructureError, TrainingError, UserError
from rlvr.launch import cli
from rlvr.launch.cli import Request, parse


@pytest.fixture
def calls(monkeypatch):
    """Stands in for the modules behind train and eval; records what they are asked for."""
    made: list[tuple] = []
    for verb, module in (("train", "train"), ("eval", "evaluate")):

        def run(config, name, verb=verb):
            made.append((verb, config, name))
            return 0

        fake = types.SimpleNamespace(main=run)
        monkeypatch.setitem(sys.modules, f"rlvr.launch.{module}", fake)
        monkeypatch.setattr("rlvr.launch." + module, fake, raising=False)
    handler, path, here = signal.getsignal(signal.SIGTERM), list(sys.path), os.environ["PATH"]
    yield made
    signal.signal(signal.SIGTERM, handler)
    sys.path[:] = path
    os.environ["PATH"] = here


def test_the_first_bare_word_is_the_verb_and_train_the_default():
    assert parse(["conf=a", "x=1"]) == Request("train", "a", ("x=1",))
    assert parse(["x=1", "conf=a", "y=2"]) == Request("train", "a", ("x=1", "y=2"))
    assert parse(["eval", "conf=./a.yaml"]) == Request("eval", "./a.yaml", ())
    assert parse(["config"]) == Request("config", "", ())
    assert parse([]) == Request("train", "", ())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "Did you mean train?"),
        (["quickstart"], "conf=quickstart"),
        (["plan"], "the verb plan is not there in version"),
        (["sagemaker"], "the verb sagemaker is not there in version"),
        (["train", "conf=a", "conf=b"], "conf is given 2 times"),
        (["conf="], "names no configuration"),
    ],
)
def test_what_cannot_be_understood_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=None) as caught:
        parse(arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize(("words", "verb"), [([], "train"), (["train"], "train"), (["eval"], "eval")])
def test_a_verb_gets_the_checked_configuration_and_its_name(calls, words, verb):
    assert cli.main([*words, "conf=quickstart", "run.steps=3"]) == 0
    [(called, config, name)] = calls
    assert (called, config.run.steps, name) == (verb, 3, "quickstart")


def test_a_wrong_configuration_starts_nothing_and_exits_with_2(calls, capsys):
    assert cli.main(["conf=quickstart", "run.step=3", "completions_per_prompt=1"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 problems" in captured.err and "run.steps" in captured.err and "Traceback" not in captured.err
    assert calls == []


def test_a_gpu_that_is_not_there_and_a_key_of_another_verb_are_refused_together(calls, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli.main(["conf=quickstart", "rollout.device=cuda", "eval.checkpoint=x"]) == 2
    said = capsys.readouterr().err
    assert "rollout.device is cuda" in said and "eval.checkpoint (command line) has no effect" in said
    assert calls == []
    assert cli.main(["eval", "conf=quickstart", "eval.checkpoint=x", "learner.device=cuda"]) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [(UserError("no such file"), 2), (TrainingError("gap"), 1), (InfrastructureError("died"), 1)],
)
def test_errors_are_said_without_a_traceback_and_told_by_the_exit_code(calls, capsys, monkeypatch, error, code):
    def fail(config, name):
        raise error

    monkeypatch.setattr(sys.modules["rlvr.launch.train"], "main", fail)
    assert cli.main(["conf=quickstart"]) == code
    said = capsys.readouterr().err
    assert str(error) in said and "Traceback" not in said


def test_interruption_is_told_by_the_exit_code(calls, monkeypatch):
    def interrupt(config, name):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["rlvr.launch.train"], "main", interrupt)
    assert cli.main(["conf=quickstart"]) == 130


def test_sigterm_unwinds_what_is_held(calls, monkeypatch):
    released = []

    def terminated(config, name):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            released.append(True)

    monkeypatch.setattr(sys.modules["rlvr.launch.train"], "main", terminated)
    with pytest.raises(SystemExit) as caught:
        cli.main(["conf=quickstart"])
    assert caught.value.code == 143
    assert released == [True]


def test_help_names_verbs_and_configurations(capsys):
    for words in (["-h"], ["train", "--help"], ["help"]):
        assert cli.main(words) == 0
        printed = capsys.readouterr().out
        assert all(word in printed for word in ("train", "eval", "config", "quickstart", "gsm8k"))


def test_the_environment_of_the_interpreter_is_on_the_path(calls, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["conf=quickstart"]) == 0
    assert os.environ["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)


def test_both_ways_to_start_answer_alike_and_load_nothing_heavy():
    code = (
        "import sys, rlvr.launch.cli as c; c.main(['config']); c.main(['config', 'conf=gsm8k']);"
        "heavy = {'torch', 'ray', 'vllm', 'transformers', 'deepspeed', 'datasets', 'wandb'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    module = subprocess.run([sys.executable, "-m", "rlvr.launch", "config"], capture_output=True, text=True, timeout=60)
    assert module.returncode == 0
    assert module.stdout and done.stdout.startswith(module.stdout)


def test_a_reader_that_has_seen_enough_is_no_failure():
    process = subprocess.Popen(
        [sys.executable, "-m", "rlvr.launch", "config"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", ["train", "eval", "config"])
def test_an_unknown_verifier_is_refused_before_anything_starts(calls, capsys, verb):
    override = "reward.criteria.answer.verifier=numeric_anser"
    assert cli.main([verb, "conf=quickstart", override]) == 2
    said = capsys.readouterr().err
    assert "reward.criteria.answer.verifier" in said
    assert "Did you mean numeric_answer?" in said
    assert not calls


def test_the_packages_that_a_configuration_needs_are_looked_for(monkeypatch):
    from rlvr.compose import compose
    from rlvr.launch import machine

    config = compose("quickstart", []).config
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name in ("vllm", "deepspeed", "wandb") else name)
    (problem,) = machine.missing_packages(config, learns=True)
    assert "not installed here: vllm, deepspeed." in problem
    config.rollout.engine = "simulated"
    assert machine.missing_packages(config, learns=False) == []
    config.track.wandb = "offline"
    assert "wandb" in machine.missing_packages(config, learns=False)[0]
