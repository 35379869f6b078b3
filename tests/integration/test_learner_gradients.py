"""Gradients of tiny models: shared equals plain equals literal, however a step is laid out. Without DeepSpeed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GraniteConfig, GraniteForCausalLM, MistralConfig, MistralForCausalLM

from rlvr.actors.learner_core import Learner
from rlvr.actors.trainable import lay_out, trainables
from rlvr.config import Config
from rlvr.errors import ConfigError, InfrastructureError, UserError
from rlvr.grpo.aggregation import normaliser
from rlvr.grpo.statistics import StepSums
from rlvr.policy.logprobs import SampledFrom
from rlvr.policy.model import load_policy
from rlvr.records import Group
from tests.integration.learner_material import literal, make_config, make_groups, ready
from tests.tiny import make_model

TEMPERATURE = 0.8


class PlainEngine:
    """What the learner asks of its engine, without DeepSpeed."""

    device = torch.device("cpu")

    def __init__(self, policy: torch.nn.Module) -> None:
        self.policy = policy

    def __call__(self, *inputs):
        return self.policy(*inputs)

    def backward(self, total: torch.Tensor) -> None:
        total.backward()


@pytest.fixture(scope="module", params=["llama-tied", "llama-untied", "qwen2-tied"])
def folder(request, tmp_path_factory) -> Path:
    architecture, tied = request.param.split("-")
    return make_model(tmp_path_factory.mktemp("model"), architecture, tied=tied == "tied")


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("llama"))


def gradients(
    folder: Path, config: Config, feeds: list[list[Group]], ranks: int = 1
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Normalised gradients and metrics of one step that is fed in several calls; ranks run one after another."""
    learner = Learner(config, str(folder), "cpu")
    policy = load_policy(
        folder,
        dtype="float32",
        share_prefix=config.learner.share_prefix,
        logits_chunk=config.learner.logits_chunk,
        gradient_checkpointing=config.learner.gradient_checkpointing,
    )
    learner._policy, learner._engine = policy, PlainEngine(policy)
    totals = StepSums()
    for groups in feeds:
        work = lay_out(
            trainables(ready(groups, config), config.algorithm),
            budget=config.learner.tokens_per_microbatch,
            ranks=ranks,
            share_prefix=config.learner.share_prefix,
        )
        for batches in work.ranks:
            sums, not_finite = learner.feed(batches, TEMPERATURE)
            assert not not_finite
            totals.add(sums)
    divisor = normaliser(config.algorithm.aggregation, tokens=totals.tokens, sequences=totals.sequences)
    named = {name.removeprefix("model."): p.grad / divisor for name, p in policy.named_parameters()}
    return named, totals.metrics(divisor)


def assert_same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    assert got.keys() == want.keys()
    for name in want:
        assert (got[name] - want[name]).norm() <= tolerance * want[name].norm(), name


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
@pytest.mark.parametrize("share", [True, False])
def test_gradients_equal_the_literal_loss(folder, aggregation, share):
    config = make_config(share_prefix=share)
    config.algorithm.aggregation = aggregation
    config.algorithm.kl.coef = 0.1
    groups = make_groups()
    for group in groups:
        group.reference_logprobs = [c.logprobs + np.float32(0.3) for c in group.completions]
    plain = literal(folder, config)
    loss = plain.loss(config, groups, TEMPERATURE)
    loss.backward()
    got, metrics = gradients(folder, config, [groups])
    assert_same(got, {name: p.grad for name, p in plain.model.named_parameters()})
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert metrics["clip_low"] > 0
    assert metrics["clip_high"] > 0


@pytest.mark.parametrize(
    "variant",
    ["budget 1", "budget 40", "one micro-batch", "shuffled", "one by one", "3 ranks", "plain", "checkpointing"],
)
@pytest.mark.parametrize("prefix", [0, 24])
def test_the_layout_of_a_step_does_not_change_its_gradient(llama, variant, prefix):
    config, groups = make_config(tokens_per_microbatch=64 + prefix), make_groups(prefix=prefix)
    want, metrics = gradients(llama, config, [groups])
    feeds, ranks = [groups], 1
    if variant.startswith("budget"):
        config.learner.tokens_per_microbatch = int(variant.split()[1])
    elif variant == "one micro-batch":
        config.learner.tokens_per_microbatch = 10_000
    elif variant == "shuffled":
        feeds = [random.Random(1).sample(groups, len(groups))]
    elif variant == "one by one":
        feeds = [[group] for group in groups]
    elif variant == "3 ranks":
        ranks = 3
    elif variant == "plain":
        config.learner.share_prefix = False
    else:
        config.learner.gradient_checkpointing = True
    got, other = gradients(llama, config, feeds, ranks)
    assert_same(got, want)
    for key in ("loss", "logprob_gap", "logprob_gap_max_token", "ratio_mean", "clip_low", "clip_high"):
        # abs: the loss is a small difference of large sums.
        assert other[key] == pytest.approx(metrics[key], rel=1e-5, abs=1e-6), key
    assert (other["tokens"], other["sequences"]) == (metrics["tokens"], metrics["sequences"])


