"""The chunked head: logprobs of the distribution really sampled, gradients equal to the full computation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlvr.policy.logprobs import LogprobHead, SampledFrom

WIDTH, VOCABULARY, POSITIONS = 12, 50, 23


@pytest.fixture
def parts():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(POSITIONS, WIDTH, generator=generator)
    targets = torch.randint(VOCABULARY, (POSITIONS,), generator=generator)
    projection = nn.Linear(WIDTH, VOCABULARY)
    with torch.no_grad():
        for parameter in projection.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return hidden, targets, projection


def literal(hidden, targets, projection, temperature, top_k):
    rows = []
    for state, target in zip(hidden, targets, strict=True):
        logits = projection(state) / temperature
        if top_k:
            kept = sorted(set(logits.topk(top_k).indices.tolist()) | {int(target)})
            rows.append(logits[target] - logits[kept].logsumexp(0))
        else:
            rows.append(logits.log_softmax(0)[target])
    return torch.stack(rows)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 23, 100])
@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.6, 0), (1.0, 5), (1.7, 5), (1.0, 50)])
def test_chunks_equal_the_full_computation_with_gradients(parts, chunk, temperature, top_k, bias):
    hidden, targets, projection = parts
    if not bias:
        projection.bias = None
    hidden.requires_grad_()
    slopes = torch.linspace(-1, 2, POSITIONS)
    leaves = [hidden, *projection.parameters()]
    expected = literal(hidden, targets, projection, temperature, top_k)
    wanted = torch.autograd.grad((expected.exp() * slopes).sum() * 3, leaves)

    head = LogprobHead(projection, chunk)
    total, logprobs = head(
        hidden, targets, SampledFrom(temperature, top_k), lambda values, which: (values.exp() * slopes[which]).sum()
    )
    torch.testing.assert_close(logprobs, expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(total.detach(), (expected.exp() * slopes).sum().detach(), rtol=1e-5, atol=1e-5)
    # Three times: the gradient that comes in from behind counts too.
    for got, want in zip(torch.autograd.grad(total * 3, leaves), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert torch.equal(head(hidden, targets, SampledFrom(temperature, top_k))[1], logprobs)


def test_the_sampled_token_counts_even_outside_the_learners_top_k(parts):
    hidden, _, projection = parts
    worst = projection(hidden).argmin(1)
    _, logprobs = LogprobHead(projection, 8)(hidden, worst, SampledFrom(top_k=3))
    assert torch.isfinite(logprobs).all()
    torch.testing.assert_close(logprobs, literal(hidden, worst, projection, 1.0, 3).detach(), rtol=1e-5, atol=1e-5)


def test_scoring_keeps_no_graph_and_the_head_keeps_its_parameters(parts):
    hidden, targets, projection = parts
    head = LogprobHead(projection, 8)
    total, logprobs = head(hidden.requires_grad_(), targets, SampledFrom())
    assert total is None
    assert not logprobs.requires_grad
    assert head.weight is projection.weight
    assert set(head.state_dict()) == {"weight", "bias"}


def test_greedy_has_no_logprobs():
    with pytest.raises(ValueError, match="temperature"):
        SampledFrom(0.0)
