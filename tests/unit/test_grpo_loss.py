"""Token loss, aggregation and statistics against literal few-line formulas."""

from __future__ import annotations

import math

import pytest
import torch

from rlvr.config import LearnerConfig
from rlvr.grpo.aggregation import normaliser, token_weights
from rlvr.grpo.loss import k3, token_loss
from rlvr.grpo.schedule import learning_rate
from rlvr.grpo.statistics import StepSums, token_sums

LENGTHS = [3, 1, 5]


@pytest.fixture
def tokens():
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.rand(sum(LENGTHS), generator=generator, dtype=torch.float64) * 3
    behaviour = logprobs + 0.4 * torch.randn(len(logprobs), generator=generator, dtype=torch.float64)
    reference = logprobs + 0.4 * torch.randn(len(logprobs), generator=generator, dtype=torch.float64)
    advantages = torch.tensor([1.0] * 3 + [-0.5] + [-2.0] * 5, dtype=torch.float64)
    return logprobs.requires_grad_(), behaviour, reference, advantages


def test_the_clipped_objective_follows_the_equation(tokens):
    logprobs, behaviour, _, advantages = tokens
    result = token_loss(logprobs, behaviour, advantages, clip_low=0.1, clip_high=0.3)
    for value, new, old, advantage in zip(
        result.loss.tolist(), logprobs.tolist(), behaviour.tolist(), advantages.tolist(), strict=True
    ):
        ratio = math.exp(new - old)
        assert value == pytest.approx(-min(ratio * advantage, min(max(ratio, 0.9), 1.3) * advantage))


def test_clipped_tokens_have_no_gradient_and_the_others_have_ratio_times_advantage(tokens):
    logprobs, behaviour, _, advantages = tokens
    result = token_loss(logprobs, behaviour, advantages, clip_low=0.1, clip_high=0.3)
    (gradient,) = torch.autograd.grad(result.loss.sum(), logprobs)
    clipped = result.clipped_low | result.clipped_high
    assert 0 < clipped.sum() < len(clipped)
    torch.testing.assert_close(gradient, torch.where(clipped, 0.0, -(logprobs - behaviour).exp().detach() * advantages))


def test_low_and_high_clips_are_counted_on_the_sides_where_they_cut():
    behaviour = torch.zeros(4)
    logprobs = torch.log(torch.tensor([0.5, 0.5, 2.0, 2.0]))
    advantages = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    result = token_loss(logprobs, behaviour, advantages, clip_low=0.2, clip_high=0.2)
    assert result.clipped_low.tolist() == [True, False, False, False]
    assert result.clipped_high.tolist() == [False, False, False, True]


def test_kl_is_the_k3_estimator_and_its_gradient_is_one_minus_the_ratio(tokens):
    logprobs, behaviour, reference, advantages = tokens
    literal = [math.exp(r - p) - (r - p) - 1 for r, p in zip(reference.tolist(), logprobs.tolist(), strict=True)]
    assert k3(logprobs, reference).tolist() == pytest.approx(literal)
    plain = token_loss(logprobs, behaviour, advantages, clip_low=0.2, clip_high=0.2)
    with_kl = token_loss(
        logprobs, behaviour, advantages, clip_low=0.2, clip_high=0.2, reference=reference, kl_coef=0.05
    )
    torch.testing.assert_close(with_kl.loss - plain.loss, 0.05 * k3(logprobs, reference))
    (gradient,) = torch.autograd.grad(k3(logprobs, reference).sum(), logprobs)
    torch.testing.assert_close(gradient, 1 - (reference - logprobs).exp().detach())


def test_kl_of_equal_logprobs_is_zero_and_a_tiny_difference_keeps_its_digits():
    same = torch.tensor([-1.0, -7.0])
    assert k3(same, same).tolist() == [0.0, 0.0]
    assert k3(torch.zeros(1), torch.full((1,), 1e-3)).item() == pytest.approx(0.5e-6, rel=1e-2)


