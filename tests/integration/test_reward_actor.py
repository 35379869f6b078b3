"""Reward actors in a real Ray: verdicts, refusals at start, and recovery when an actor dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray

from rlvr.actors.reward import RewardPool
from rlvr.config import Config, CriterionConfig
from rlvr.errors import ConfigError
from rlvr.records import Completion, FinishReason, Group, Prompt, Status

pytestmark = pytest.mark.timeout(180)
NAMESPACE = "reward-actor-tests"

MODULE = """
import os
import threading
import time

def does(sample):
    if sample.completion == "loop":
        while True:
            pass
    if sample.completion == "raise":
        raise ValueError("boom")
    if sample.completion == "exit":
        os._exit(3)
    return 1.0

def never_returns(sample):
    while True:
        pass

def slow(sample):
    time.sleep(1.0)
    return 1.0

def marked(sample):
    return float(os.environ.get("RLVR_TEST_MARK") == "yes")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    folder = tempfile.mkdtemp(prefix="ray")
    os.environ["RAY_process_group_cleanup_enabled"] = "true"  # noqa: SIM112 - Ray's own spelling
    ray.init(
        address="local",
        num_cpus=2,
        namespace=NAMESPACE,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 * 2**20,
        _temp_dir=folder,
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def started_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a person starts the run in, with a reward function of their own."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configured(*verifiers: str, workers: int = 1, processes: int = 1, timeout_s: float = 30.0) -> Config:
    config = Config()
    config.reward.criteria = {f"c{i}": CriterionConfig(verifier) for i, verifier in enumerate(verifiers)}
    config.reward.workers, config.reward.processes, config.reward.timeout_s = workers, processes, timeout_s
    return config


def group(*texts: str, reference: str = "7", name: str = "g") -> Group:
    completions = [Completion((1,), np.zeros(1, np.float32), text, FinishReason.STOP, ((0, 1),)) for text in texts]
    return Group(name, Prompt(f"p-{name}", reference, text="3+4?"), 0, completions=completions)


async def test_groups_are_judged_in_order_over_several_actors(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("numeric_answer", "answer_format", workers=2, processes=1), NAMESPACE)
    await pool.start()
    try:
        assert pool.identity.startswith("numeric_answer@3#")
        groups = [group(f"#### {i}", "#### 7", "no idea", reference=str(i), name=f"g{i}") for i in range(10, 20)]
        for verdicts in await asyncio.gather(*(pool.grade(each) for each in groups)):
            assert [verdict.score for verdict in verdicts] == [2.0, 1.0, 0.0]
            assert [verdict.status for verdict in verdicts] == [Status.OK, Status.WRONG, Status.NO_ANSWER]
            assert {verdict.verifier for verdict in verdicts} == {pool.identity}
    finally:
        await pool.close()


async def test_a_users_bad_function_is_survived(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("mine:does", timeout_s=2.0), NAMESPACE)
    await pool.start()
    try:
        verdicts = await pool.grade(group("fine", "raise", "exit", "loop", "fine"))
        assert [verdict.score for verdict in verdicts] == [1.0, None, None, 0.0, 1.0]
        assert verdicts[3].status is Status.TIMEOUT
        assert "boom" in verdicts[1].parts["c0"].evidence
    finally:
        await pool.close()


async def test_a_function_that_never_returns_is_reported_not_scored(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("mine:never_returns", timeout_s=0.5), NAMESPACE)
    await pool.start()
    try:
        verdicts = await pool.grade(group("x", "y"))
        assert {(verdict.score, verdict.status) for verdict in verdicts} == {(None, Status.VERIFIER_ERROR)}
    finally:
        await pool.close()


async def test_a_configuration_that_cannot_work_is_refused_at_start(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("mine:nothing", "numeric_answr", workers=2), NAMESPACE)
    try:
        with pytest.raises(ConfigError) as raised:
            await pool.start()
        assert [problem.split(":")[0] for problem in raised.value.problems] == [
            "reward.criteria.c0.verifier",
            "reward.criteria.c1.verifier",
        ]
    finally:
        await pool.close()


async def test_the_environment_reaches_the_function(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("mine:marked"), NAMESPACE, {"RLVR_TEST_MARK": "yes"})
    await pool.start()
    try:
        assert (await pool.grade(group("x")))[0].score == 1.0
    finally:
        await pool.close()


async def test_a_killed_actor_costs_no_verdict_and_leaves_no_process(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("mine:slow", workers=1), NAMESPACE)
    await pool.start()
    try:
        before = grading_processes()
        assert before
        under_way = asyncio.create_task(pool.grade(group("x", "y", "z")))
        await asyncio.sleep(0.5)
        ray.kill(ray.get_actor("reward-0", namespace=NAMESPACE), no_restart=False)
        verdicts = await under_way
        assert [verdict.score for verdict in verdicts] == [1.0, 1.0, 1.0]
        assert all_gone(before)
    finally:
        await pool.close()


async def test_closing_leaves_no_process(cluster: None, started_in: Path) -> None:
    pool = RewardPool(configured("mine:does", workers=2, processes=2), NAMESPACE)
    await pool.start()
    processes = grading_processes()
    assert len(processes) == 4
    under_way = asyncio.create_task(pool.grade(group("loop")))
    await asyncio.sleep(0.3)
    under_way.cancel()
    await pool.close()
    assert all_gone(processes)


def grading_processes() -> list[int]:
    """Grading processes of this cluster's actors: their folder is this test's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            ours = entry.name.isdigit() and b"rlvr.rewards.child" in (entry / "cmdline").read_bytes()
            if ours and os.readlink(entry / "cwd") == os.getcwd():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def all_gone(pids: list[int], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
