"""Logprobs of chosen tokens from hidden states, and their gradients, without ever holding all logits.

The vocabulary projection runs in chunks of positions. For training, each chunk's loss and its gradient with respect
to hidden states and projection weights are computed while its logits exist, so nothing is computed a second time in
the backward pass and memory does not grow with vocabulary x tokens. Must not know which loss it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

#: A chunk's loss: (logprobs float32 [n], which of the N tokens these are) -> scalar sum over them. The loss of a
#: token may depend on that token's logprob only, unless it is asked for all N at once.
Objective = Callable[[torch.Tensor, slice], torch.Tensor]


@dataclass(frozen=True)
class SampledFrom:
    """The distribution that tokens were sampled from: softmax(logits / temperature), cut to the top_k likeliest."""

    temperature: float = 1.0
    top_k: int = 0
    """0 keeps every token. Else the learner's own top k, and always the sampled token."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"logprobs need a temperature above 0, got {self.temperature}")


class LogprobHead(nn.Linear):
    """An output projection that returns logprobs of targets instead of logits.

    It keeps the names `weight` and `bias`, so it takes the place of a model's `lm_head` without changing a
    checkpoint; a weight tied to the input embedding stays tied. Called as a module, so that what hooks onto modules
    (ZeRO 3 gathers parameters that way) works.
    """

    def __init__(self, projection: nn.Linear, chunk: int) -> None:
        # "meta" allocates nothing: the parameters are replaced at once.
        super().__init__(
            projection.in_features, projection.out_features, bias=projection.bias is not None, device="meta"
        )
        self.weight = projection.weight
        self.bias = projection.bias
        self.chunk = chunk

    def forward(  # type: ignore[override]
        self,
        hidden: torch.Tensor,
        targets: torch.Tensor,
        sampled: SampledFrom,
        objective: Objective | None = None,
        whole: bool = False,
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """hidden [N, width], targets int64 [N] -> (sum of the objective, or None without one; logprobs float32 [N]).

        Only the sum carries gradient. `whole`: the objective is called once, with all N logprobs, at the price of a
        second projection; for losses in which tokens depend on each other.
        """
        if objective is None:
            with torch.no_grad():
                return None, _chunked(hidden, self.weight, self.bias, targets, sampled, self.chunk, None)[0]
        return _ChunkedObjective.apply(hidden, self.weight, self.bias, targets, sampled, self.chunk, objective, whole)


class _ChunkedObjective(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        sampled: SampledFrom,
        chunk: int,
        objective: Objective,
        whole: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if whole:
            total, objective = _linearised(objective, _chunked(hidden, weight, bias, targets, sampled, chunk, None)[0])
            logprobs, _, grads = _chunked(hidden, weight, bias, targets, sampled, chunk, objective)
        else:
            logprobs, total, grads = _chunked(hidden, weight, bias, targets, sampled, chunk, objective)
        ctx.save_for_backward(*grads)
        ctx.mark_non_differentiable(logprobs)
        return total, logprobs

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad_total: torch.Tensor, _: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        if float(grad_total) != 1.0:
            hidden, weight = hidden * grad_total.to(hidden.dtype), weight * grad_total.to(weight.dtype)
            bias = None if bias is None else bias * grad_total.to(bias.dtype)
        return hidden, weight, bias, None, None, None, None, None


def _linearised(objective: Objective, logprobs: torch.Tensor) -> tuple[torch.Tensor, Objective]:
    """The objective's value on all logprobs, and a linear one, token by token, with the same gradient there."""
    with torch.enable_grad():
        leaf = logprobs.clone().requires_grad_()
        value = objective(leaf, slice(0, len(logprobs)))
        (slope,) = torch.autograd.grad(value, leaf)
    return value.detach(), lambda part, which: (part * slope[which]).sum()


def _chunked(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    sampled: SampledFrom,
    chunk: int,
    objective: Objective | None,
) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]:
    """Logprobs, and for an objective its sum and the gradients of hidden, weight and bias."""
    hidden, weight = hidden.detach(), weight.detach()
    logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    grad_hidden = grad_weight = grad_bias = None
    if objective is not None:
        grad_hidden = torch.empty_like(hidden)
        # float32 whatever the weights: in bfloat16 small chunks would be swallowed by the sum of the earlier ones.
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        grad_bias = None if bias is None else torch.zeros(bias.shape, dtype=torch.float32, device=bias.device)
    for start in range(0, len(targets), chunk):
        which = slice(start, min(start + chunk, len(targets)))
        target = targets[which].unsqueeze(1)
        logits = nn.functional.linear(hidden[which], weight, bias).float()
        if sampled.temperature != 1.0:
            logits.div_(sampled.temperature)
        chosen = logits.gather(1, target)
        if 0 < sampled.top_k < logits.shape[1]:
            least = logits.topk(sampled.top_k, dim=1).values[:, -1:]
            # The sampled token belongs to it even where the learner ranks it lower than the engine did.
            outside = (logits < least).scatter_(1, target, False)
            logits.masked_fill_(outside, float("-inf"))
        log_sum = torch.logsumexp(logits, dim=1, keepdim=True)
        logprobs[which] = (chosen - log_sum).squeeze(1)
        if objective is None or grad_hidden is None or grad_weight is None:
            continue
        with torch.enable_grad():
            leaf = logprobs[which].clone().requires_grad_()
            value = objective(leaf, which)
            (slope,) = torch.autograd.grad(value, leaf)
        total += value.detach()
        # d logprob / d logits = (one at the target - softmax) / temperature, in the logits' own memory.
        slope = (slope / sampled.temperature).unsqueeze(1)
        grad_logits = logits.sub_(log_sum).exp_().mul_(-slope).scatter_add_(1, target, slope)
        if grad_bias is not None:
            grad_bias += grad_logits.sum(0)
        grad_logits = grad_logits.to(weight.dtype)
        torch.mm(grad_logits, weight, out=grad_hidden[which])
        if weight.dtype == torch.float32:
            grad_weight.addmm_(grad_logits.t(), hidden[which])
        else:
            grad_weight += grad_logits.t() @ hidden[which]
    grads = (
        grad_hidden,
        None if grad_weight is None else grad_weight.to(weight.dtype),
        None if grad_bias is None or bias is None else grad_bias.to(bias.dtype),
    )
    return logprobs, total, grads
