"""A causal language model from a local folder, as a module from packed tokens to logprobs.

At loading it proves, on a few random tokens, that its logprobs are those of the model's own forward pass, and that
the shared layout equals the plain one; what cannot be computed exactly is refused, never approximated.
Must not know rewards, losses, optimizers or processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlvr.errors import ConfigError, UserError
from rlvr.policy import attention
from rlvr.policy.lean import make_lean
from rlvr.policy.logprobs import LogprobHead, Objective, SampledFrom
from rlvr.policy.packing import PackedBatch, pack_plain, pack_shared

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

#: Largest mean difference of logprobs that rounding explains at loading, by compute dtype. A wrong mask, a missing
#: soft cap or a forgotten scale moves logprobs of random tokens by 0.1 and more.
PROBE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
#: A prompt and two completions, as positions in a seeded random sequence of token ids.
PROBE = ((0, 6), ((6, 9), (9, 13)))


class Policy(nn.Module):
    """A Transformers causal language model whose head gives logprobs. `model` keeps its checkpoint's names."""

    def __init__(self, model: Any, *, share_prefix: bool, logits_chunk: int) -> None:
        super().__init__()
        projection = model.get_output_embeddings()
        if not isinstance(projection, nn.Linear):
            raise UserError(
                f"{type(model).__name__} has no linear output projection (found {type(projection).__name__}), "
                "so its logprobs cannot be computed; choose another model.path"
            )
        model.set_output_embeddings(LogprobHead(projection, logits_chunk))
        self.model = model
        self.share_prefix = share_prefix

    @property
    def head(self) -> LogprobHead:
        """The output projection."""
        head: LogprobHead = self.model.get_output_embeddings()
        return head

    @property
    def pad_id(self) -> int:
        """A token id to pad rows with; never attended to."""
        return self.model.config.pad_token_id or 0

    def pack(self, items: Any, *, common_prefix: int = 0) -> PackedBatch:
        """Lay out (prompt, completions) pairs as this policy computes them."""
        if self.share_prefix:
            return pack_shared(items, common_prefix=common_prefix)
        return pack_plain(items, pad_id=self.pad_id)

    def forward(
        self, batch: PackedBatch, sampled: SampledFrom, objective: Objective | None = None, whole: bool = False
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """(sum of the objective over the batch's completion tokens, their logprobs float32 [N]); see LogprobHead."""
        extra = {} if batch.layout is None else {"tree_layout": batch.layout}
        hidden = self.model.base_model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=batch.attention_mask,
            use_cache=False,
            **extra,
        ).last_hidden_state
        rows = hidden.flatten(0, 1).index_select(0, batch.predictors)
        result: tuple[torch.Tensor | None, torch.Tensor] = self.head(rows, batch.targets, sampled, objective, whole)
        return result


def load_policy(
    folder: Path | str, *, dtype: str, share_prefix: bool, logits_chunk: int, gradient_checkpointing: bool = False
) -> Policy:
    """Load the model in `folder` on CPU, without dropout, ready for training or scoring.

    Raises ConfigError where the architecture cannot share prefixes, UserError where it cannot be served at all.
    """
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=DTYPES[dtype], attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise UserError(f"the model in {folder} cannot be loaded: {error}") from error
    _without_dropout(model)
    model.eval()
    expected = _own_logprobs(model)
    if share_prefix:
        _use_tree_attention(model, folder)
    make_lean(model)
    policy = Policy(model, share_prefix=share_prefix, logits_chunk=logits_chunk)
    _compare(policy, expected, folder)
    if gradient_checkpointing:
        # Non-reentrant: it passes the layout through, and ZeRO's hooks see every module once per direction.
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()  # Transformers checkpoints only in training mode; dropout is off either way.
    return policy


def _use_tree_attention(model: Any, folder: Path | str) -> None:
    attention.register()
    if model._can_set_attn_implementation():
        model.set_attn_implementation(attention.NAME)
    if model.config._attn_implementation != attention.NAME:
        raise ConfigError(_cannot_share(folder, "its attention cannot be replaced through Transformers' interface"))


def _cannot_share(folder: Path | str, reason: str) -> str:
    return (
        f"the model in {folder} cannot compute a shared prompt once: {reason}. "
        "Set learner.share_prefix=false to compute one sequence per row"
    )


def _probe_items(vocabulary: int) -> list[tuple[list[int], list[list[int]]]]:
    generator = torch.Generator().manual_seed(0)
    (first, last), spans = PROBE
    ids = torch.randint(vocabulary, (spans[-1][1],), generator=generator).tolist()
    return [(ids[first:last], [ids[begin:end] for begin, end in spans])]


@torch.no_grad()
def _own_logprobs(model: Any) -> torch.Tensor:
    """Logprobs of the probe's completions by the model's own forward pass."""
    ((prompt, completions),) = _probe_items(model.config.get_text_config().vocab_size)
    parts = []
    for completion in completions:
        ids = torch.tensor([[*prompt, *completion]])
        logprobs = model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
        parts.append(logprobs[len(prompt) - 1 : -1].gather(1, torch.tensor(completion)[:, None])[:, 0])
    return torch.cat(parts)


@torch.no_grad()
def _compare(policy: Policy, expected: torch.Tensor, folder: Path | str) -> None:
    items = _probe_items(policy.model.config.get_text_config().vocab_size)
    plain = "its logprobs are not those of its own forward pass; choose another model.path"
    try:
        _, logprobs = policy(policy.pack(items), SampledFrom())
    except (TypeError, ValueError) as error:
        if policy.share_prefix:
            raise ConfigError(_cannot_share(folder, str(error))) from error
        raise UserError(f"the model in {folder} cannot be trained: {error}") from error
    gap = float((logprobs - expected).abs().mean())
    if not gap <= PROBE_TOLERANCE[policy.head.weight.dtype]:
        if policy.share_prefix:
            raise ConfigError(_cannot_share(folder, f"its logprobs differ from the plain computation by {gap:.2g}"))
        raise UserError(f"the model in {folder} cannot be trained: {plain} (they differ by {gap:.2g})")


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