@pytest.mark.parametrize("variant", ["as it is", "budget 1", "plain", "3 ranks", "checkpointing"])
def test_the_sequence_ratio_has_the_literal_gradient_however_a_step_is_laid_out(llama, variant):
    config, groups = make_config(logits_chunk=3), ready(make_groups(), make_config())
    algorithm = config.algorithm
    algorithm.ratio, algorithm.aggregation, algorithm.clip_low, algorithm.clip_high = "sequence", "sequence", 0.05, 0.1
    plain = literal(llama, config)
    losses = []
    for group in groups:
        for completion, advantage in zip(group.completions, group.advantages, strict=True):
            logprobs = plain.logprobs(group.prompt.token_ids, completion.token_ids, TEMPERATURE)
            ratio = (logprobs - torch.from_numpy(completion.logprobs)).mean().exp()
            losses.append(-torch.minimum(ratio * advantage, ratio.clamp(0.95, 1.1) * advantage))
    loss = torch.stack(losses).mean()
    loss.backward()
    config.learner.tokens_per_microbatch = 1 if variant == "budget 1" else 64
    config.learner.share_prefix = variant != "plain"
    config.learner.gradient_checkpointing = variant == "checkpointing"
    got, metrics = gradients(llama, config, [groups], ranks=3 if variant == "3 ranks" else 1)
    assert_same(got, {name: p.grad for name, p in plain.model.named_parameters()})
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert 0 < metrics["clip_low"] + metrics["clip_high"] < 1


@pytest.mark.parametrize("kind", ["truncated", "masked", "sequence_masked"])
def test_the_behaviour_correction_does_not_depend_on_the_layout(llama, kind):
    config, groups = make_config(), make_groups()
    config.algorithm.correction.kind, config.algorithm.correction.low, config.algorithm.correction.high = kind, 0.8, 1.1
    want, metrics = gradients(llama, config, [groups])
    config.learner.share_prefix, config.learner.tokens_per_microbatch = False, 1
    got, other = gradients(llama, config, [groups], ranks=2)
    assert_same(got, want)
    assert other["correction_mean"] == pytest.approx(metrics["correction_mean"], rel=1e-5)
    assert 0 < metrics["corrected"] < 1


def test_each_distinct_token_is_computed_once(llama):
    groups = make_groups(prefix=24)
    _, metrics = gradients(llama, make_config(tokens_per_microbatch=10_000), [groups])
    own = sum(len(g.prompt.token_ids) - 24 + sum(len(c.token_ids) - 1 for c in g.completions) for g in groups)
    assert metrics["computed_tokens"] == 24 + own


def test_a_completion_without_a_score_counts_for_nothing(llama):
    groups = make_groups()
    whole = make_groups()
    for group, other in zip(groups, whole, strict=True):
        group.verdicts[1].score = None
        del other.completions[1], other.verdicts[1]
    got, metrics = gradients(llama, make_config(), [groups])
    want, expected = gradients(llama, make_config(), [whole])
    assert_same(got, want)
    assert metrics["tokens"] == expected["tokens"]


def test_top_k_logprobs_are_renormalised_over_the_learners_own_top_k(llama):
    policy = load_policy(llama, dtype="float32", share_prefix=True, logits_chunk=3)
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
    prompt, completion = [5, 6, 7], [8, 200, 11]
    with torch.no_grad():
        _, got = policy(policy.pack([(prompt, [completion])]), SampledFrom(0.7, 4))
        logits = model(torch.tensor([prompt + completion])).logits[0, 2:-1] / 0.7
    for value, row, token in zip(got, logits, completion, strict=True):
        kept = sorted({*row.topk(4).indices.tolist(), token})
        torch.testing.assert_close(value, row[token] - row[kept].logsumexp(0), rtol=1e-4, atol=1e-5)


def test_bfloat16_policy_stays_close_to_float32(llama):
    items = [([5, 6, 7, 8], [[9, 10, 11], [12, 13]])]
    results = []
    for dtype in ("float32", "bfloat16"):
        policy = load_policy(llama, dtype=dtype, share_prefix=True, logits_chunk=3)
        with torch.no_grad():
            results.append(policy(policy.pack(items), SampledFrom())[1])
    assert (results[0] - results[1]).abs().mean() < 0.05


SHAPE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_sliding_windows_cannot_share_and_the_error_names_the_key(tmp_path):
    MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=4096)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"learner\.share_prefix=false"):
        load_policy(tmp_path, dtype="float32", share_prefix=True, logits_chunk=8)
    load_policy(tmp_path, dtype="float32", share_prefix=False, logits_chunk=8)


def test_a_model_that_alters_its_logits_is_refused_rather_than_trained_wrongly(tmp_path):
    GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=8.0, initializer_range=0.5)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="logprobs"):
        load_policy(tmp_path, dtype="float32", share_prefix=False, logits_chunk=8)


def test_a_folder_without_a_model_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot be loaded"):
        load_policy(tmp_path, dtype="float32", share_prefix=True, logits_chunk=8)


@pytest.mark.parametrize("lack", ["prompt token ids", "advantage", "logprobs", "reference logprobs"])
def test_a_group_that_lacks_something_is_named(lack):
    config = make_config()
    group, *_ = ready(make_groups(), config)
    if lack == "prompt token ids":
        object.__setattr__(group.prompt, "token_ids", None)
    elif lack == "advantage":
        group.advantages = group.advantages[:-1]
    elif lack == "logprobs":
        group.completions[1].logprobs = group.completions[1].logprobs[:0]
    else:
        config.algorithm.kl.coef = 0.1
    with pytest.raises(InfrastructureError, match=f"g0.*{lack}"):
        trainables([group], config.algorithm)
