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
the status bad_reference and no score. The policies are in `reading`.
"""

from __future__ import annotations

from functools import lru_cache

from rlvr.records import Status, Verdict
from rlvr.rewards.extract import final_region, statements
from rlvr.rewards.final import final_answer, no_answer
from rlvr.rewards.judgement import MAX_ANSWER, clip, verdict
from rlvr.rewards.locale import Locale
from rlvr.rewards.numbers import NotANumber, Number
from rlvr.rewards.reading import Reading, reading_of
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample


def check_options(
    anywhere: bool = False,
    percent: str = "asked",
    compare_units: bool = True,
    unicode_digits: bool = False,
    words: bool = False,
    unevaluated: str = "quotients",
    decimals: int | None = None,
    locale: str = "en",
) -> None:
    """Raises ValueError when an option of `numeric_answer` has a value that means nothing."""
    if not isinstance(anywhere, bool):
        raise ValueError(f"anywhere must be true or false, not {anywhere!r}")
    problem = Reading(percent, compare_units, unicode_digits, words, unevaluated, decimals, locale).problem()
    if problem:
        raise ValueError(problem)


@reward("numeric_answer", version="3", check=check_options)
def numeric_answer(
    sample: Sample,
    *,
    anywhere: bool = False,
    percent: str = "asked",
    compare_units: bool = True,
    unicode_digits: bool = False,
    words: bool = False,
    unevaluated: str = "quotients",
    decimals: int | None = None,
    locale: str = "en",
) -> Verdict:
    """1 if the final answer equals the reference exactly, else 0.

    anywhere: judge the last number of the completion instead of a marked answer.
    percent: 50% is 0.5; where one side has no sign, "either": it is also 50; "asked": only if the problem speaks of
      percent; "fraction": never.
    compare_units: units that both sides have must agree (nothing is converted).
    unicode_digits: read digits of other scripts too.
    words: read whole numbers in English and Spanish words too.
    unevaluated: "quotients": 48/2 is 24, and 10^3 is 1000; "none": quotients in lowest terms only, powers worked out.
    decimals: the reference rounded to so many decimals (a half away from zero) is right too; none: it must be exact.
    locale: how numbers are written: a country (es-MX, ES), "en" (1,234.56), "es" (1.234,56), or "auto": where an answer
      can be read in two ways, the reference's way of writing decides, and where that says nothing, it is refused.
      A sample's own locale goes before this one.
    """
    where_written = sample.locale or locale
    reading = reading_of(percent, compare_units, unicode_digits, words, unevaluated, decimals, where_written)
    try:
        reference, where = _reference(sample.reference, reading)
    except ValueError as error:
        shown = clip(sample.reference, MAX_ANSWER)
        return verdict(None, Status.BAD_REFERENCE, f"the reference {shown!r} is not a number: {error}")
    if anywhere:
        return _last(sample, reference, reading, where)
    final = final_answer(
        sample,
        lambda text: reading.answer(text, where),
        lambda one, other: reading.same(one, other, sample),
        "one number",
    )
    if isinstance(final, Verdict):
        return final
    return _compare(final.text, final.value, reference, reading, sample, final.marker)


def last_number_verdict(text: str, reference: str, locale: str = "en") -> bool | None:
    """Whether the last number of `text` is the reference's, whatever the format; None: a bad reference.

    The lenient accuracy of an evaluation, beside the strict one by the answer criterion.
    """
    judged = numeric_answer(
        Sample(completion=text, reference=reference), anywhere=True, percent="either", locale=locale
    )
    return None if judged.score is None else judged.score == 1.0


@lru_cache(maxsize=4096)
def _reference(reference: str, reading: Reading) -> tuple[Number, Locale | None]:
    """The number of a reference answer or of a whole GSM8K solution, and how it is written. Raises ValueError."""
    return reading.reference(bare_reference(reference))


def bare_reference(reference: str) -> str:
    """The final answer within a reference, which may be a whole solution. Raises NotANumber if it has several."""
    if "####" in reference:
        reference = reference.rpartition("####")[2]
    if "\\boxed" in reference or "\\fbox" in reference:
        boxed = {box.text for box in statements(reference, "boxed")}
        if len(boxed) > 1:
            raise NotANumber("it has several boxed answers")
        reference = boxed.pop() if boxed else reference
    return reference


def _compare(shown: str, answer: Number, reference: Number, reading: Reading, sample: Sample, marker: str) -> Verdict:
    written = str(answer)
    if reading.same(answer, reference, sample):
        return verdict(1.0, Status.OK, f"{marker}: {written} = {reference}", extracted=shown, normalized=written)
    return verdict(0.0, Status.WRONG, f"{marker}: {written} != {reference}", extracted=shown, normalized=written)


def _last(sample: Sample, reference: Number, reading: Reading, where: Locale | None) -> Verdict:
    text = sample.completion
    begin = final_region(text) or 0  # an open think block still has a last number
    found = reading.last_number(text[begin:], where) if begin else None
    found = found or reading.last_number(text, where)
    if found is None:
        return no_answer(sample, "no number")
    return _compare(found[0], found[1], reference, reading, sample, "last number")
