r"""`numeric_answer`: is the one final answer of the completion the reference's number, exactly?

Strict by default: the answer must be marked (see `extract`), be one number (see `numbers`), and be the only one.
Several different marked answers, hedges ("7 or 8"), chains (`8=7`), sets and intervals are wrong, whatever they
contain: else a model learns to list. Repeating the same answer is fine. A marker phrase before prose ("Answer:
first we add") states nothing and is passed over when the answer is stated elsewhere.

Choices that a reader may have expected otherwise:
- several boxes count as several answers, also when the last one is right or the first is taken back in words;
- a box that is never closed is no answer; so is an answer within an open think block;
- an answer that the length limit cut (`#### 12` as the very last characters of a truncated completion) is none;
- `anywhere=True` ignores markers and judges the last number of the completion, whatever the format.

References may be whole GSM8K solutions: what follows the last `####` counts. One that is not a number gives
the status bad_reference and no score.
"""

from __future__ import annotations

from functools import lru_cache

from rlvr.records import Status, Verdict
from rlvr.rewards.extract import MAX_STATEMENTS, Candidate, candidates, final_region, hedged, statements
from rlvr.rewards.judgement import MAX_ANSWER, clip, verdict
from rlvr.rewards.numbers import NotANumber, Number, equal, last_number, parse_number
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample


