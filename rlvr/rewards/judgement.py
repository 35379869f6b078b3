"""What one verifier said about one completion, whatever it returned.

A verifier may return a Verdict, a Part, a number or None; everything else, and every exception, is a failure
of the verifier: no score, never 0. Must not know about several criteria, processes or configuration.
"""

from __future__ import annotations

import math
import numbers
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rlvr.records import Part, Status, Verdict
from rlvr.rewards.sample import Sample

#: Evidence is for people to read, and is kept for every completion of a run.
MAX_EVIDENCE = 500
#: Extracted and normalised answers are kept for every completion too.
MAX_ANSWER = 200

_OURS = frozenset({Status.BAD_REFERENCE, Status.VERIFIER_ERROR})
_SCORED = frozenset(Status) - _OURS


class Judgement(NamedTuple):
    """One criterion of one completion, before it is weighted."""

    score: float | None
    status: Status
    evidence: str = ""
    extracted: str = ""
    normalized: str = ""
    exhausted: bool = False
    """The verifier ran out of memory: whoever runs it decides whose fault that is."""


def clip(text: str, limit: int) -> str:
    """`text`, its middle left out when it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def verdict(
    score: float | None, status: Status, evidence: str, *, extracted: str = "", normalized: str = ""
) -> Verdict:
    """A Verdict as a single verifier returns it: one part that holds the evidence."""
    part = Part(score=score, weight=1.0, status=status, evidence=evidence)
    return Verdict(score, status, {"": part}, extracted=extracted, normalized=normalized)


def failure(evidence: str, *, exhausted: bool = False) -> Judgement:
    """The verifier could not judge: no score."""
    return Judgement(None, Status.VERIFIER_ERROR, clip(evidence, MAX_EVIDENCE), exhausted=exhausted)


def judge(function: Callable[..., Any], sample: Sample, options: Mapping[str, Any]) -> Judgement:
    """Run a verifier and take down what it said. Whatever the verifier does in Python, this returns.

    It cannot protect against endless loops and crashes: that is what `rlvr.rewards.worker` is for.
    """
    try:
        result = function(sample, **options)
    except MemoryError as error:
        return failure(f"ran out of memory: {_where(error)}", exhausted=True)
    except (Exception, SystemExit) as error:
        return failure(f"raised {_where(error)}")
    return as_judgement(result)


def _where(error: BaseException) -> str:
    """`ValueError: text (file.py:12 in f)`: type, message, and the innermost line."""
    frames = traceback.extract_tb(error.__traceback__)
    try:
        message = f"{type(error).__name__}: {error}"
    except Exception as broken:  # an exception class of the user whose __str__ raises
        message = f"{type(error).__name__} (its message raised {type(broken).__name__})"
    if len(frames) < 2:  # only our own call: the arguments did not fit
        return message
    return f"{clip(message, MAX_EVIDENCE // 2)} ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})"


def as_judgement(result: Any) -> Judgement:
    """Whatever a verifier returned, as a Judgement. Of the wrong type, NaN or infinite: a failure."""
    if isinstance(result, Verdict):
        if len(result.parts) == 1:  # what `verdict` makes
            evidence = next(iter(result.parts.values())).evidence
        else:
            evidence = "; ".join([part.evidence for part in result.parts.values() if part.evidence])
        return _checked(result.score, result.status, evidence, result.extracted, result.normalized)
    if isinstance(result, Part):
        return _checked(result.score, result.status, result.evidence)
    if result is None:
        return failure("returned None: could not verify")
    score = _number(result)
    if isinstance(score, str):
        return failure(score)
    return Judgement(score, Status.OK if score >= 1.0 else Status.WRONG, f"returned {score:g}")


def _checked(score: Any, status: Any, evidence: str, extracted: str = "", normalized: str = "") -> Judgement:
    """A judgement whose score and status agree: no score if and only if the failure is ours."""
    if (
        type(score) is float
        and math.isfinite(score)
        and status in _SCORED
        and type(evidence) is type(extracted) is type(normalized) is str
        and len(evidence) <= MAX_EVIDENCE
        and len(extracted) <= MAX_ANSWER
        and len(normalized) <= MAX_ANSWER
    ):
        return Judgement(score, status, evidence, extracted, normalized)  # nearly always
    if not isinstance(status, Status):
        return failure(f"returned the status {status!r}, which is not one of rlvr.records.Status")
    evidence = clip(str(evidence), MAX_EVIDENCE)
    extracted, normalized = clip(str(extracted), MAX_ANSWER), clip(str(normalized), MAX_ANSWER)
    if score is None:
        ours = status if status in _OURS else Status.VERIFIER_ERROR
        return Judgement(None, ours, evidence or "could not verify", extracted, normalized)
    number = _number(score)
    if isinstance(number, str):
        return failure(number)
    if status in _OURS:
        return failure(f"returned a score ({number:g}) with the status {status.value}, which has none")
    return Judgement(number, status, evidence, extracted, normalized)


def _number(value: Any) -> float | str:
    """`value` as a finite float, or what is wrong with it."""
    if type(value) is float and math.isfinite(value):  # nearly always
        return value
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        value = value.item()  # a zero-dimensional array or tensor
    if isinstance(value, (list, tuple, set, dict)) or getattr(value, "ndim", None):
        return f"returned {len(value)} values ({type(value).__name__}) for one completion: return one score"
    if not isinstance(value, numbers.Real):
        return f"returned {type(value).__name__} {clip(repr(value), 80)}: return a Verdict, a Part, a number or None"
    try:
        score = float(value)
    except OverflowError:
        return "returned a number too large for a score"
    if not math.isfinite(score):
        return f"returned {score}: a score must be finite"
    return score
