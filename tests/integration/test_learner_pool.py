"""The learner as the driver sees it, with real Ray and DeepSpeed: every stage and precision, against plain AdamW."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.actors.learner import LearnerPool
from rlvr.actors.reference import ReferencePool
from rlvr.config import Config
from rlvr.errors import ConfigError, InfrastructureError, TrainingError, UserError
from tests.integration.learner_material import literal, make_config, make_groups, ready
from tests.tiny import make_model

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "learner-tests"
TEMPERATURE = 0.9
CLIP_AT = 5.0
#: The second step's scores are so large that its gradient is clipped; the first one's is not.
SCALES = (1.0, 100.0)


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


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "tied": make_model(folder / "tied", "llama", tied=True),
        "untied": make_model(folder / "untied", "qwen2", tied=False),
    }


@asynccontextmanager
async def running(config: Config, model: Path, shm: Path) -> AsyncIterator[LearnerPool]:
    pool = LearnerPool(config, str(model), NAMESPACE, str(shm))
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


def config_of(stage: int, ranks: int, dtype: str) -> Config:
    config = make_config(zero_stage=stage, ranks=ranks, max_grad_norm=CLIP_AT, weight_decay=0.1)
    config.model.dtype = dtype
    config.algorithm.baseline = "none"
    config.algorithm.scale = "none"
    return config


@pytest.fixture(scope="module")
def expected(models) -> dict[str, list[tuple[float, float, dict[str, torch.Tensor]]]]:
    """(loss, norm, weights afterwards) of both steps by plain AdamW."""
    results = {}
    for name, folder in models.items():
        config = config_of(1, 1, "float32")
        plain = literal(folder, config)
        results[name] = []
        for seed, scale in enumerate(SCALES):
            loss, norm = plain.step(config, make_groups(seed, scale=scale), TEMPERATURE)
            weights = {key: value.detach().clone() for key, value in plain.model.named_parameters()}
            results[name].append((loss, norm, weights))
        assert results[name][0][1] < CLIP_AT < results[name][1][1]
    return results


@pytest.mark.parametrize(
    ("stage", "ranks", "dtype", "model"),
    [
        (0, 1, "float32", "tied"),
        (1, 1, "float32", "untied"),
        (2, 1, "float32", "tied"),
        (3, 1, "float32", "untied"),
        (0, 2, "float32", "untied"),
        (1, 2, "float32", "tied"),
        (2, 2, "float32", "untied"),
        (3, 2, "float32", "tied"),
        (1, 1, "bfloat16", "tied"),
        (1, 2, "bfloat16", "untied"),
        (2, 2, "bfloat16", "tied"),
        (3, 2, "bfloat16", "tied"),
    ],
)
async def test_steps_equal_plain_adamw(cluster, models, expected, tmp_path, stage, ranks, dtype, model):
    exact = dtype == "float32"
    async with running(config_of(stage, ranks, dtype), models[model], tmp_path) as pool:
        before = None
        for number, (loss, norm, weights) in enumerate(expected[model]):
            groups = ready(make_groups(number, scale=SCALES[number]), pool._config)
            # In two calls, as they would stream in.
            await pool.feed(groups[:1], TEMPERATURE)
            await pool.feed(groups[1:], TEMPERATURE)
            metrics = await pool.step()
            assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4 if exact else 0.1)
            assert metrics["loss"] == pytest.approx(loss, rel=1e-4 if exact else 0.1)
            assert metrics["tokens"] == sum(len(c.token_ids) for g in groups for c in g.completions)
            update = await pool.publish(number + 1)
            published = load_file(update.path)
            assert published.keys() == weights.keys()
            for name, tensor in published.items():
                assert tensor.dtype == getattr(torch, dtype)
                if exact:
                    # AdamW's first steps have the size of lr whatever the gradient: compare the weights themselves,
                    # apart from elements whose gradient is so close to 0 that rounding decides its sign.
                    off = ((tensor - weights[name]).abs() > 2e-5).float().mean()
                    assert off < 1e-3, name
                elif before is not None:
                    assert not torch.equal(tensor, before[name]), name
            before = published
        prompt, completion = groups[0].prompt.token_ids, groups[0].completions[2].token_ids
        if exact:
            (own,) = await pool.logprobs(prompt, [completion], TEMPERATURE)
            loaded = AutoModelForCausalLM.from_pretrained(models[model], dtype=torch.float32)
            loaded.load_state_dict(published, strict=False)
            rows = loaded(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
            want = rows.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
            np.testing.assert_allclose(own, want.detach().numpy(), atol=1e-4)


async def test_a_saved_model_loads_in_transformers_and_is_the_trained_one(cluster, models, tmp_path):
    async with running(make_config(), models["tied"], tmp_path) as pool:
        groups = ready(make_groups(), pool._config)
        prompt, completion = groups[0].prompt.token_ids, groups[0].completions[0].token_ids
        (untrained,) = await pool.logprobs(prompt, [completion], 1.0)
        await pool.feed(groups, 1.0)
        await pool.step()
        first = await pool.publish(1)
        second = await pool.publish(2)
        assert first.path != second.path
        assert os.listdir(tmp_path) == [os.path.basename(second.path)]  # the version before is gone
        await pool.save(str(tmp_path / "checkpoint"))
        (trained,) = await pool.logprobs(prompt, [completion], 1.0)
        with pytest.raises(UserError, match="could not be saved"):
            await pool.save(str(models["tied"] / "config.json" / "below-a-file"))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint")
    assert loaded.dtype == torch.float32
    assert len(AutoTokenizer.from_pretrained(tmp_path / "checkpoint")) == loaded.config.vocab_size
    rows = loaded(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    want = rows.gather(1, torch.tensor(completion)[:, None])[:, 0].detach().numpy()
    np.testing.assert_allclose(trained, want, atol=1e-5)
    assert np.abs(trained - untrained).max() > 1e-3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


async def test_a_loss_that_is_not_finite_stops_training_and_names_the_prompt(cluster, models, tmp_path):
    async with running(make_config(ranks=2, zero_stage=2), models["tied"], tmp_path) as pool:
        groups = ready(make_groups(), pool._config)
        groups[2].completions[0].logprobs[1] = np.nan
        with pytest.raises(TrainingError, match=r"step 1.*p2"):
            await pool.feed(groups, 1.0)


@pytest.mark.parametrize(("stage", "dtype"), [(0, "float32"), (1, "float32"), (3, "float32"), (1, "bfloat16")])
async def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(cluster, models, tmp_path, stage, dtype):
    config = make_config(zero_stage=stage)
    config.model.dtype = dtype
    async with running(config, models["tied"], tmp_path) as pool:
        groups = ready(make_groups(), config)
        before = await pool.logprobs([5, 6], [[7, 8]], 1.0)
        groups[1].completions[0].logprobs[0] = np.nan
        with pytest.raises(TrainingError, match=r"loss is not finite.*p1"):
            await pool.feed(groups, 1.0)
        # The driver stops here. Whoever steps all the same is refused too.
        with pytest.raises(TrainingError, match="gradient is not finite"):
            await pool.step()
        after = await pool.logprobs([5, 6], [[7, 8]], 1.0)
        np.testing.assert_array_equal(before[0], after[0])


async def test_a_step_without_food_is_refused(cluster, models, tmp_path):
    async with running(make_config(), models["tied"], tmp_path) as pool:
        groups = make_groups()[:1]
        groups[0].advantages = [None] * 3
        await pool.feed(groups, 1.0)
        with pytest.raises(TrainingError, match="no judged completion"):
            await pool.step()


async def test_zero_0_in_bfloat16_is_refused_with_what_to_do(cluster, models, tmp_path):
    config = make_config(zero_stage=0)
    config.model.dtype = "bfloat16"
    with pytest.raises(ConfigError, match=r"learner\.zero_stage=1"):
        async with running(config, models["tied"], tmp_path):
            pass


async def test_a_rank_that_dies_is_named(cluster, models, tmp_path):
    async with running(make_config(), models["tied"], tmp_path) as pool:
        ray.kill(pool._actors[0], no_restart=True)
        with pytest.raises(InfrastructureError, match="learner-0"):
            await pool.feed(ready(make_groups(), pool._config), 1.0)


async def test_cuda_where_there_is_none_is_refused(cluster, models, tmp_path):
    with pytest.raises(ConfigError, match=r"learner\.device"):
        async with running(make_config(device="cuda"), models["tied"], tmp_path):
            pass


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_kl_to_the_reference_is_zero_before_the_first_update_and_positive_after(cluster, models, tmp_path, dtype):
    config = make_config()
    config.model.dtype = dtype
    config.algorithm.kl.coef = 0.1
    reference = ReferencePool(config, str(models["tied"]), NAMESPACE)
    try:
        await reference.start()
        async with running(config, models["tied"], tmp_path) as pool:
            kl = []
            for _ in range(2):
                groups = ready(make_groups(), config)
                for group in groups:
                    group.reference_logprobs = await reference.score(group, TEMPERATURE)
                    assert [len(x) for x in group.reference_logprobs] == [len(c.token_ids) for c in group.completions]
                await pool.feed(groups, TEMPERATURE)
                kl.append((await pool.step())["kl"])
    finally:
        await reference.close()
    assert abs(kl[0]) < (1e-9 if dtype == "float32" else 1e-4)
    assert kl[1] > 1e-5
