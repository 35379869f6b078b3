"""The real vLLM engine on CPU: behaviour logprobs, groups, stop strings, and weights that change under it.

The parity of engine and Transformers after weight updates is the most valuable test of the project: an engine
that serves old weights, or old cached keys and values, looks healthy in every other way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from rlvr.engine import quiet_wait, update_file, weight_transfer
from rlvr.engine.vllm import VllmEngine, VllmOptions
from rlvr.errors import DataError, InfrastructureError, TrainingError, UserError
from rlvr.records import Completion, FinishReason, Sampling, WeightUpdate
from tests.tiny import make_model

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

SAMPLING = Sampling(temperature=1.0, max_new_tokens=24, seed=7)
#: Longer than two KV-cache blocks of 32 tokens, so that the prefix cache has something to serve.
PROMPT = tuple(10 + (7 * i) % 250 for i in range(80))
#: Largest mean |engine - Transformers| over a completion, in nats.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05}


@dataclass
class Pair:
    """An engine and the Transformers model with the weights it should have."""

    engine: VllmEngine
    model: PreTrainedModel
    folder: Path
    updates: str
    dtype: str
    version: int = 0

    async def sync(self) -> WeightUpdate:
        """Send the model's present weights."""
        self.version += 1
        update = update_file.write_update(self.updates, self.version, dict(self.model.named_parameters()))
        assert await self.engine.update_weights(update) == self.version
        update_file.discard(update)
        return update

    @torch.no_grad()
    def change(self, scale: float, seed: int) -> None:
        """Add noise of relative size `scale` to every parameter, norms and biases included."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.model.parameters():
            size = scale * max(float(parameter.float().std()), 0.1 if parameter.ndim == 1 else 0.0)
            parameter += (torch.randn(parameter.shape, generator=generator) * size).to(parameter.dtype)

    @torch.no_grad()
    def logprobs(self, prompt: tuple[int, ...], completion: Completion, temperature: float = 1.0) -> np.ndarray:
        """Transformers' logprobs of the completion's tokens."""
        ids = torch.tensor([prompt + completion.token_ids])
        logits = self.model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature
        return logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].numpy()

    async def gap(self, name: str, prompt: tuple[int, ...] = PROMPT) -> float:
        """Mean absolute difference of logprobs over a fresh group of completions of `prompt`."""
        group = await self.engine.generate(name, prompt, SAMPLING, 4)
        return float(np.mean([np.abs(self.logprobs(prompt, c) - c.logprobs).mean() for c in group]))


async def open_pair(folder: Path, architecture: str, tied: bool, dtype: str) -> AsyncIterator[Pair]:
    make_model(folder, architecture, tied=tied)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    engine = VllmEngine(
        VllmOptions(name="rollout-0", model_folder=str(folder), dtype=dtype, kv_cache_gb=0.25, max_sequences=64)
    )
    updates = tempfile.TemporaryDirectory(dir="/dev/shm")
    try:
        await engine.start()
        yield Pair(engine, model, folder, updates.name, dtype)
    finally:
        children, names = engine.processes, engine._shared_memory
        await engine.close()
        updates.cleanup()
    assert children
    assert names
    assert not [path for path in names if path.exists()], "close() left shared memory behind"
    assert not [pid for pid in children if psutil.pid_exists(pid)], "close() left processes behind"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    async for opened in open_pair(tmp_path_factory.mktemp("llama-tied"), "llama", True, "float32"):
        yield opened


async def check_parity(pair: Pair) -> None:
    tolerance = TOLERANCE[pair.dtype]
    assert await pair.gap("initial") < tolerance
    old_prompt_logprobs = pair.logprobs(PROMPT, (await pair.engine.generate("old", PROMPT, SAMPLING, 1))[0])
    for number, scale in enumerate([1e-5, 1e-3, 1.0, 1e-5, 1.0]):
        pair.change(scale, seed=number)
        await pair.sync()
        assert await pair.gap(f"{pair.version}") < tolerance, f"after a change of relative size {scale}"
        assert await pair.gap(f"{pair.version} again") < tolerance, "the same prompt, now from the prefix cache"
    # Stale weights would have failed this test: the changes were far larger than the tolerance.
    changed = pair.logprobs(PROMPT, (await pair.engine.generate("new", PROMPT, SAMPLING, 1))[0])
    assert np.abs(changed - old_prompt_logprobs).mean() > 3 * tolerance


async def test_logprobs_agree_with_transformers_after_every_sync(pair: Pair) -> None:
    await check_parity(pair)


@pytest.mark.parametrize(
    ("architecture", "tied", "dtype"),
    [("qwen2", False, "float32"), ("llama", False, "bfloat16"), ("qwen2", True, "bfloat16")],
)
async def test_logprobs_agree_for_other_models(tmp_path: Path, architecture: str, tied: bool, dtype: str) -> None:
    async for opened in open_pair(tmp_path, architecture, tied, dtype):
        await check_parity(opened)


async def test_old_cached_keys_and_values_are_never_served(pair: Pair) -> None:
    await pair.gap("fill the cache")
    pair.change(2.0, seed=50)
    await pair.sync()
    assert await pair.gap("same prompt, new weights") < TOLERANCE[pair.dtype]


async def test_temperature_and_top_k_are_part_of_the_logprobs(pair: Pair) -> None:
    sampling = Sampling(temperature=0.7, top_k=5, max_new_tokens=16, seed=3)
    (completion,) = await pair.engine.generate("temperature", PROMPT, sampling, 1)
    ids = torch.tensor([PROMPT + completion.token_ids])
    with torch.no_grad():
        logits = pair.model(ids).logits[0, len(PROMPT) - 1 : -1] / 0.7
    kept = logits.masked_fill(logits < logits.topk(5).values[:, -1:], -torch.inf).log_softmax(-1)
    expected = kept.gather(1, ids[0, len(PROMPT) :, None])[:, 0].numpy()
    assert np.abs(expected - completion.logprobs).mean() < TOLERANCE[pair.dtype]


async def test_requests_in_flight_survive_a_sync_and_say_which_weights_wrote_them(pair: Pair) -> None:
    sampling = Sampling(temperature=1.0, max_new_tokens=300, seed=1)
    before = pair.version
    running = [asyncio.create_task(pair.engine.generate(f"long-{i}", PROMPT, sampling, 4)) for i in range(4)]
    await asyncio.sleep(0.5)
    pair.change(1e-3, seed=60)
    await pair.sync()
    groups = await asyncio.gather(*running)
    completions = [completion for group in groups for completion in group]
    assert len(completions) == 16
    for completion in completions:
        assert sum(count for _, count in completion.weight_versions) == len(completion.token_ids)
        assert np.isfinite(completion.logprobs).all()
    versions = {tuple(version for version, _ in completion.weight_versions) for completion in completions}
    assert (before, pair.version) in versions, f"no completion was caught in flight: {versions}"
    (fresh,) = await pair.engine.generate("fresh", PROMPT, SAMPLING, 1)
    assert fresh.weight_versions == ((pair.version, len(fresh.token_ids)),)


async def test_tokens_sampled_after_a_sync_come_from_the_new_weights_alone(pair: Pair) -> None:
    sampling = Sampling(temperature=1.0, max_new_tokens=300, seed=5)
    running = asyncio.create_task(pair.engine.generate("caught", PROMPT, sampling, 4))
    await asyncio.sleep(0.3)
    pair.change(1.0, seed=70)
    await pair.sync()
    caught = [c for c in await running if len(c.weight_versions) == 2]
    assert caught, "no completion was caught in flight"
    for completion in caught:
        old = completion.weight_versions[0][1]
        gap = np.abs(pair.logprobs(PROMPT, completion)[old:] - completion.logprobs[old:]).mean()
        assert gap < TOLERANCE[pair.dtype]


async def test_greedy_takes_the_likeliest_token(pair: Pair) -> None:
    (completion,) = await pair.engine.generate("greedy", PROMPT, Sampling(temperature=0.0, max_new_tokens=8), 1)
    ids = torch.tensor([PROMPT + completion.token_ids])
    with torch.no_grad():
        best = pair.model(ids).logits[0, len(PROMPT) - 1 : -1].argmax(-1)
    assert tuple(best.tolist()) == completion.token_ids


async def test_the_completions_of_a_group_differ_and_a_seed_reproduces_them(pair: Pair) -> None:
    first = await pair.engine.generate("a", PROMPT, SAMPLING, 8)
    second = await pair.engine.generate("b", PROMPT, SAMPLING, 8)
    assert len({completion.token_ids for completion in first}) == 8
    assert [c.token_ids for c in first] == [c.token_ids for c in second]


async def test_seeded_prompts_that_exceed_one_batch_are_all_completed(pair: Pair) -> None:
    prompts = [tuple(3 + (7 * number + place) % 300 for place in range(400)) for number in range(24)]
    sampling = Sampling(temperature=1.0, max_new_tokens=2, seed=5)
    groups = await asyncio.gather(
        *(pair.engine.generate(f"long {number}", prompt, sampling, 2) for number, prompt in enumerate(prompts))
    )
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            np.testing.assert_allclose(pair.logprobs(prompt, completion), completion.logprobs, atol=1e-3)


async def test_a_stop_string_ends_the_text_but_every_sampled_token_is_kept(pair: Pair) -> None:
    tokenizer = AutoTokenizer.from_pretrained(pair.folder)
    (free,) = await pair.engine.generate("free", PROMPT, SAMPLING, 1)
    stop = free.text[6:9]
    stopped_sampling = Sampling(temperature=1.0, max_new_tokens=24, seed=7, stop=(stop,))
    (stopped,) = await pair.engine.generate("stopped", PROMPT, stopped_sampling, 1)
    assert stopped.finish_reason is FinishReason.STOP
    assert stop not in stopped.text
    assert free.text.startswith(stopped.text + stop)
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert stop in tokenizer.decode(stopped.token_ids)
    assert len(stopped.logprobs) == len(stopped.token_ids)
    assert stopped.logprobs.dtype == np.float32


async def test_a_completion_cut_off_by_the_limit_is_truncated(pair: Pair) -> None:
    (completion,) = await pair.engine.generate("cut", PROMPT, Sampling(1.0, max_new_tokens=2, seed=1), 1)
    assert len(completion.token_ids) == 2
    assert completion.truncated


@pytest.mark.parametrize("prompt", [(), tuple([5] * 500), (5, 10_000_000)], ids=["empty", "too long", "no such token"])
async def test_a_prompt_the_model_cannot_take_is_a_data_error(pair: Pair, prompt: tuple[int, ...]) -> None:
    with pytest.raises(DataError):
        await pair.engine.generate("bad", prompt, SAMPLING, 1)


async def test_several_greedy_completions_are_refused(pair: Pair) -> None:
    with pytest.raises(UserError, match="greedy"):
        await pair.engine.generate("greedy", PROMPT, Sampling(temperature=0.0, max_new_tokens=8), 2)


@pytest.mark.parametrize("fault", ["missing", "extra", "shape", "dtype", "version", "gone", "garbage"])
async def test_a_wrong_update_is_refused_and_the_old_weights_stay(pair: Pair, fault: str) -> None:
    tensors = {name: parameter.detach().clone() + 1 for name, parameter in pair.model.named_parameters()}
    name = "model.layers.1.mlp.up_proj.weight"
    if fault == "missing":
        del tensors[name]
    elif fault == "extra":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        name = "lm_head.weight"
    elif fault == "shape":
        tensors[name] = tensors[name].T.contiguous()
    elif fault == "dtype":
        tensors[name] = tensors[name].bfloat16()
    update = update_file.write_update(pair.updates, 1000, tensors)
    if fault == "version":
        update, name = WeightUpdate(1001, update.path), "version is '1000'"
    elif fault == "gone":
        update_file.discard(update)
        name = "cannot be read"
    elif fault == "garbage":
        _overwrite(update.path)
        name = "cannot be read"
    with pytest.raises(TrainingError, match=name):
        await pair.engine.update_weights(update)
    # vLLM's worker refuses it too, whoever asks, before it touches its model.
    if fault != "version":
        with pytest.raises(InfrastructureError, match=name.split(".weight")[0]):
            await pair.engine._phase("start", pair.engine._llm.start_weight_update())
            await pair.engine._phase("load", pair.engine._llm.update_weights(_request(update)))
    update_file.discard(update)
    assert await pair.gap(f"after {fault}") < TOLERANCE[pair.dtype]


def _overwrite(path: str) -> None:
    Path(path).write_bytes(b"not safetensors at all")


def _request(update: WeightUpdate) -> object:
    from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

    return WeightTransferUpdateRequest(update_info={"path": update.path, "version": update.version})


async def test_registering_the_plugin_twice_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    monkeypatch.setenv(quiet_wait.VARIABLE, "1")
    weight_transfer.register()
    patched = SpinCondition.wait
    weight_transfer.register()
    assert SpinCondition.wait is patched
    weight_transfer.check_installed()


async def test_a_cancelled_request_leaves_the_engine_free(pair: Pair) -> None:
    task = asyncio.create_task(pair.engine.generate("cancelled", PROMPT, Sampling(1.0, max_new_tokens=400, seed=1), 8))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pair.engine._llm.get_num_unfinished_requests() == 0
    assert await pair.gap("after cancelling") < TOLERANCE[pair.dtype]


async def test_a_killed_engine_process_is_an_infrastructure_error_not_a_hang(tmp_path: Path) -> None:
    async for opened in open_pair(tmp_path, "llama", True, "float32"):
        long = Sampling(temperature=1.0, max_new_tokens=400, seed=1)
        running = asyncio.create_task(opened.engine.generate("long", PROMPT, long, 8))
        await asyncio.sleep(0.3)
        core = min(opened.engine.processes)
        os.kill(core, signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="rollout-0"):
            await asyncio.wait_for(running, timeout=60)
        with pytest.raises(InfrastructureError, match="out of service"):
            await opened.engine.generate("after", PROMPT, SAMPLING, 1)
