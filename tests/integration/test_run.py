"""The real command line with real Ray, vLLM and DeepSpeed on a tiny model: what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlvr.launch.guardian import MARKER
from tests.tiny import make_model

ROOT = Path(__file__).resolve().parents[2]

TINY = """
prompts_per_step: 4
completions_per_prompt: 8
max_new_tokens: 12
run: {steps: 3}
model: {max_length: 160}
task: {name: arithmetic, arithmetic: {train_size: 64, test_size: 16}}
reward:
  criteria:
    digits: {verifier: "tests.rewards_for_tests:digit_share"}
rollout: {kv_cache_gb: 0.25}
learner: {lr: 3.0e-3}
cluster: {dashboard: false}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A folder with a tiny model and a configuration for it."""
    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder / "model")
    (folder / "tiny.yaml").write_text(TINY)
    return folder


def command(tiny: Path, run: Path, *overrides: str, verb: str = "train") -> list[str]:
    fixed = [f"conf={tiny / 'tiny.yaml'}", f"model.path={tiny / 'model'}", f"run.dir={run}"]
    return [sys.executable, "-m", "rlvr.launch", verb, *fixed, *overrides]


def launch(tiny: Path, run: Path, *overrides: str, verb: str = "train") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tiny, run, *overrides, verb=verb), cwd=ROOT, capture_output=True, text=True, timeout=420
    )


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_id(run: Path) -> str:
    """Which run this was: the first thing that it notes."""
    return lines(run / "events.jsonl")[0]["run_id"]


def processes(identifier: str) -> set[int]:
    """Processes of a run."""
    wanted = f"{MARKER}={identifier}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def nothing_left(identifier: str) -> bool:
    """Neither processes nor shared memory nor temporary files of a run; other software may have its own."""
    return not processes(identifier) and not [
        path for folder in ("/dev/shm", tempfile.gettempdir()) for path in Path(folder).glob(f"*{identifier}*")
    ]


def wait_until(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    run = tmp_path_factory.mktemp("runs") / "three"
    return run, launch(tiny, run, "track.wandb=offline", "cluster.dashboard=true", "algorithm.kl.coef=0.05")


@pytest.mark.timeout(480)
def test_three_steps_end_well_and_leave_everything_in_the_run_folder(finished):
    run, process = finished
    assert process.returncode == 0, process.stderr[-3000:]
    assert "http://127.0.0.1:" in process.stdout + process.stderr, "the dashboard's address is printed"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["steps"] == 3
    assert summary["groups"]["issued"] == 12
    assert summary["groups"]["trained"] + summary["groups"]["dropped"] == 12
    assert summary["groups"]["in_flight"] == summary["groups"]["failed"] == 0
    assert summary["accuracy_before"]["n"] == summary["accuracy_after"]["n"] == 16
    assert 0 <= summary["logprob_gap_mean"] <= summary["logprob_gap_max"] < 1e-3
    assert summary["generation_tokens_per_s"] > 0
    assert summary["learner_tokens_per_s"] > 0
    assert 0 <= summary["overhead_share"] < 1
    assert summary["peak_memory_gb"] > 0.5
    metrics = [line for line in lines(run / "metrics.jsonl") if "learner/logprob_gap" in line]
    assert [line["step"] for line in metrics] == [1, 2, 3]
    assert all(line["learner/grad_norm"] > 0 for line in metrics)
    kl = [line["learner/kl"] for line in metrics]
    assert abs(kl[0]) < 1e-9, "before the first update the model is the reference"
    assert kl[2] > 1e-6
    synced = [line["version"] for line in lines(run / "events.jsonl") if line["kind"] == "weights_synced"]
    assert synced == [0, 1, 2, 3]
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "config.yaml").is_file()
    assert list(run.glob("**/*.wandb")), "the offline wandb run is inside the run folder"


@pytest.mark.timeout(480)
def test_every_completion_is_in_the_ledger_with_its_verdict(finished):
    run, _ = finished
    rows = [row for path in sorted((run / "ledger").glob("step_*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 3 * 4 * 8
    assert len({(row["group_id"], row["completion_index"]) for row in rows}) == len(rows)
    for row in rows:
        assert 0 <= row["score"] <= 1
        assert "digits" in row["parts"]
    assert {row["group_state"] for row in rows} <= {"trained", "dropped"}


@pytest.mark.timeout(480)
def test_the_checkpoint_loads_in_transformers_and_differs_from_the_start(finished, tiny):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run, _ = finished
    folder = run / "checkpoints" / "step_3"
    assert (folder / "manifest.json").is_file()
    trained = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    start = AutoModelForCausalLM.from_pretrained(tiny / "model").state_dict()
    assert trained.keys() == start.keys()
    assert any(not torch.equal(trained[name], start[name]) for name in start)
    assert AutoTokenizer.from_pretrained(folder)("1 + 1").input_ids


@pytest.mark.timeout(480)
def test_a_checkpoint_of_a_run_can_be_evaluated(finished, tiny, tmp_path):
    run, _ = finished
    process = launch(tiny, tmp_path / "eval", f"eval.checkpoint={run}", verb="eval")
    assert process.returncode == 0, process.stderr[-3000:]
    summary = json.loads((tmp_path / "eval" / "summary.json").read_text())
    after = json.loads((run / "summary.json").read_text())["accuracy_after"]
    assert summary["accuracy_before"] == after, "greedy evaluation of the same weights"


@pytest.mark.timeout(480)
def test_nothing_is_left_and_a_second_run_into_the_same_folder_is_refused(finished, tiny):
    run, _ = finished
    assert nothing_left(run_id(run))
    before = (run / "metrics.jsonl").read_bytes()
    process = launch(tiny, run)
    assert process.returncode == 2
    assert str(run) in process.stderr
    assert "Traceback" not in process.stderr
    assert (run / "metrics.jsonl").read_bytes() == before


@pytest.mark.timeout(480)
def test_two_engines_and_two_reward_actors_give_the_same_accounting(tiny, tmp_path):
    run = tmp_path / "two"
    short = ["run.steps=2", "eval.before=false", "eval.after=false", "checkpoint.final=false"]
    process = launch(tiny, run, "rollout.engines=2", "reward.workers=2", *short)
    assert process.returncode == 0, process.stderr[-3000:]
    groups = json.loads((run / "summary.json").read_text())["groups"]
    assert groups["issued"] == groups["trained"] + groups["dropped"] == 8
    assert groups["failed"] == groups["in_flight"] == 0
    rows = [row for path in (run / "ledger").glob("step_*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len({(row["group_id"], row["completion_index"]) for row in rows}) == len(rows) == 2 * 4 * 8
    assert all(line["learner/logprob_gap"] < 1e-3 for line in lines(run / "metrics.jsonl") if "step" in line)


@pytest.mark.timeout(480)
def test_reward_rises_beyond_chance(tiny, tmp_path):
    """Random weights, a graded reward: the last steps must beat the first by several standard errors."""
    run = tmp_path / "learn"
    process = launch(
        tiny, run, "run.steps=16", "prompts_per_step=8", "eval.before=false", "eval.after=false",
        "learner.lr=1e-2", "reward.workers=2",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    rewards = [line["reward/mean"] for line in lines(run / "metrics.jsonl") if "reward/mean" in line]
    assert len(rewards) == 16
    first, last = sum(rewards[:4]) / 4, sum(rewards[-4:]) / 4
    assert last > first + 0.15, f"reward per step: {rewards}"


@pytest.mark.timeout(480)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_run_and_leaves_nothing(tiny, tmp_path, number):
    run = tmp_path / "stopped"
    process = subprocess.Popen(
        command(tiny, run, "run.steps=500", "eval.before=false"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    metrics = run / "metrics.jsonl"
    assert wait_until(lambda: metrics.exists() and "learner/logprob_gap" in metrics.read_text(), 240), (
        "no step was made"
    )
    identifier = run_id(run)
    os.kill(process.pid, number)
    code = process.wait(timeout=90)
    assert wait_until(lambda: nothing_left(identifier), 30), processes(identifier)
    if number is signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 128 + number
        assert json.loads((run / "summary.json").read_text())["status"] == "interrupted"


@pytest.mark.timeout(480)
def test_a_run_that_is_interrupted_while_its_models_load_ends_at_once(tiny, tmp_path):
    run = tmp_path / "early"
    process = subprocess.Popen(
        command(tiny, run), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    events = run / "events.jsonl"
    assert wait_until(lambda: events.exists() and "learner rank" in events.read_text(), 120), "no actor was started"
    time.sleep(2)  # somewhere in the middle of it
    identifier = run_id(run)
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGTERM, errors[-2000:]
    assert "did not close by itself" not in errors
    assert time.monotonic() - asked < 30
    assert wait_until(lambda: nothing_left(identifier), 30), processes(identifier)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("model.path=/no/such/model", "/no/such/model"),
        ("model.max_length=40", "max_length"),
        ("task.max_prompt_tokens=5", "the limit is 5"),
    ],
)
def test_what_is_wrong_with_model_or_data_shows_before_ray_starts(tiny, tmp_path, override, named):
    run = tmp_path / "refused"
    process = subprocess.run([*command(tiny, run), override], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert process.returncode == 2, process.stderr[-2000:]
    assert named in process.stderr
    assert "Traceback" not in process.stderr
    assert "starting Ray" not in (run / "events.jsonl").read_text()
    assert json.loads((run / "summary.json").read_text())["status"] == "failed"


@pytest.mark.timeout(480)
def test_a_killed_engine_ends_the_run_with_a_reason_and_leaves_nothing(tiny, tmp_path):
    run = tmp_path / "killed"
    process = subprocess.Popen(
        command(tiny, run, "run.steps=500", "eval.before=false"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = run / "metrics.jsonl"
    assert wait_until(lambda: metrics.exists() and "learner/logprob_gap" in metrics.read_text(), 240), (
        "no step was made"
    )
    identifier = run_id(run)
    engines = [pid for pid in processes(identifier) if b"EngineCore" in _cmdline(pid)]
    assert engines
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 1, errors[-2000:]
    assert "rollout" in errors
    assert json.loads((run / "summary.json").read_text())["status"] == "failed"
    assert wait_until(lambda: nothing_left(identifier), 30), processes(identifier)


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
