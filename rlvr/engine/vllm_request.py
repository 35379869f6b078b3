"""A request in vLLM's terms, and what comes back in ours. Without state; must not know which engine asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr.errors import DataError, InfrastructureError, TrainingError, UserError
from rlvr.records import Completion, FinishReason, Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import CompletionOutput

#: What finish_reason of vLLM means to us; anything else (abort, error) is not a finished completion.
_FINISHED = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


def check(token_ids: Sequence[int], sampling: Sampling, n: int, *, max_length: int, vocab_size: int) -> None:
    """Raise DataError for a prompt that the model cannot take, UserError for sampling that makes no sense."""
    if not token_ids:
        raise DataError("the prompt is empty: it has no tokens")
    if len(token_ids) + sampling.max_new_tokens > max_length:
        raise DataError(
            f"a prompt of {len(token_ids)} tokens and max_new_tokens={sampling.max_new_tokens} do not fit into "
            f"the {max_length} tokens of the model. Shorten the prompt (task.few_shot.k) or raise model.max_length"
        )
    if not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        raise DataError(f"the prompt has token ids outside of the model's vocabulary of {vocab_size}")
    if n < 1 or sampling.max_new_tokens < 1 or sampling.temperature < 0:
        raise UserError(f"cannot sample {n} completions with {sampling}")
    if sampling.temperature == 0 and n != 1:
        raise UserError(f"{n} greedy completions of a prompt are all the same: use temperature > 0, or one")


def sampling_parameters(sampling: Sampling, n: int) -> SamplingParams:
    """A group of n; completion i of it is sampled with seed + i."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        n=n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=sampling.max_new_tokens,
        stop=list(sampling.stop),
        seed=sampling.seed,
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def completion(request: str, output: CompletionOutput) -> Completion:
    """The record of a finished completion. `request` says in errors which one it is.

    Raises InfrastructureError when it is unfinished or inconsistent, TrainingError when logprobs are not finite.
    """
    reason = _FINISHED.get(output.finish_reason or "")
    if reason is None:
        raise InfrastructureError(f"{request} ended with {output.finish_reason!r}, unfinished")
    token_ids = tuple(output.token_ids)
    spans = output.weight_versions or []
    versions = tuple((int(span.version), span.end - span.start) for span in spans if span.end > span.start)
    if sum(count for _, count in versions) != len(token_ids):
        raise InfrastructureError(f"{request}: vLLM did not say which weights sampled it: {spans}")
    return Completion(token_ids, _logprobs(request, token_ids, output.logprobs), output.text, reason, versions)


def _logprobs(request: str, token_ids: tuple[int, ...], flat: Any) -> np.ndarray:
    # The first entry of each position is the sampled token.
    if tuple(flat.token_ids[start] for start in flat.start_indices) != token_ids:
        raise InfrastructureError(f"{request}: the logprobs do not belong to its tokens")
    logprobs = np.asarray([flat.logprobs[start] for start in flat.start_indices], dtype=np.float32)
    if not np.isfinite(logprobs).all():
        raise TrainingError(f"{request} has logprobs that are not finite: its weights are broken (learning rate?)")
    return logprobs
