"""The tracker puts everything where a reader expects it, and closes everything whatever fails."""

from __future__ import annotations

import json
import logging
import shutil

import pytest

from rlvr.config import Config, EvalConfig, ModelConfig, RunConfig, TrackConfig
from rlvr.errors import ConfigError
from rlvr.records import GroupState
from rlvr.tracking import tracker as module
from rlvr.tracking.jsonl import read_jsonl
from rlvr.tracking.ledger import read_ledger
from rlvr.tracking.run_folder import RunFolder
from rlvr.tracking.step_clock import split
from rlvr.tracking.tracker import Tracker
from tests.tracking_samples import group, result

COUNTS = {"issued": 2, "trained": 1, "dropped": 1, "failed": 0, "in_flight": 0}


def start(path, **track) -> Tracker:
    config = Config(
        run=RunConfig(name="tiny", steps=1, seed=7),
        model=ModelConfig(path="model"),
        eval=EvalConfig(),
        track=TrackConfig(**{"console": "plain", **track}),
    )
    return Tracker.open(config, RunFolder.create(path / "run"), run_id="abc", config_name="quickstart", verb="train")


async def take_a_step(tracker: Tracker) -> None:
    groups = [group("a", [1.0, 0.0]), group("b", [0.0, 0.0], state=GroupState.DROPPED, reason="equal_scores")]
    time = split(0, 10, {"rollout": [(0, 4)], "learner": [(4, 9)]})
    stats = {"logprob_gap": 1e-5, "grad_norm": 0.7, "tokens": 50}
    await tracker.step(1, groups, stats, time, counts=COUNTS, temperature=1.0, weight_version=1)


async def test_a_whole_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    tracker = start(tmp_path)
    tracker.phase("starting 1 engine")
    tracker.evaluating(0, 100)
    await tracker.evaluation(result(0, 37, 20), [group("e", [1.0], step=0)])
    await take_a_step(tracker)
    await tracker.evaluation(result(1, 71, 60), [group("e", [1.0], step=1)])
    tracker.close("completed", "")
    tracker.close("failed", "a second close changes nothing")

    run = tmp_path / "run"
    metrics = read_jsonl(run / "metrics.jsonl")
    assert [(line["kind"], line["step"]) for line in metrics] == [("evaluation", 0), ("step", 1), ("evaluation", 1)]
    assert metrics[1]["learner/grad_norm"] == 0.7
    kinds = [line["kind"] for line in read_jsonl(run / "events.jsonl")]
    assert kinds == ["run_started", "phase", "evaluation_started", "run_ended"]
    assert len(read_ledger(run / "ledger" / "step_000001.parquet")) == 4
    assert len(read_ledger(run / "ledger")) == 6
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["error"], summary["steps"]) == ("completed", None, 1)
    assert (summary["run_id"], summary["name"], summary["config"], summary["seed"]) == ("abc", "tiny", "quickstart", 7)
    assert summary["accuracy_after"]["value"] == 0.71
    assert summary["groups"] == COUNTS
    assert 0.01 < summary["peak_memory_gb"] < 8
    assert (run / "learning_curve.png").is_file()
    shown = capsys.readouterr().out
    assert "starting 1 engine ..." in shown
    assert "step 1/1 | reward 0.250" in shown
    assert str(run) in shown


async def test_a_failed_run_says_why_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    tracker = start(tmp_path, console="off")
    tracker.close("failed", "401 for hf_0123456789")
    run = tmp_path / "run"
    assert json.loads((run / "summary.json").read_text())["error"] == "401 for [redacted]"
    assert not (run / "learning_curve.png").exists()
    assert b"0123456789" not in b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())


async def test_what_cannot_be_written_at_the_end_is_said_and_the_rest_is_still_done(tmp_path, caplog, monkeypatch):
    tracker = start(tmp_path, console="off")
    await take_a_step(tracker)

    def fail(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(module, "draw_curve", fail)
    with caplog.at_level(logging.ERROR):
        tracker.close("completed")
    assert "could not draw the learning curve: the disk is gone" in caplog.text
    assert (tmp_path / "run" / "summary.json").is_file()
    assert read_jsonl(tmp_path / "run" / "events.jsonl")[-1]["kind"] == "run_ended"


async def test_a_lost_ledger_is_an_error_while_the_run_goes_on(tmp_path):
    tracker = start(tmp_path, console="off")
    shutil.rmtree(tmp_path / "run" / "ledger")
    with pytest.raises(Exception, match="ledger"):
        await take_a_step(tracker)
    tracker.close("failed", "no ledger")


def test_an_unknown_console_is_refused_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"track\.console"):
        start(tmp_path, console="loud")
