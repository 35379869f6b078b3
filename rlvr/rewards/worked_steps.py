"""`worked_steps`: is the arithmetic of a worked solution right? The share of right steps is the score.

A step is an annotation (<<48/2=24>>) or an equation in the text (48 / 2 = 24; in a chain 3+4 = 7+2 = 9 every "="
is one, and this one is wrong). Both sides are worked out as exact rationals. Only steps that calculate count, the
same one once: repeating 1+1=2 earns nothing. What holds words or variables is passed over, not judged. Says nothing
about whether the steps lead anywhere: give it less weight than the answer.

Rounding: a result written with at least `decimals` decimals may be the exact one rounded, a half away from zero;
any other must be exact, so 10/3 = 3.33 is right and 10/3 = 3 is not.

If the last step's result is not the final answer, the two contradict each other: that is said in the evidence. It
need not be a mistake ("so 7 packs are needed"), so it costs nothing unless `contradiction="wrong"`, which counts it
as one more wrong step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise

from rlvr.records import Status, Verdict
from rlvr.rewards.expressions import Unreadable, normal, parse
from rlvr.rewards.final import final_answer
from rlvr.rewards.identity import TooExpensive, exact
from rlvr.rewards.judgement import clip, verdict
from rlvr.rewards.locale import ENGLISH, Locale, locale_of
from rlvr.rewards.numbers import Number
from rlvr.rewards.reading import MAX_DECIMALS, Reading, rounded
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample

#: Further steps are not looked at: nobody's solution of a word problem has more.
MAX_STEPS = 100
_MAX_SIDE = 200
_MAX_RUNS = 2000
_MAX_PAIRS = 1000
_ANNOTATION = re.compile(r"<<([^<>\n]{1,400})>>")
_BULLET = re.compile(r"^[ \t]*(?:[-*\u2022]|[0-9]+[.)])[ \t]+", re.MULTILINE)
_TIMES = re.compile(r"(?<=[0-9)%])\s*[xX\u00d7]\s*(?=[0-9($.])")
_FLOOR = re.compile(r"([0-9]+)\s*//\s*([0-9]+)")
_GROUPED = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
#: Characters of arithmetic; a run of them with an equals sign is worth a look.
_SIGNS = r"0-9.,$%()+\-*/^ \t\u2212\u2013\u00f7"
_RUN = re.compile(rf"[{_SIGNS}]*=[{_SIGNS}=]*")
#: A run goes on to the left with something else: x - 5 + 3 = 10, 3/4 of 3/3 = 9/12.
_CUT_BEFORE = re.compile(r"(?:[^\W\d_]|[)\u00bc-\u00be\u2150-\u215e}])\s*$")
_SENTENCE = re.compile(r"(?<=[0-9)%])[.,][ \t]+")
#: Needs no other spelling.
_TYPED = re.compile(r"[0-9.+\-*/() ]+")
_NUMBER = re.compile(r"[0-9]{1,30}")
_OPERATOR_FIRST = re.compile(r"\s*[-+*/^\u00f7\u2212\u2013]")
_FACTOR_BEFORE = re.compile(r"(?:\b[xX]|[\u00d7\u00b7\u22c5\u00bc-\u00be\u2150-\u215e])\s*$")
_OPERATOR = re.compile(r"(?<=[0-9)%.])\s*[-+*/^\u00f7\u2212\u2013]|[0-9]\(")
#: What ends the sentence before: "1. 3 + 4", but not .5 * 4.
_STOP_BEFORE = re.compile(r"^\s*(?:[0-9]{0,2}[.,]\s+|,)+")
_DECIMALS = re.compile(r"-?[0-9]*\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One calculation and what it is said to give."""

    text: str
    right: bool
    result: Fraction


def check_options(decimals: int | None = 2, at_least: int = 1, contradiction: str = "flag", locale: str = "en") -> None:
    """Raises ValueError when an option has a value that means nothing."""
    for name, value, low in (("decimals", decimals, 1), ("at_least", at_least, 1)):
        if value is None and name == "decimals":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_DECIMALS:
            raise ValueError(f"{name} must be a whole number from {low} to {MAX_DECIMALS}, not {value!r}")
    if contradiction not in ("flag", "wrong"):
        raise ValueError(f"contradiction must be flag or wrong, not {contradiction!r}")
    locale_of(locale)


@reward("worked_steps", version="1", check=check_options)
def worked_steps(
    sample: Sample,
    *,
    decimals: int | None = 2,
    at_least: int = 1,
    contradiction: str = "flag",
    locale: str = "en",
) -> Verdict:
    """The share of right steps in the arithmetic of the completion, from 0 to 1.

    decimals: results with at least so many decimals may be rounded; none: all must be exact.
    at_least: where there are fewer steps, the missing ones count as wrong.
    contradiction: "flag": say so; "wrong": count it as a wrong step.
    """
    where = locale_of(sample.locale or locale)
    found = list(steps(sample.completion, decimals, where))
    if not found:
        status = Status.TRUNCATED if sample.truncated else Status.NO_ANSWER
        return verdict(0.0, status, "no arithmetic that could be checked")
    right = sum(step.right for step in found)
    wrong = [step.text for step in found if not step.right]
    total = max(len(found), at_least)
    notes = [f"{right} of {len(found)} steps right"]
    if wrong:
        notes.append("wrong: " + clip("; ".join(wrong), 200))
    final = _final(sample, sample.locale or locale)
    last = found[-1].result
    if final is not None and final.value not in (last, last / 100, last * 100, rounded(last, 2)):
        total += contradiction == "wrong"
        notes.append(f"contradiction: the last step gives {last}, the final answer is {final}")
    score = right / total
    return verdict(score, Status.OK if score == 1.0 else Status.WRONG, "; ".join(notes), normalized=f"{right}/{total}")


