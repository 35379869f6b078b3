"""Token loss, aggregation and statistics against literal few-line formulas."""

from __future__ import annotations

import math

import pytest
import torch

from rlvr.config import AlgorithmConfig, CorrectionConfig, KLConfig, LearnerConfig
from rlvr.grpo.aggregation import normaliser, token_weights
from rlvr.grpo.loss import completion_means, k2, k3, token_loss
from rlvr.grpo.schedule import learning_rate
from rlvr.grpo.statistics import StepSums, token_sums

LENGTHS = [3, 1, 5]


def clipping(low: float, high: float, kl: float = 0.0, **more: object) -> AlgorithmConfig:
    return AlgorithmConfig(clip_low=low, clip_high=high, kl=KLConfig(coef=kl), **more)


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
    result = token_loss(logprobs, behaviour, advantages, clipping(0.1, 0.3))
    for value, new, old, advantage in zip(
        result.loss.tolist(), logprobs.tolist(), behaviour.tolist(), advantages.tolist(), strict=True
    ):
        ratio = math.exp(new - old)
        assert value == pytest.approx(-min(ratio * advantage, min(max(ratio, 0.9), 1.3) * advantage))


def test_clipped_tokens_have_no_gradient_and_the_others_have_ratio_times_advantage(tokens):
    logprobs, behaviour, _, advantages = tokens
    result = token_loss(logprobs, behaviour, advantages, clipping(0.1, 0.3))
    (gradient,) = torch.autograd.grad(result.loss.sum(), logprobs)
    clipped = result.clipped_low | result.clipped_high
    assert 0 < clipped.sum() < len(clipped)
    torch.testing.assert_close(gradient, torch.where(clipped, 0.0, -(logprobs - behaviour).exp().detach() * advantages))


def test_low_and_high_clips_are_counted_on_the_sides_where_they_cut():
    behaviour = torch.zeros(4)
    logprobs = torch.log(torch.tensor([0.5, 0.5, 2.0, 2.0]))
    advantages = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    result = token_loss(logprobs, behaviour, advantages, clipping(0.2, 0.2))
    assert result.clipped_low.tolist() == [True, False, False, False]
    assert result.clipped_high.tolist() == [False, False, False, True]


def test_kl_is_the_k3_estimator_and_its_gradient_is_one_minus_the_ratio(tokens):
    logprobs, behaviour, reference, advantages = tokens
    literal = [math.exp(r - p) - (r - p) - 1 for r, p in zip(reference.tolist(), logprobs.tolist(), strict=True)]
    assert k3(logprobs, reference).tolist() == pytest.approx(literal)
    plain = token_loss(logprobs, behaviour, advantages, clipping(0.2, 0.2))
    with_kl = token_loss(logprobs, behaviour, advantages, clipping(0.2, 0.2, kl=0.05), reference=reference)
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
        token_loss(logprobs, behaviour, advantages, clipping(0.2, 0.2, kl=0.1))


def test_k2_has_the_log_ratio_as_its_gradient(tokens):
    logprobs, _, reference, _ = tokens
    (gradient,) = torch.autograd.grad(k2(logprobs, reference).sum(), logprobs)
    torch.testing.assert_close(gradient, (logprobs - reference).detach())


def test_dual_clip_bounds_the_loss_of_a_negative_advantage_and_nothing_else():
    logprobs, advantages = torch.log(torch.tensor([10.0, 2.0, 10.0])), torch.tensor([-1.0, -1.0, 1.0])
    result = token_loss(logprobs, torch.zeros(3), advantages, clipping(0.2, 0.2, dual_clip=3.0))
    assert result.loss.tolist() == pytest.approx([3.0, 2.0, -1.2])


