"""The ledger: every completion with its verdict and evidence, one parquet file per step and per evaluation.

It answers "why did this get that score" long after the run. A group that ended without any completion has one
row with `completion_index` null, so that no group is missing. Knows the records and pyarrow; imports the
latter only when writing or reading, because the light core does without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlvr.errors import UserError
from rlvr.records import Completion, Group, Prompt, Verdict
from rlvr.tracking.files import replacing
from rlvr.tracking.text import clean, to_json

if TYPE_CHECKING:
    import pyarrow as pa

Purpose = Literal["train", "eval"]

# One row group per file up to here: readers of a step read all of it anyway.
_ROWS_PER_GROUP = 65536


def schema() -> pa.Schema:
    """The columns, in order. Additions go to the end; nothing is renamed or changes its type."""
    import pyarrow as pa

    return pa.schema(
        [
            ("run_id", pa.string()),
            ("purpose", pa.string()),  # train | eval
            ("step", pa.int64()),  # optimizer step that the file is of; for eval, steps made before it
            ("group_id", pa.string()),
            ("issued_step", pa.int64()),
            ("prompt_id", pa.string()),
            ("category", pa.string()),
            ("prompt_text", pa.string()),  # null for a conversation
            ("prompt_messages", pa.string()),  # JSON; null for a text
            ("reference", pa.string()),
            ("completion_index", pa.int32()),
            ("completion", pa.string()),
            ("tokens", pa.int32()),
            ("finish_reason", pa.string()),
            ("weight_versions", pa.list_(pa.struct([("version", pa.int64()), ("tokens", pa.int64())]))),
            ("logprob_mean", pa.float64()),  # behaviour logprob, nats per token
            ("score", pa.float64()),  # null: could not be judged
            ("status", pa.string()),
            ("parts", pa.string()),  # JSON: criterion -> {score, weight, status, evidence}
            ("extracted", pa.string()),
            ("normalized", pa.string()),
            ("verifier", pa.string()),
            ("seconds", pa.float64()),
            ("sandbox", pa.string()),
            ("advantage", pa.float64()),  # null: none was computed, or the completion is masked out
            ("group_state", pa.string()),
            ("group_reason", pa.string()),
            ("group_timestamps", pa.string()),  # JSON: state -> Unix seconds
        ]
    )


def ledger_path(folder: Path, purpose: Purpose, step: int) -> Path:
    """step_000001.parquet for a training step, eval_000000.parquet for an evaluation."""
    return folder / f"{'step' if purpose == 'train' else 'eval'}_{step:06d}.parquet"


def rows(run_id: str, purpose: Purpose, step: int, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One row per completion, as `schema` has it. Pure."""
    found = []
    for group in groups:
        shared = {
            "run_id": run_id,
            "purpose": purpose,
            "step": step,
            "group_id": group.id,
            "issued_step": group.step,
            **_prompt_columns(group.prompt),
            "group_state": group.state.value,
            "group_reason": clean(group.reason),
            "group_timestamps": to_json(group.timestamps),
        }
        advantages = _advantages(group)
        for index, completion in enumerate(group.completions):
            verdict = group.verdicts[index] if index < len(group.verdicts) else None
            advantage = advantages[index] if advantages is not None else None
            found.append(
                shared
                | _completion_columns(index, completion)
                | (_verdict_columns(verdict) if verdict else {})
                | {"advantage": _number(advantage)}
            )
        if not group.completions:
            found.append(shared)
    return found


def write_ledger(folder: Path, run_id: str, purpose: Purpose, step: int, groups: Sequence[Group]) -> Path:
    """Write the ledger of one step or evaluation, whole or not at all, and return its path.

    Raises UserError when the disk is full, ValueError when that step is in the ledger already.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = ledger_path(folder, purpose, step)
    if path.exists():
        raise ValueError(f"{path} exists: the ledger of a step is written once")
    columns = schema()
    found = rows(run_id, purpose, step, groups)
    table = pa.Table.from_pylist(found, schema=columns)
    with replacing(path, path.with_name(f".{path.name}.partial")) as partial:
        # Prompts repeat over a group and exemplars over all of them: dictionary and zstd make them almost free.
        pq.write_table(table, partial, compression="zstd", use_dictionary=True, row_group_size=_ROWS_PER_GROUP)
    return path


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Rows of one ledger file, or of all files of a ledger folder in order of their names.

    Raises UserError naming the file that is missing or no ledger.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = []
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        try:
            found += pq.read_table(file, schema=schema()).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{file} cannot be read as a ledger: {error}") from None
    return found


def _prompt_columns(prompt: Prompt) -> dict[str, Any]:
    return {
        "prompt_id": clean(prompt.id),
        "category": clean(prompt.category),
        "prompt_text": None if prompt.text is None else clean(prompt.text),
        "prompt_messages": None if prompt.messages is None else to_json(prompt.messages),
        "reference": clean(prompt.reference),
    }


def _completion_columns(index: int, completion: Completion) -> dict[str, Any]:
    count = len(completion.token_ids)
    return {
        "completion_index": index,
        "completion": clean(completion.text),
        "tokens": count,
        "finish_reason": completion.finish_reason.value,
        "weight_versions": [{"version": int(v), "tokens": int(n)} for v, n in completion.weight_versions],
        "logprob_mean": _number(np.mean(completion.logprobs, dtype=np.float64)) if count else None,
    }


def _verdict_columns(verdict: Verdict) -> dict[str, Any]:
    return {
        "score": _number(verdict.score),
        "status": verdict.status.value,
        "parts": to_json(verdict.parts),
        "extracted": clean(verdict.extracted),
        "normalized": clean(verdict.normalized),
        "verifier": clean(verdict.verifier),
        "seconds": _number(verdict.seconds),
        "sandbox": verdict.sandbox,
    }


def _advantages(group: Group) -> Sequence[float | None] | None:
    """Per completion, or None where none were computed. Raises ValueError when they do not match."""
    advantages = group.advantages
    if advantages is None or len(advantages) == 0:
        return None
    if len(advantages) != len(group.completions):
        raise ValueError(f"group {group.id}: {len(advantages)} advantages for {len(group.completions)} completions")
    return advantages


def _number(value: Any) -> float | None:
    """A float column's value; what is not finite has no place in a score or a mean, and reads as null."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)