def steps(text: str, decimals: int | None = 2, locale: Locale | None = None) -> Iterator[Step]:
    """The steps of a solution in order, each once, MAX_STEPS at most."""
    seen: set[str] = set()
    for left, right in _equations(text):
        step = _step(left, right, decimals, locale or ENGLISH)
        if step is None or step.text in seen:
            continue
        seen.add(step.text)
        yield step
        if len(seen) == MAX_STEPS:
            return


def verified_annotations(text: str) -> Iterator[tuple[str, bool]]:
    """Every <<...=...>> of a solution and whether it is exactly right; what cannot be read is not."""
    for match in _ANNOTATION.finditer(text):
        sides = [_value(_plain(side, ENGLISH)) for side in match[1].split("=")]
        yield match[1], len(sides) > 1 and None not in sides and len(set(sides)) == 1


def _equations(text: str) -> Iterator[tuple[str, str]]:
    """Both sides of every equals sign that stands among arithmetic, in order of appearance."""
    found: list[tuple[int, str]] = [(match.start(), match[1]) for match in _ANNOTATION.finditer(text)]
    bare = _TIMES.sub(_same_length_times, _BULLET.sub(_blank, _ANNOTATION.sub("", text)))
    shift = _Shift(text)
    for match in islice(_RUN.finditer(bare), _MAX_RUNS):
        run, before = match[0], bare[max(0, match.start() - 8) : match.start()]
        cut = _FACTOR_BEFORE.search(before) or (_CUT_BEFORE.search(before) and _OPERATOR_FIRST.match(run))
        if cut:
            run = run[run.index("=") :]
        if bare[match.end() : match.end() + 1].isalpha() and not run[-1:].isspace():
            run = run[: run.rindex("=") + 1]
        found.append((shift.of(match.start()), run))
    found.sort(key=lambda item: item[0])
    sentences = (sentence for _, run in found for sentence in _SENTENCE.split(run))
    pairs = ((left, right) for sentence in sentences for left, right in pairwise(sentence.split("=")))
    for left, right in islice(pairs, _MAX_PAIRS):
        if left.strip() and right.strip() and len(left) <= _MAX_SIDE and len(right) <= _MAX_SIDE:
            yield left, right


class _Shift:
    """Where a place of the text without annotations was in the text with them, near enough for putting in order."""

    def __init__(self, text: str) -> None:
        self._spans = [match.span() for match in _ANNOTATION.finditer(text)]

    def of(self, place: int) -> int:
        for start, end in self._spans:
            if start > place:
                break
            place += end - start
        return place


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _same_length_times(match: re.Match[str]) -> str:
    return "*".center(len(match[0]))


def _step(left: str, right: str, decimals: int | None, locale: Locale) -> Step | None:
    """The step that an equation is; None when it is none, or holds what is no arithmetic."""
    if not (_OPERATOR.search(left) or _OPERATOR.search(right)):
        return None
    left, right = _plain(_STOP_BEFORE.sub("", left), locale), _plain(right, locale)
    if left.count("(") > left.count(")"):  # "(she has 3 + 4 = 7)"
        left = left[left.index("(") + 1 :]
    if right.count(")") > right.count("("):
        right = right[: right.index(")")]
    elif right.count("(") > right.count(")"):
        right = right[: right.rindex("(")]
    value, result = _value(left), _value(right)
    if value is None or result is None:
        return None
    places = _DECIMALS.fullmatch(right.strip())
    correct = value == result or (right.endswith("%") and value == result * 100)
    if not correct and places and decimals is not None and len(places[1]) >= decimals:
        correct = rounded(value, min(len(places[1]), MAX_DECIMALS)) == result
    return Step(f"{left.strip()} = {right.strip()}".replace(" ", ""), correct, result)


def _plain(side: str, locale: Locale) -> str:
    """A side without what does not change its value: currency, separators, the full stop of its sentence."""
    side = _GROUPED.sub("", locale.to_english(_TIMES.sub("*", side)))
    side = _FLOOR.sub(r"\\lfloor \\frac{\1}{\2} \\rfloor", side)
    return side.replace("$", "").rstrip(" \t.,").strip()


def _value(side: str) -> Fraction | None:
    if _NUMBER.fullmatch(side):
        return Fraction(int(side))
    try:
        return exact(parse(side if _TYPED.fullmatch(side) else normal(side)))
    except (Unreadable, TooExpensive):
        return None


def _final(sample: Sample, locale_name: str) -> Number | None:
    """The final answer, if there is one number."""
    reading = Reading(percent="either", locale=locale_name)
    final = final_answer(
        sample,
        lambda text: reading.answer(text, locale_of(locale_name)),
        lambda one, other: reading.same(one, other, sample),
        "one number",
    )
    return None if isinstance(final, Verdict) else final.value