def test_cispo_caps_the_weight_and_keeps_every_token_s_gradient():
    logprobs = torch.log(torch.tensor([10.0, 0.1, 1.0])).requires_grad_()
    advantages = torch.tensor([1.0, -1.0, 2.0])
    result = token_loss(logprobs, torch.zeros(3), advantages, clipping(1.0, 4.0, objective="cispo"))
    (gradient,) = torch.autograd.grad(result.loss.sum(), logprobs)
    assert gradient.tolist() == pytest.approx([-5.0, 0.1, -2.0])


def test_the_sequence_ratio_is_the_geometric_mean_and_its_gradient_reaches_every_token(tokens):
    logprobs, behaviour, _, advantages = tokens
    wide = clipping(1.0, 100.0, ratio="sequence")
    result = token_loss(logprobs, behaviour, advantages, wide, lengths=LENGTHS)
    parts = zip((logprobs - behaviour).detach().split(LENGTHS), LENGTHS, strict=True)
    expected = torch.cat([part.mean().exp().repeat(length) for part, length in parts])
    torch.testing.assert_close(result.ratio, expected)
    (gradient,) = torch.autograd.grad(result.loss.sum(), logprobs)
    torch.testing.assert_close(gradient, -expected * advantages)


def test_a_loss_over_completions_refuses_a_part_of_them(tokens):
    logprobs, behaviour, _, advantages = tokens
    with pytest.raises(ValueError, match="whole completions"):
        token_loss(logprobs, behaviour, advantages, clipping(0.2, 0.2, ratio="sequence"), lengths=LENGTHS[:2])


@pytest.mark.parametrize(
    ("kind", "weights", "corrected"),
    [
        ("none", [1.0] * 4, [0] * 4),
        ("truncated", [0.2, 1.0, 2.0, 1.5], [0, 0, 1, 0]),
        ("masked", [0.0, 1.0, 0.0, 1.5], [1, 0, 1, 0]),
        # Geometric means: sqrt(0.2 * 1) = 0.447 is outside [0.5, 2], sqrt(6 * 1.5) = 3 too.
        ("sequence_masked", [0.0, 0.0, 0.0, 0.0], [1, 1, 1, 1]),
    ],
)
def test_the_behaviour_correction_weighs_what_the_engine_sampled(kind, weights, corrected):
    behaviour = torch.zeros(4)
    logprobs = torch.log(torch.tensor([0.2, 1.0, 6.0, 1.5])).requires_grad_()
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    algorithm = clipping(0.2, 0.2, correction=CorrectionConfig(kind=kind))
    result = token_loss(logprobs, behaviour, advantages, algorithm, lengths=[2, 2])
    assert result.correction.tolist() == pytest.approx(weights)
    assert result.corrected.int().tolist() == corrected
    if kind != "none":
        # The policy is measured against itself: the ratio is 1, and the gradient advantage x weight.
        (gradient,) = torch.autograd.grad(result.loss.sum(), logprobs)
        assert gradient.tolist() == pytest.approx([-a * w for a, w in zip(advantages.tolist(), weights, strict=True)])


def test_sequence_masking_keeps_a_completion_whose_tokens_balance():
    logprobs = torch.log(torch.tensor([0.25, 4.0, 4.0, 4.0]))
    algorithm = clipping(0.2, 0.2, correction=CorrectionConfig(kind="sequence_masked"))
    result = token_loss(logprobs, torch.zeros(4), torch.ones(4), algorithm, lengths=[2, 2])
    assert result.correction.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_means_over_completions_skip_empty_ones():
    means = completion_means(torch.tensor([1.0, 3.0, 5.0]), [2, 0, 1])
    assert means.tolist() == [2.0, 2.0, 5.0]


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
            logprobs[part], behaviour[part], advantages[part], clipping(0.1, 0.1, kl=0.1), reference=reference[part]
        )
        sums.add(token_sums(result, logprobs[part], behaviour[part], weights[part]))
    whole = token_loss(logprobs, behaviour, advantages, clipping(0.1, 0.1, kl=0.1), reference=reference)
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
