"""The typed records that flow through the loop: Prompt -> Completion -> Verdict, gathered in a Group.

They carry ids and versions, so that no stage ever recovers grouping by position or by reshaping.
This module knows the vocabulary of the project and nothing else: no tokenizer, no Ray, no torch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

#: One turn of a conversation: {"role": "user", "content": "..."}.
Message = dict[str, str]


@dataclass(frozen=True)
class Prompt:
    """One problem to answer. `id` is stable over restarts: it names the row, not the moment."""

    id: str
    reference: str
    category: str = ""
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    token_ids: tuple[int, ...] | None = None
    """Added by the driver: tasks must not import a tokenizer."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.messages is None):
            raise ValueError(f"prompt {self.id!r} needs exactly one of text and messages")


@dataclass(frozen=True)
class Sampling:
    """The distribution that completions are sampled from. `temperature=0` is greedy."""

    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps every token."""
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class WeightUpdate:
    """A version of the weights, ready to be loaded on this host."""

    version: int
    path: str
    """safetensors file in shared memory, with the parameter names of a Hugging Face checkpoint."""


class FinishReason(StrEnum):
    STOP = "stop"  # end-of-sequence token or a stop string
    LENGTH = "length"  # max_new_tokens reached: the answer is truncated


@dataclass
class Completion:
    """What the model wrote. `token_ids` are the sampled ones, never re-tokenised text."""

    token_ids: tuple[int, ...]
    logprobs: np.ndarray
    """float32 [len(token_ids)]: behaviour logprobs, of the distribution really sampled from."""
    text: str
    """Without the stop string; the ids keep every sampled token."""
    finish_reason: FinishReason
    weight_versions: tuple[tuple[int, int], ...]
    """Run-length coded: (weight version, number of tokens) in order of sampling."""

    @property
    def truncated(self) -> bool:
        return self.finish_reason is FinishReason.LENGTH


class Status(StrEnum):
    """How a verdict came about. The first six are the completion's doing, and have a score."""

    OK = "ok"  # full marks of the answer criterion
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    BAD_REFERENCE = "bad_reference"  # ours: score is None
    VERIFIER_ERROR = "verifier_error"  # ours: score is None


@dataclass
class Part:
    """One criterion of a verdict. `score` in [0, 1] by convention; None: could not be judged."""

    score: float | None
    weight: float
    status: Status
    evidence: str = ""
    """Short, human-readable: what decided."""


@dataclass
class Verdict:
    """A judged completion. `score=None` means *our* failure: masked out of baseline and loss, never 0."""

    score: float | None
    """Weighted sum of the parts."""
    status: Status
    parts: dict[str, Part]
    extracted: str = ""
    """The final answer as written."""
    normalized: str = ""
    """The final answer as compared."""
    verifier: str = ""
    """name@version#config-hash of every criterion, joined by '+'."""
    seconds: float = 0.0
    sandbox: str = "process"
    """Isolation level that the verifier ran under."""


class GroupState(StrEnum):
    ISSUED = "issued"
    GENERATED = "generated"
    SCORED = "scored"
    READY = "ready"  # reference logprobs there, or not needed
    TRAINED = "trained"
    DROPPED = "dropped"
    FAILED = "failed"


FINAL_STATES = frozenset({GroupState.TRAINED, GroupState.DROPPED, GroupState.FAILED})

_NEXT = {
    GroupState.ISSUED: {GroupState.GENERATED},
    GroupState.GENERATED: {GroupState.SCORED},
    GroupState.SCORED: {GroupState.READY},
    GroupState.READY: {GroupState.TRAINED},
}


@dataclass
class Group:
    """A prompt with its G completions, on its way through the loop."""

    id: str
    prompt: Prompt
    step: int
    """The step that issued it."""
    completions: list[Completion] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    reference_logprobs: list[np.ndarray] | None = None
    """Per completion float32 [len(token_ids)]; None where no reference is used."""
    advantages: list[float | None] | None = None
    """Per completion, set when the group is scored; None entries are masked out of the loss."""
    state: GroupState = GroupState.ISSUED
    reason: str = ""
    """Why it was dropped or failed."""
    timestamps: dict[str, float] = field(default_factory=dict)
    """Unix seconds at which each state was entered."""

    def __post_init__(self) -> None:
        self.timestamps.setdefault(self.state.value, time.time())

    def advance(self, state: GroupState, reason: str = "") -> None:
        """Enter `state`. Raises ValueError on a transition that the life of a group does not have."""
        ends = state in (GroupState.DROPPED, GroupState.FAILED)
        allowed = self.state not in FINAL_STATES if ends else state in _NEXT.get(self.state, set())
        if not allowed:
            raise ValueError(f"group {self.id} cannot go from {self.state} to {state}")
        self.state = state
        self.reason = reason
        self.timestamps[state.value] = time.time()

    @property
    def scores(self) -> list[float | None]:
        """Total score of each completion, None where it could not be judged."""
        return [verdict.score for verdict in self.verdicts]


def judged(scores: Sequence[float | None]) -> list[float]:
    """The scores that exist, in order."""
    return [score for score in scores if score is not None]