def check_options(
    anywhere: bool = False,
    percent: str = "either",
    compare_units: bool = True,
    unicode_digits: bool = False,
    locale: str = "en",
) -> None:
    """Raises ValueError when an option of `numeric_answer` has a value that means nothing."""
    for name, value in (("anywhere", anywhere), ("compare_units", compare_units), ("unicode_digits", unicode_digits)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")
    if percent not in ("either", "fraction"):
        raise ValueError(f"percent must be either or fraction, not {percent!r}")
    if locale != "en":
        raise ValueError(f"locale must be en (1,234.56), not {locale!r}: no other is supported yet")


@reward("numeric_answer", version="1", check=check_options)
def numeric_answer(
    sample: Sample,
    *,
    anywhere: bool = False,
    percent: str = "either",
    compare_units: bool = True,
    unicode_digits: bool = False,
    locale: str = "en",
) -> Verdict:
    """1 if the final answer equals the reference exactly, else 0.

    anywhere: judge the last number of the completion instead of a marked answer.
    percent: "either": 50% is 0.5, and also 50 where the other side is written without a sign; "fraction": 0.5 only.
    compare_units: units that both sides have must agree (nothing is converted).
    unicode_digits: read digits of other scripts too.
    locale: how numbers are written; "en" is 1,234.56.
    """
    try:
        reference = parse_reference(sample.reference, unicode_digits)
    except NotANumber as error:
        shown = clip(sample.reference, MAX_ANSWER)
        return verdict(None, Status.BAD_REFERENCE, f"the reference {shown!r} is not a number: {error}")
    if anywhere:
        return _last(sample, reference, percent, compare_units, unicode_digits)
    begin = final_region(sample.completion)
    if begin is None:
        return _no_answer(sample, "the think block is never closed")
    stated = candidates(sample.completion, begin)
    if sample.truncated:
        stated = [candidate for candidate in stated if not candidate.open_ended]
    if len(stated) > MAX_STATEMENTS:
        return verdict(0.0, Status.WRONG, f"more than {MAX_STATEMENTS} final answers", extracted=stated[-1].text)
    final, problem, number = _the_one(sample.completion, stated, percent, unicode_digits)
    if final is None:
        return _no_answer(sample, "no marked final answer")
    if number is None:
        return verdict(0.0, Status.WRONG, f"{final.marker}: {problem}", extracted=final.text)
    return _compare(final.text, number, reference, percent, compare_units, final.marker)


def last_number_verdict(text: str, reference: str) -> bool | None:
    """Whether the last number of `text` is the reference's, whatever the format; None: a bad reference.

    The lenient accuracy of an evaluation, beside the strict one by the answer criterion.
    """
    judged = numeric_answer(Sample(completion=text, reference=reference), anywhere=True)
    return None if judged.score is None else judged.score == 1.0


@lru_cache(maxsize=4096)
def parse_reference(reference: str, unicode_digits: bool = False) -> Number:
    """The number of a reference answer or of a whole GSM8K solution. Raises NotANumber."""
    if "####" in reference:
        reference = reference.rpartition("####")[2]
    if "\\boxed" in reference or "\\fbox" in reference:
        boxed = {box.text for box in statements(reference, "boxed")}
        if len(boxed) > 1:
            raise NotANumber("it has several boxed answers")
        reference = boxed.pop() if boxed else reference
    return parse_number(reference, unicode_digits=unicode_digits)


def _no_answer(sample: Sample, why: str) -> Verdict:
    if sample.truncated:
        return verdict(0.0, Status.TRUNCATED, f"{why}, cut by the length limit")
    return verdict(0.0, Status.NO_ANSWER, why)


def _compare(shown: str, answer: Number, reference: Number, percent: str, compare_units: bool, marker: str) -> Verdict:
    right = equal(answer, reference, percent=percent, compare_units=compare_units)
    evidence = f"{marker}: {answer} {'=' if right else '!='} {reference}"
    status = Status.OK if right else Status.WRONG
    return verdict(float(right), status, evidence, extracted=shown, normalized=str(answer))


def _last(sample: Sample, reference: Number, percent: str, compare_units: bool, unicode_digits: bool) -> Verdict:
    text = sample.completion
    begin = final_region(text) or 0  # an open think block still has a last number
    found = last_number(text[begin:], unicode_digits=unicode_digits) if begin else None
    found = found or last_number(text, unicode_digits=unicode_digits)
    if found is None:
        return _no_answer(sample, "no number")
    return _compare(found[0], found[1], reference, percent, compare_units, "last number")


def _the_one(
    completion: str, stated: list[Candidate], percent: str, unicode_digits: bool
) -> tuple[Candidate | None, str, Number | None]:
    """The last statement and the number that all of them agree on; or the one that spoils it, why, and None."""
    read: dict[str, Number | str] = {}
    for candidate in stated:
        if candidate.text not in read:
            try:
                read[candidate.text] = parse_number(candidate.text, unicode_digits=unicode_digits)
            except NotANumber as error:
                read[candidate.text] = str(error)
    any_strong = any(candidate.strong and not _heading(candidate, read) for candidate in stated)
    final: Candidate | None = None
    agreed: Number | None = None
    for candidate in stated:
        number = read[candidate.text]
        if isinstance(number, str):
            if _states_nothing(candidate, read, stated, any_strong):
                continue
            return candidate, f"{clip(candidate.text, 80)!r} is not one number: {number}", None
        if hedged(completion, candidate):
            return candidate, f"{clip(candidate.text, 80)!r} is followed by an alternative", None
        if agreed is not None and not equal(number, agreed, percent=percent):
            return candidate, f"different final answers: {agreed} and {number}", None
        final, agreed = candidate, number
    return final, "", agreed


def _heading(candidate: Candidate, read: dict[str, Number | str]) -> bool:
    """`#### Step 1: add` is a heading of Markdown, not an answer."""
    words = candidate.marker == "####" and candidate.text[:2].isalpha()
    return words and isinstance(read[candidate.text], str)


def _states_nothing(
    candidate: Candidate, read: dict[str, Number | str], stated: list[Candidate], any_strong: bool
) -> bool:
    """Whether a statement that is not a number is prose, or only the wrapping of another statement."""
    if candidate.strong:
        wraps = any(
            other is not candidate and candidate.start <= other.start and other.end <= candidate.end for other in stated
        )
        return wraps or _heading(candidate, read)
    return any_strong or not candidate.text[:1].isdigit()
