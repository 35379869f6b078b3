"""How a grading process and its owner talk: frames of JSON, each behind its length. Plain data only, never pickle.

What comes back from a grading process is checked like any other foreign input.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from rlvr.records import Status
from rlvr.rewards.judgement import Judgement
from rlvr.rewards.sample import Sample

HEADER = struct.Struct(">I")
#: A frame beyond this is nobody's completion or verdict.
MAX_FRAME = 64 * 2**20


def encode(message: dict[str, Any]) -> bytes:
    """One frame. Raises TypeError when something in the message is not plain data."""
    body = json.dumps(message, default=_plain, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME:
        raise TypeError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """The message of a frame's body. Raises ValueError when it is not a JSON object."""
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a frame that is not a JSON object")
    return message


def body_length(header: bytes) -> int:
    """Length of the body that follows a header. Raises ValueError over the limit."""
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
    return int(length)


def _plain(value: Any) -> Any:
    """What data sets hold beyond JSON: arrays and scalars of numpy, dates."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be sent to a grading process; convert the column to plain data")


def sample_to_plain(sample: Sample) -> dict[str, Any]:
    """A sample as JSON-able data."""
    return {
        "completion": sample.completion,
        "reference": sample.reference,
        "prompt": sample.prompt,
        "truncated": sample.truncated,
        "token_ids": sample.token_ids,
        "category": sample.category,
        "prompt_id": sample.prompt_id,
        "extra": dict(sample.extra),
        "locale": sample.locale,
    }


def sample_from_plain(data: dict[str, Any]) -> Sample:
    """The inverse of `sample_to_plain`."""
    prompt = data["prompt"]
    return Sample(
        completion=data["completion"],
        reference=data["reference"],
        prompt=prompt if isinstance(prompt, str) else tuple(prompt),
        truncated=data["truncated"],
        token_ids=tuple(data["token_ids"]),
        category=data["category"],
        prompt_id=data["prompt_id"],
        extra=data["extra"],
        locale=data["locale"],
    )


def judgement_to_plain(judgement: Judgement) -> dict[str, Any]:
    """A judgement as JSON-able data."""
    return {
        "score": judgement.score,
        "status": judgement.status.value,
        "evidence": judgement.evidence,
        "extracted": judgement.extracted,
        "normalized": judgement.normalized,
        "exhausted": judgement.exhausted,
    }


def judgement_from_plain(data: dict[str, Any]) -> Judgement:
    """The inverse of `judgement_to_plain`. Raises ValueError, KeyError or TypeError on anything else."""
    score = data["score"]
    return Judgement(
        score=None if score is None else float(score),
        status=Status(data["status"]),
        evidence=str(data["evidence"]),
        extracted=str(data["extracted"]),
        normalized=str(data["normalized"]),
        exhausted=bool(data["exhausted"]),
    )