def test_kl_without_a_reference_is_refused(tokens):
    logprobs, behaviour, _, advantages = tokens
    with pytest.raises(ValueError, match="reference"):
        token_loss(logprobs, behaviour, advantages, clip_low=0.2, clip_high=0.2, kl_coef=0.1)


def literal_aggregate(losses: torch.Tensor, aggregation: str, max_new_tokens: int) -> torch.Tensor:
    sequences = losses.split(LENGTHS)
    if aggregation == "token":
        return torch.cat(sequences).mean()
    if aggregation == "sequence":
        return torch.stack([sequence.mean() for sequence in sequences]).mean()
    return torch.stack([sequence.sum() / max_new_tokens for sequence in sequences]).mean()


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
def test_weights_over_normaliser_are_the_literal_aggregate(aggregation):
    losses = torch.randn(sum(LENGTHS), generator=torch.Generator().manual_seed(1))
    weights = token_weights(LENGTHS, aggregation, max_new_tokens=7)
    divisor = normaliser(aggregation, tokens=sum(LENGTHS), sequences=len(LENGTHS))
    torch.testing.assert_close((losses * weights).sum() / divisor, literal_aggregate(losses, aggregation, 7))


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
def test_the_aggregate_does_not_depend_on_the_split_into_micro_batches(aggregation):
    losses = torch.randn(sum(LENGTHS), generator=torch.Generator().manual_seed(1))
    parts = losses.split(LENGTHS)
    apart = sum(
        (part * token_weights([len(part)], aggregation, max_new_tokens=7)).sum() for part in reversed(parts)
    ) / normaliser(aggregation, tokens=sum(LENGTHS), sequences=len(LENGTHS))
    torch.testing.assert_close(apart, literal_aggregate(losses, aggregation, 7))


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="unknown aggregation"):
        token_weights([1], "median", max_new_tokens=1)
    with pytest.raises(ValueError, match="unknown aggregation"):
        normaliser("median", tokens=1, sequences=1)


def test_statistics_add_up_over_parts(tokens):
    logprobs, behaviour, reference, advantages = tokens
    weights = torch.ones(len(logprobs), dtype=torch.float64)
    sums = StepSums()
    for part in (slice(0, 4), slice(4, 9)):
        result = token_loss(
            logprobs[part], behaviour[part], advantages[part], clip_low=0.1, clip_high=0.1,
            reference=reference[part], kl_coef=0.1,
        )  # fmt: skip
        sums.add(token_sums(result, logprobs[part], behaviour[part], weights[part]))
    whole = token_loss(logprobs, behaviour, advantages, clip_low=0.1, clip_high=0.1, reference=reference, kl_coef=0.1)
    metrics = sums.metrics(9.0)
    gap = (logprobs - behaviour).abs()
    assert metrics["tokens"] == 9
    assert metrics["loss"] == pytest.approx(whole.loss.mean().item())
    assert metrics["kl"] == pytest.approx(whole.kl.mean().item())
    assert metrics["logprob_gap"] == pytest.approx(gap.mean().item())
    assert metrics["logprob_gap_max_token"] == pytest.approx(gap.max().item())
    assert metrics["clip_low"] == pytest.approx(whole.clipped_low.double().mean().item())
    assert metrics["clip_high"] == pytest.approx(whole.clipped_high.double().mean().item())
    assert metrics["ratio_mean"] == pytest.approx(whole.ratio.mean().item())


def test_the_learning_rate_warms_up_and_follows_its_schedule():
    def rates(schedule: str) -> list[float]:
        learner = LearnerConfig(lr=1.0, warmup_steps=2, schedule=schedule)
        return [learning_rate(step, 6, learner) for step in range(7)]

    assert rates("constant") == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert rates("linear") == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    assert rates("cosine") == pytest.approx([0.5, 1.0, 1.0, 0.853553, 0.5, 0.146447, 0.0], abs=1e-6)
