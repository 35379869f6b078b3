"""Records for the tests of rlvr.tracking: groups with completions and verdicts, and evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlvr.records import Completion, FinishReason, Group, GroupState, Part, Prompt, Status, Verdict
from rlvr.tracking.accuracy import Accuracy, accuracy


def completion(text: str = "the answer is 7", tokens: int = 5, logprob: float = -0.5, cut: bool = False) -> Completion:
    return Completion(
        token_ids=tuple(range(tokens)),
        logprobs=np.full(tokens, logprob, dtype=np.float32),
        text=text,
        finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
        weight_versions=((3, tokens),),
    )


def verdict(score: float | None, status: Status | None = None, normalized: str = "7", **parts: float) -> Verdict:
    status = status or (Status.VERIFIER_ERROR if score is None else Status.OK if score >= 1 else Status.WRONG)
    return Verdict(
        score=score,
        status=status,
        parts={name: Part(value, 1.0, status, "7 = 7") for name, value in (parts or {"answer": score}).items()},
        extracted=normalized,
        normalized=normalized,
        verifier="numeric_answer@1#abc",
        seconds=0.25,
    )


def group(
    name: str,
    scores: list[float | None],
    *,
    state: GroupState = GroupState.TRAINED,
    reason: str = "",
    category: str = "",
    step: int = 1,
    answers: list[str] | None = None,
) -> Group:
    """A group that has ended, with one completion of 5 tokens per score."""
    prompt = Prompt(id=f"train/{name}", reference="7", category=category, text="3 + 4 = ?", token_ids=(1, 2, 3))
    made = Group(id=name, prompt=prompt, step=step)
    made.completions = [completion(f"answer {index}") for index in range(len(scores))]
    texts = answers or ["7"] * len(scores)
    made.verdicts = [verdict(score, normalized=text) for score, text in zip(scores, texts, strict=True)]
    made.advantages = [None if score is None else score - 0.5 for score in scores]
    made.state, made.reason = state, reason
    return made


@dataclass(frozen=True)
class Result:
    """An evaluation's result, as the driver's has it."""

    step: int
    lenient: Accuracy
    strict: Accuracy
    lenient_by_category: dict[str, Accuracy] = field(default_factory=dict)
    strict_by_category: dict[str, Accuracy] = field(default_factory=dict)
    unjudged: int = 0
    tokens: int = 1000
    seconds: float = 4.0


def result(step: int, right: int, strictly: int, n: int = 100) -> Result:
    lenient = accuracy([[index < right] for index in range(n)])
    strict = accuracy([[index < strictly] for index in range(n)])
    return Result(step, lenient, strict, {"add": lenient, "": strict}, {"add": strict})
