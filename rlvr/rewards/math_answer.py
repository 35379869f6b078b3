r"""`math_answer`: is the one final answer of the completion the reference, whatever mathematics it is?

In stages, and the evidence says which one decided: exact text; one number, exactly; the structure (lists, tuples,
sets, intervals, inequalities, equations, ratios); expressions by evaluation in a field (`identity`); what is left by
computer algebra in a child process that is killed when it takes too long (`symbolic`). What cannot be shown to be
equal is wrong. An answer that would be too expensive to check is wrong too, and one that uses up the child's time or
memory scores 0 as `timeout`; if the reference itself does so, there is no score.

Finding the answer, several answers and hedges: as in `numeric_answer`. The policies are in `reading`, and:
- where the reference is a number, the answer must be one: sin^2 x + cos^2 x has not been worked out;
- bare lists have the order of the reference, unless `ordered=False`; sets never have one;
- a form (factored, simplified) is not asked for here: see `answer_form`.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache

from rlvr.records import Status, Verdict
from rlvr.rewards import symbolic
from rlvr.rewards.expressions import Unreadable, normal
from rlvr.rewards.final import Final, final_answer
from rlvr.rewards.identity import TooExpensive
from rlvr.rewards.judgement import MAX_ANSWER, clip, verdict
from rlvr.rewards.locale import ENGLISH, Locale
from rlvr.rewards.matching import Matcher
from rlvr.rewards.numbers import NotANumber
from rlvr.rewards.numeric_answer import bare_reference
from rlvr.rewards.reading import Reading, reading_of
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample
from rlvr.rewards.structures import Answer, Leaf, Text, plain_text, read


def check_options(
    ordered: bool = True,
    percent: str = "asked",
    compare_units: bool = True,
    unicode_digits: bool = False,
    words: bool = False,
    unevaluated: str = "quotients",
    decimals: int | None = None,
    locale: str = "en",
) -> None:
    """Raises ValueError when an option has a value that means nothing, or what is needed is not installed."""
    if not isinstance(ordered, bool):
        raise ValueError(f"ordered must be true or false, not {ordered!r}")
    number = "quotients" if unevaluated == "any" else unevaluated
    problem = Reading(percent, compare_units, unicode_digits, words, number, decimals, locale).problem()
    if problem:
        raise ValueError(problem)
    if not symbolic.installed():
        raise ValueError("math_answer needs math-verify: pip install 'rlvr[math]'")


@reward("math_answer", version="2", check=check_options, prepare=symbolic.start)
def math_answer(
    sample: Sample,
    *,
    ordered: bool = True,
    percent: str = "asked",
    compare_units: bool = True,
    unicode_digits: bool = False,
    words: bool = False,
    unevaluated: str = "quotients",
    decimals: int | None = None,
    locale: str = "en",
) -> Verdict:
    """1 if the final answer is the reference, else 0.

    ordered: bare lists (1, 2, 3) must have the order of the reference.
    unevaluated: besides "quotients" and "none", "any": an expression may stand for a number.
    The other options are those of `numeric_answer`.
    """
    where_written = sample.locale or locale
    number = "quotients" if unevaluated == "any" else unevaluated
    reading = reading_of(percent, compare_units, unicode_digits, words, number, decimals, where_written)
    try:
        reference, where = _reference(sample.reference, reading)
    except ValueError as error:
        return _bad_reference(sample, str(error))

    def meaning(text: str) -> Answer:
        try:
            answer = read(text, lambda part: reading.answer(part, where), where or ENGLISH)
        except Unreadable:
            if not isinstance(reference, Text):
                raise
            return plain_text(text)
        return plain_text(text) if isinstance(reference, Text) and not isinstance(answer, Text) else answer

    def matcher(cheap: bool) -> Matcher:
        return Matcher(
            same_number=lambda one, other: reading.same(one, other, sample),
            ordered=ordered,
            compare_units=compare_units,
            unevaluated=unevaluated == "any",
            cheap=cheap,
        )

    def agree(one: Answer, other: Answer) -> bool:
        try:
            return one == other or matcher(True).same(one, other)
        except TooExpensive:
            return False

    final = final_answer(sample, meaning, agree, "an answer that we can read")
    if isinstance(final, Verdict):
        return final
    return _compare(sample, final, reference, matcher(False))


def _compare(sample: Sample, final: Final[Answer], reference: Answer, matcher: Matcher) -> Verdict:
    written = normal(final.text)
    shown = clip(written, MAX_ANSWER)
    try:
        if final.value == reference and not isinstance(reference, Leaf):
            matcher.stage, right = "exact text", True
        elif isinstance(reference, Text):
            matcher.stage = "exact text"
            right = final.value == reference or _by_latex(final.value, reference, matcher)
        else:
            right = matcher.same(final.value, reference)
    except TooExpensive as error:
        return verdict(0.0, Status.WRONG, f"{final.marker}: too expensive to check: {error}", extracted=final.text)
    except symbolic.Exhausted as error:
        if _spoiled(reference):
            return _bad_reference(sample, f"checking it {error}")
        return verdict(0.0, Status.TIMEOUT, f"{final.marker}: checking it {error}", extracted=final.text)
    evidence = f"{final.marker}, {matcher.stage}: {shown} {'=' if right else '!='} {clip(sample.reference, MAX_ANSWER)}"
    status = Status.OK if right else Status.WRONG
    return verdict(float(right), status, evidence, extracted=final.text, normalized=shown)


def _by_latex(answer: Answer, reference: Text, matcher: Matcher) -> bool:
    """What neither side's notation lets us read: sums, integrals, limits."""
    if not isinstance(answer, Text) or "\\" not in reference.text or not any(c.isdigit() for c in answer.text):
        return False
    if any(word in answer.text + reference.text for word in ("\\forall", "\\exists", "=", "<", ">", "dots")):
        return False
    if not (symbolic.cheap_latex(answer.text) and symbolic.cheap_latex(reference.text)):
        raise TooExpensive("large numbers, powers or nesting in what only computer algebra could decide")
    matcher.stage = "symbolic"
    return bool(symbolic.equal_latex(answer.text, reference.text))


def _spoiled(reference: Answer) -> bool:
    """Whether the reference alone uses up the child, so that the answer is not to blame."""
    try:
        Matcher(same_number=lambda one, other: one == other).same(reference, _without_numbers(reference))
    except (symbolic.Exhausted, TooExpensive):
        return True
    return False


def _without_numbers(reference: Answer) -> Answer:
    """A slightly different answer, so that comparing it with the reference takes the whole way."""
    if isinstance(reference, Leaf) and reference.tree is not None:
        return Leaf(reference.text, None, ("mul", reference.tree, ("fn", "abs", ("var", "u"))))
    return reference


def _bad_reference(sample: Sample, why: str) -> Verdict:
    shown = clip(sample.reference, MAX_ANSWER)
    return verdict(None, Status.BAD_REFERENCE, f"the reference {shown!r} cannot be used: {why}")


@lru_cache(maxsize=4096)
def _reference(text: str, reading: Reading) -> tuple[Answer, Locale | None]:
    """What a reference says, and how it is written. Raises ValueError when it is empty, or has several answers."""
    text = bare_reference(text)
    if not text.strip():
        raise NotANumber("it is empty")
    where = reading.open_locale()
    if "=" not in text:
        with contextlib.suppress(NotANumber):
            number, where = reading.reference(text)
            return Leaf(text, number, ("num", number.value)), where
    try:
        return read(text, lambda part: reading.answer(part, where), where or ENGLISH), where
    except Unreadable:
        return plain_text(text), where
