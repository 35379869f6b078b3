"""Rollout actors and their pool with real Ray and real vLLM: two engines, syncs, death, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import ray
import torch
from transformers import AutoModelForCausalLM

from rlvr.actors.rollout import RolloutPool
from rlvr.config import Config, ModelConfig
from rlvr.engine import processes, update_file
from rlvr.errors import ConfigError, DataError, InfrastructureError, TrainingError
from rlvr.records import Prompt, Sampling, WeightUpdate
from tests.tiny import make_model

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

NAMESPACE = "test-engine-rollout"
SAMPLING = Sampling(temperature=1.0, max_new_tokens=16, seed=1)
PROMPT = Prompt(id="p/0", reference="", text="unused", token_ids=tuple(range(10, 60)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    # Ends the processes that a killed actor leaves behind; Ray reads it when it starts.
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_process_group_cleanup_enabled", "true")
    ray.init(address="local", num_cpus=2, include_dashboard=False, namespace=NAMESPACE, log_to_driver=False)
    yield
    ray.shutdown()
    patch.undo()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), "llama", tied=True)


@pytest.fixture(scope="module")
def updates() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as opened:
        yield opened


def make_config(folder: Path, engines: int, engine: str = "vllm") -> Config:
    config = Config(model=ModelConfig(path=str(folder)))
    config.rollout.engine = engine
    config.rollout.engines = engines
    config.rollout.kv_cache_gb = 0.25
    config.rollout.max_concurrent_prompts = 4
    config.rollout.device = "cpu"
    return config


def vllm_processes() -> list[int]:
    """vLLM's processes below this one (Ray's daemons, and so all actors, are our descendants)."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = " ".join(process.cmdline())
            if "VLLM" in command or "VLLM" in process.name() or "multiprocessing.spawn" in command:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def gone_within(pids: list[int], seconds: float) -> list[int]:
    """Those of `pids` that are still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(cluster: None, folder: Path) -> AsyncIterator[RolloutPool]:
    opened = RolloutPool(make_config(folder, engines=2), str(folder), NAMESPACE, env={})
    try:
        await opened.start()
        yield opened
    finally:
        left = vllm_processes()
        await opened.close()
    assert gone_within(left, 10.0) == [], "closing the pool left processes of vLLM behind"


async def test_two_engines_share_the_prompts(pool: RolloutPool) -> None:
    assert len(vllm_processes()) >= 4
    prompts = [Prompt(id=f"p/{i}", reference="", text="unused", token_ids=(i + 5, 7, 9)) for i in range(12)]
    groups = await asyncio.gather(*(pool.generate(prompt, SAMPLING, 4) for prompt in prompts))
    assert [len(group) for group in groups] == [4] * 12
    assert len({completion.token_ids for group in groups for completion in group}) == 48
    assert pool.out_of_service == {}


async def test_every_engine_serves_the_new_weights_after_a_sync(pool: RolloutPool, folder: Path, updates: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    update = update_file.write_update(updates, 1, dict(model.named_parameters()))
    await pool.sync(update)
    update_file.discard(update)
    # One at a time the first engine would get them all.
    groups = await asyncio.gather(*(pool.generate(PROMPT, SAMPLING, 2) for _ in range(6)))
    ids = torch.tensor([PROMPT.token_ids + groups[0][0].token_ids])
    with torch.no_grad():
        logits = model(ids).logits[0, 49:-1]
    expected = logits.log_softmax(-1).gather(1, ids[0, 50:, None])[:, 0].numpy()
    for group in groups:
        assert group[0].token_ids == groups[0][0].token_ids
        assert abs(group[0].logprobs - expected).mean() < 1e-3
        assert {version for completion in group for version, _ in completion.weight_versions} == {1}


async def test_a_wrong_update_stops_the_sync_and_leaves_both_engines_in_service(
    pool: RolloutPool, updates: str
) -> None:
    update = update_file.write_update(updates, 9, {"model.norm.weight": torch.zeros(3)})
    with pytest.raises(TrainingError, match=r"model\.embed_tokens\.weight is missing"):
        await pool.sync(update)
    update_file.discard(update)
    assert pool.out_of_service == {}
    assert len(await pool.generate(PROMPT, SAMPLING, 2)) == 2


async def test_a_prompt_that_is_too_long_is_reported_not_retried(pool: RolloutPool) -> None:
    long = Prompt(id="train/17", reference="", text="unused", token_ids=(5,) * 600)
    with pytest.raises(DataError, match="train/17"):
        await pool.generate(long, SAMPLING, 2)
    assert pool.out_of_service == {}


async def test_death_of_one_engine_costs_no_prompt_and_of_all_is_an_error(pool: RolloutPool, updates: str) -> None:
    long = Sampling(temperature=1.0, max_new_tokens=200, seed=1)
    running = [asyncio.create_task(pool.generate(PROMPT, long, 4)) for _ in range(4)]
    await asyncio.sleep(1.0)
    pid = await ray.get_actor("rollout-0", NAMESPACE).pid.remote()
    below = [process.pid for process in psutil.Process(pid).children(recursive=True)]
    assert len(below) >= 2
    # Nothing of it can stay in shared memory, because nothing there has a name any more.
    assert any("/dev/shm/psm_" in Path(f"/proc/{child}/maps").read_text() for child in below)
    assert processes.shared_memory([processes.Child(child, 0.0) for child in below]) == []
    os.kill(pid, signal.SIGKILL)
    groups = await asyncio.gather(*running)
    assert [len(group) for group in groups] == [4] * 4
    assert list(pool.out_of_service) == ["rollout-0"]
    assert gone_within(below, 20.0) == [], "vLLM outlived its killed actor"

    survivor = await ray.get_actor("rollout-1", NAMESPACE).pid.remote()
    os.kill(survivor, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="ray logs actor --name rollout-1"):
        await pool.generate(PROMPT, SAMPLING, 2)
    with pytest.raises(InfrastructureError, match="no engine"):
        await pool.sync(WeightUpdate(10, "unread"))


async def test_a_gpu_asked_for_where_there_is_none_is_refused_at_once(cluster: None, folder: Path) -> None:
    config = make_config(folder, engines=1)
    config.rollout.device = "cuda"
    pool = RolloutPool(config, str(folder), NAMESPACE, env={})
    with pytest.raises(ConfigError, match="has 0 GPUs"):
        await pool.start()
    await pool.close()


async def test_a_simulated_pool_completes_prompts_and_follows_updates(cluster: None, folder: Path) -> None:
    pool = RolloutPool(make_config(folder, engines=2, engine="simulated"), str(folder), "test-simulated", env={})
    try:
        await pool.start()
        assert pool.simulated
        prompts = [Prompt(id=f"p/{i}", reference="", text="unused", token_ids=(i, 1, 2)) for i in range(20)]
        await pool.sync(WeightUpdate(3, "unread"))
        groups = await asyncio.gather(*(pool.generate(prompt, SAMPLING, 4) for prompt in prompts))
        assert {version for group in groups for c in group for version, _ in c.weight_versions} == {3}
    finally:
        await pool.close()
    with pytest.raises(InfrastructureError, match="closed"):
        await pool.generate(PROMPT, SAMPLING, 1)
