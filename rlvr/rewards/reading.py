"""The policies of reading and comparing numbers, in one place: what the options of the answer verifiers mean.

Every policy is an option with a strict default (see docs/rewards.md). Must not know where in a completion an answer
stands, nor how a number is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from rlvr.rewards.locale import AUTO, COUNTRIES, ENGLISH, Locale, locale_of
from rlvr.rewards.notation import plain
from rlvr.rewards.number_words import words_to_int
from rlvr.rewards.numbers import NotANumber, Number, equal, last_number, parse_number
from rlvr.rewards.sample import Sample

PERCENT = ("asked", "either", "fraction")
UNEVALUATED = ("quotients", "none")
MAX_DECIMALS = 30
_ASKS_PERCENT = re.compile(r"%|per\s?cent|porcentaje|por\s?ciento", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)  # eq: `reading_of` makes each once, so identity is enough, and fast
class Reading:
    """How numbers are read and compared. The fields are the verifiers' options."""

    percent: str = "asked"
    compare_units: bool = True
    unicode_digits: bool = False
    words: bool = False
    unevaluated: str = "quotients"
    decimals: int | None = None
    locale: str = "en"

    def problem(self) -> str:
        """What is wrong with the options; "" when nothing is."""
        for name in ("compare_units", "unicode_digits", "words"):
            if not isinstance(getattr(self, name), bool):
                return f"{name} must be true or false, not {getattr(self, name)!r}"
        if self.percent not in PERCENT:
            return f"percent must be {', '.join(PERCENT[:-1])} or {PERCENT[-1]}, not {self.percent!r}"
        if self.unevaluated not in UNEVALUATED:
            return f"unevaluated must be {' or '.join(UNEVALUATED)}, not {self.unevaluated!r}"
        if self.decimals is not None and (
            not isinstance(self.decimals, int)
            or isinstance(self.decimals, bool)
            or not 0 <= self.decimals <= MAX_DECIMALS
        ):
            return f"decimals must be null or a whole number from 0 to {MAX_DECIMALS}, not {self.decimals!r}"
        if self.locale != AUTO:
            try:
                locale_of(self.locale)
            except ValueError as error:
                return str(error)
        return ""

    def reference(self, text: str) -> tuple[Number, Locale | None]:
        """The number that a reference is, and the locale to read answers by where they leave it open.

        A reference that is no number in its locale is read in English notation: data sets keep 3.5 for programs
        whatever the language of their problems. Raises NotANumber.
        """
        if self.locale != AUTO:
            locale = locale_of(self.locale)
            try:
                return self._parse(text, locale), locale
            except NotANumber:
                if locale.decimal == ".":
                    raise
                return self._parse(text, ENGLISH), locale
        found = self._readings(text)
        if len({number.value for _, number in found}) > 1:
            raise NotANumber(f"it reads as {' or '.join(str(number) for _, number in found)}: set a locale")
        return found[0][1], found[0][0] if len(found) == 1 else None

    def open_locale(self) -> Locale | None:
        """The locale that was asked for; None where the reference is to decide and does not."""
        return None if self.locale == AUTO else locale_of(self.locale)

    def answer(self, text: str, locale: Locale | None) -> Number:
        """The number that an answer is. `locale`: what `reference` gave. Raises NotANumber."""
        if self.locale != AUTO:
            number = self._parse(text, locale or ENGLISH)
        else:
            found = self._readings(text)
            if len({number.value for _, number in found}) > 1:
                if locale is None:
                    raise NotANumber(f"it reads as {' or '.join(str(n) for _, n in found)}, depending on the country")
                found = [(known, number) for known, number in found if known == locale]
            number = found[0][1]
        if self.unevaluated == "none" and not number.worked_out:
            raise NotANumber("not worked out")
        return number

    def last_number(self, text: str, locale: Locale | None) -> tuple[str, Number] | None:
        """The last number of running text; where the locale is open, in English notation."""
        return last_number(text, unicode_digits=self.unicode_digits, locale=locale or ENGLISH)

    def same(self, answer: Number, reference: Number, sample: Sample) -> bool:
        """Whether an answer is the reference's number."""
        percent = self.percent
        if percent == "asked":
            signs_differ = answer.percent != reference.percent
            percent = "either" if signs_differ and asks_for_percent(sample) else "fraction"
        if equal(answer, reference, percent=percent, compare_units=self.compare_units):
            return True
        if self.decimals is None or not equal(
            Number(reference.value, reference.percent, answer.unit), reference, compare_units=self.compare_units
        ):
            return False
        return answer.value == rounded(reference.value, self.decimals)

    def _parse(self, text: str, locale: Locale) -> Number:
        try:
            return parse_number(text, unicode_digits=self.unicode_digits, locale=locale)
        except NotANumber:
            if self.words and (value := words_to_int(plain(text).strip(" \t\r\n*_.$"))) is not None:
                return Number(Fraction(value))
            raise

    def _readings(self, text: str) -> list[tuple[Locale, Number]]:
        found: list[tuple[Locale, Number]] = []
        refusal = NotANumber("not a number")
        for locale in (ENGLISH, COUNTRIES["ES"]):
            try:
                found.append((locale, self._parse(text, locale)))
            except NotANumber as error:
                refusal = error
        if not found:
            raise refusal
        return found


@lru_cache(maxsize=256)
def reading_of(*options: Any) -> Reading:
    """A Reading, made once for the same options (its fields, in order)."""
    return Reading(*options)


def rounded(value: Fraction, decimals: int) -> Fraction:
    """`value` to so many decimals, a half away from zero, as one learns in school."""
    scaled = abs(value) * 10**decimals
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return Fraction(-whole if value < 0 else whole, 10**decimals)


def asks_for_percent(sample: Sample) -> bool:
    """Whether the problem speaks of percent. Of a prompt with exemplars, only the last paragraph is the problem."""
    question = sample.extra.get("question")
    if not isinstance(question, str):
        if isinstance(sample.prompt, str):
            question = sample.prompt.strip().rpartition("\n\n")[2]
        else:
            question = sample.prompt[-1].get("content", "") if sample.prompt else ""
    return _ASKS_PERCENT.search(question) is not None
