"""The one final answer among everything that a completion states, or why there is none.

All statements must agree: several different answers, and hedges, are wrong whatever they contain, else a model
learns to list. Must not know how an answer is written: whoever asks says how to read one, and when two are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rlvr.records import Status, Verdict
from rlvr.rewards.extract import MAX_STATEMENTS, Candidate, begun_after, candidates, denied, final_region, hedged
from rlvr.rewards.judgement import clip, verdict
from rlvr.rewards.sample import Sample

T = TypeVar("T")


class Final(NamedTuple, Generic[T]):
    """The final answer of a completion."""

    text: str
    marker: str
    value: T


def no_answer(sample: Sample, why: str) -> Verdict:
    """The verdict on a completion without a final answer."""
    if sample.truncated:
        return verdict(0.0, Status.TRUNCATED, f"{why}, cut by the length limit")
    return verdict(0.0, Status.NO_ANSWER, why)


def final_answer(
    sample: Sample, read: Callable[[str], T], same: Callable[[T, T], bool], kind: str
) -> Final[T] | Verdict:
    """The one final answer, or the verdict on a completion that has none.

    read: what an answer's text means; raises ValueError with the reason when it means nothing.
    same: whether two statements say the same.
    kind: what an answer is, for the evidence, e.g. "one number".
    """
    begin = final_region(sample.completion)
    if begin is None:
        return no_answer(sample, "the think block is never closed")
    stated = candidates(sample.completion, begin)
    if sample.truncated:
        stated = [candidate for candidate in stated if not candidate.open_ended]
    if not stated:
        return no_answer(sample, "no marked final answer")
    if len(stated) > MAX_STATEMENTS:
        return verdict(0.0, Status.WRONG, f"more than {MAX_STATEMENTS} final answers", extracted=stated[-1].text)
    if not sample.truncated and begun_after(sample.completion, stated[-1].end):
        return _wrong(stated[-1], f"{clip(stated[-1].text, 80)!r} is followed by another answer, which is not closed")
    if len(stated) == 1:
        return _only(sample, stated[0], read, kind)
    meanings: dict[str, T | _Nothing] = {}
    for candidate in stated:
        if candidate.text not in meanings:
            try:
                meanings[candidate.text] = read(candidate.text)
            except ValueError as error:
                meanings[candidate.text] = _Nothing(str(error))
    last: Final[T] | None = None
    for candidate in stated:
        meaning = meanings[candidate.text]
        if isinstance(meaning, _Nothing):
            if _states_nothing(candidate, stated, meanings):
                continue
            return _wrong(candidate, f"{clip(candidate.text, 80)!r} is not {kind}: {meaning.why}")
        if hedged(sample.completion, candidate):
            return _wrong(candidate, f"{clip(candidate.text, 80)!r} is followed by an alternative")
        if denied(sample.completion, candidate):
            return _wrong(candidate, f"{clip(candidate.text, 80)!r} is taken back")
        if last is not None and candidate.text != last.text and not same(meaning, last.value):
            return _wrong(candidate, f"different final answers: {clip(last.text, 80)} and {clip(candidate.text, 80)}")
        last = Final(candidate.text, candidate.marker, meaning)
    return no_answer(sample, "no marked final answer") if last is None else last


def _only(sample: Sample, candidate: Candidate, read: Callable[[str], T], kind: str) -> Final[T] | Verdict:
    """The answer of the only statement: most completions have one, so the price of comparing is not paid for them."""
    try:
        meaning = read(candidate.text)
    except ValueError as error:
        if _states_nothing(candidate, [candidate], {}):
            return no_answer(sample, "no marked final answer")
        return _wrong(candidate, f"{clip(candidate.text, 80)!r} is not {kind}: {error}")
    if hedged(sample.completion, candidate):
        return _wrong(candidate, f"{clip(candidate.text, 80)!r} is followed by an alternative")
    if denied(sample.completion, candidate):
        return _wrong(candidate, f"{clip(candidate.text, 80)!r} is taken back")
    return Final(candidate.text, candidate.marker, meaning)


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A statement that cannot be read."""

    why: str


def _wrong(candidate: Candidate, evidence: str) -> Verdict:
    return verdict(0.0, Status.WRONG, f"{candidate.marker}: {evidence}", extracted=candidate.text)


def _heading(candidate: Candidate) -> bool:
    """`#### Step 1: add` is a heading of Markdown, not an answer."""
    return candidate.marker == "####" and candidate.text[:2].isalpha()


def _states_nothing(candidate: Candidate, stated: list[Candidate], meanings: dict[str, T | _Nothing]) -> bool:
    """Whether a statement that cannot be read is prose, or only the wrapping of another statement."""
    if not candidate.strong:
        return not candidate.text[:1].isdigit() or any(
            other.strong and not (_heading(other) and isinstance(meanings[other.text], _Nothing)) for other in stated
        )
    return _heading(candidate) or any(
        other is not candidate and candidate.start <= other.start and other.end <= candidate.end for other in stated
    )
