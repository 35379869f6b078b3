r"""Reading a written number exactly: "$1,234.50", "-3/4", "1\frac{1}{2}", "2 x 10^4", "50%", "72 clips".

A number is a rational; nothing is rounded and no float is involved. Lengths and exponents are limited before any
arithmetic, so no input is expensive. Must not know where in a completion the answer stands.

What is read, and what is not (each of these is tested):
- Thousands separators group strictly: 1,234,567 is a number, 12,34 and 1,2 are not. LaTeX's {,} and \, and
  Unicode's thin spaces group as well; a plain space does not. Other countries' ways: see `locale`.
- a/b of two integers is a number whatever its form (48/2 is 24); so is a mixed number (1 1/2) and a power of ten
  (10^3, 3 x 10^4, 1.2e-4). Any other expression is not: it has not been worked out.
- "=" joins a name to its value (x = 5) or equal numbers (1/2 = 0.5). 3+5=8 and 8=7 are not numbers.
- "50%" is 1/2, and remembers that it was written with the sign (see `equal`).
- Words after the number are its unit (72 clips, 5 km); thousand, million, dozen and the like multiply it. Further
  digits, "or", "plus", number words and variables make it no number: 7 or 8, 5 + x, 5x.
- (5) is 5. Intervals, sets, tuples, ratios, inequalities, plus-minus, words (seven), nan are not numbers.
- Digits are ASCII; with `unicode_digits` all decimal digits of Unicode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from rlvr.rewards import units
from rlvr.rewards.locale import ENGLISH, Locale
from rlvr.rewards.notation import ascii_digits, plain
from rlvr.rewards.units import Words

#: A written answer longer than this is not a number; nothing below is run on longer text.
MAX_LENGTH = 1000
#: Digits of one written integer, and largest power of ten. Together they keep every numerator and denominator
#: below 640 digits, the lowest limit that Python's own guard of int <-> str can be set to.
MAX_DIGITS = 300
MAX_EXPONENT = 300


class NotANumber(ValueError):
    """The text is not one number; the message says why, for the evidence of a verdict."""


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number as it was written."""

    value: Fraction
    """A percentage already divided by 100."""
    percent: bool = False
    unit: str = ""
    """Canonical unit, e.g. "km", "$", "km/hour"; "" when there is none that we know."""
    worked_out: bool = field(default=True, compare=False)
    """False for a quotient that is not in lowest terms, and for a bare power of ten."""

    def __str__(self) -> str:
        return f"{self.value} {self.unit}" if self.unit else str(self.value)


_INT = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_INT}(?:\.[0-9]+)?|\.[0-9]+)"
_CURRENCY = r"(?:(?:US|AU|CA|NZ|HK|MX|A|C|R|S)?\$|[€£¥₹¢]|(?:USD|EUR|GBP|INR|Rs\.?)(?=[\s0-9]))"
_CORE = re.compile(
    rf"""
    (?: (?P<sign>[+-]) \s* )? (?: (?P<currency>{_CURRENCY}) \s* )? (?: (?P<sign2>[+-]) \s* )?
    (?: (?: (?P<whole>{_INT}) \s+ )? (?P<top>{_INT}) \s* / \s* (?P<bottom>-?{_INT})
      | (?: (?P<mantissa>{_DECIMAL}) \s* [x\u00d7*\u00b7] \s* )? 10 \s* \^ \s* \(? (?P<power>[+-]?[0-9]+) \)?
      | (?P<decimal>{_DECIMAL}) (?: [eE] (?P<exponent>[+-]?[0-9]+) (?![A-Za-z]) )?
    )""",
    re.VERBOSE,
)
#: Most answers, in English notation. What it matches reads the same by the long way.
_SIMPLE = re.compile(r"(-?)(\$?)((?:[1-9][0-9]{0,2}(?:,[0-9]{3}){1,9}|[0-9]{1,30}))(\.[0-9]{1,20})?", re.ASCII)
#: The same before a space and a word that is no sign of multiplication.
_SIMPLE_FIRST = re.compile(rf"{_SIMPLE.pattern}(?=\s+[A-WYZa-wyz]|$)", re.ASCII)
#: What stands between a name and its value: x = 5, Total: 72.
_EQUALS = re.compile(r"[=≈]|(?<=[A-Za-z]):(?=\s)")
_NAME = re.compile(r"[^\W\d_]\w*(?:[\s'-]+[^\W\d_]\w*)*")
_APPROXIMATELY = re.compile(
    r"(?:~|approximately|approx\.?|about|roughly|around|exactly|aproximadamente|exactamente)\s*", re.IGNORECASE
)
_NUMBER_STARTS = frozenset("0123456789.-+$")
_PERCENT = re.compile(r"\s*(?:%|per\s?cent\b|percentage\b|por\s?ciento\b)", re.IGNORECASE)
_EXPONENT_OF_UNIT = r"(?:\s*\^\s*\(?\s*([23])\s*\)?)?"
_UNIT = re.compile(
    rf"(\s*)-?(?:(square|sq\.?|cubic)\s+)?(°\s*[CF]\b|°|¢|€|£|¥|₹|\$|[^\W\d_]+(?:\.[mM]\b)?)\.?{_EXPONENT_OF_UNIT}"
    rf"(?:(?:\s*/\s*|\s+(?:per|an?)\s+)([^\W\d_]+){_EXPONENT_OF_UNIT})?",
)
_WORDS = re.compile(r"(?:[^\W\d_]|[\s,()'\u2019./\"&*-])*")
_WORD = re.compile(r"[^\W\d_]+")


def parse_number(text: str, *, unicode_digits: bool = False, locale: Locale = ENGLISH) -> Number:
    """The one number that `text` is, as `locale` writes numbers. Raises NotANumber when it is anything else."""
    if len(text) > MAX_LENGTH:
        raise NotANumber(f"longer than {MAX_LENGTH} characters")
    stripped = text.strip()
    simple = _SIMPLE.fullmatch(stripped)
    if simple and (locale.decimal == "." or (not simple[4] and "," not in stripped)):
        return _simple_number(*simple.groups())
    if unicode_digits:
        stripped = ascii_digits(stripped)
    stripped = locale.to_english(_bare(" ".join(plain(stripped).split())))
    if not stripped:
        raise NotANumber("empty")
    words = units.words_of(locale.language)
    if "=" not in stripped and "≈" not in stripped and ":" not in stripped:
        return _read(stripped, words)
    *names, last = _EQUALS.split(stripped)
    number = _read(last.strip(), words)
    for name in names:
        name = name.strip()
        if name and not _NAME.fullmatch(name):
            try:
                other = _read(name, words)
            except NotANumber:
                raise NotANumber("a calculation, not a number") from None
            if other.value != number.value:
                raise NotANumber("an equation between different numbers")
    return number


def _simple_number(sign: str, currency: str, whole: str, places: str | None) -> Number:
    digits = whole.replace(",", "")
    value = Fraction(digits + places) if places else Fraction(int(digits))
    return Number(-value if sign else value, False, currency)


def _bare(text: str) -> str:
    """Without the emphasis, quotes and punctuation around it, and without one pair of parentheses."""
    text = text.lstrip(" \t\r\n*_`'\"\u201c\u2018:").rstrip(" \t\r\n*_`'\"\u201d\u2019.,;:")
    if text.startswith("(") and text.endswith(")") and "," not in text and text.count("(") == 1:
        text = text[1:-1].strip()
    return text


def _read(text: str, words: Words) -> Number:
    if text[:1] not in _NUMBER_STARTS and (approximately := _APPROXIMATELY.match(text)):
        text = text[approximately.end() :]
    simple = _SIMPLE_FIRST.match(text)  # 72 clips: most of what has more than a number
    if simple:
        number = _simple_number(*simple.groups())
        percent, factor, unit = _tail(text[simple.end() :], simple[2] or None, words)
        return Number(number.value * factor / 100 if percent else number.value * factor, percent, unit)
    match = _CORE.match(text)
    if match is None:
        raise NotANumber("not a number")
    value = value_of(match)
    percent, factor, unit = _tail(text[match.end() :], match["currency"], words)
    worked_out = match["decimal"] is not None or match["mantissa"] is not None
    if match["top"] is not None:
        worked_out = 1 < value.denominator == abs(_integer(match["bottom"]))
    return Number(value * factor / 100 if percent else value * factor, percent, unit, worked_out)


def value_of(match: re.Match[str]) -> Fraction:
    """The value that a match of the number pattern spells, with its sign."""
    if match["top"] is not None:
        bottom = _integer(match["bottom"])
        if bottom == 0:
            raise NotANumber("a division by zero")
        value = Fraction(_integer(match["top"]), bottom)
        if match["whole"] is not None:
            if bottom < 0:
                raise NotANumber("a mixed number with a sign inside")
            value += _integer(match["whole"])
    elif match["power"] is not None:
        value = (_decimal(match["mantissa"]) if match["mantissa"] else 1) * _power_of_ten(match["power"])
    else:
        value = _decimal(match["decimal"])
        if match["exponent"] is not None:
            value *= _power_of_ten(match["exponent"])
    if match["sign"] and match["sign2"]:
        raise NotANumber("two signs")
    return -value if "-" in (match["sign"], match["sign2"]) else value


def _integer(digits: str) -> int:
    digits = digits.replace(",", "")
    if len(digits) > MAX_DIGITS:
        raise NotANumber(f"more than {MAX_DIGITS} digits")
    return int(digits)


def _decimal(digits: str) -> Fraction:
    whole, _, fraction = digits.replace(",", "").partition(".")
    if not fraction:
        return Fraction(_integer(whole))
    return Fraction(_integer(whole + fraction), 10 ** len(fraction))


def _power_of_ten(exponent: str) -> Fraction:
    if len(exponent) > 6 or abs(int(exponent)) > MAX_EXPONENT:
        raise NotANumber(f"an exponent beyond {MAX_EXPONENT}")
    return Fraction(10) ** int(exponent)


def _tail(text: str, currency: str | None, words: Words) -> tuple[bool, int, str]:
    """What follows the digits: (percent?, factor, unit). Raises NotANumber when it makes them no number."""
    unit = "" if currency is None else units.currency(currency)
    if not text:
        return False, 1, unit
    percent = _PERCENT.match(text)
    if percent:
        text = text[percent.end() :]
    factor = 1
    while (multiplier := words.multiplier.match(text)) and factor <= 10**12:
        factor *= words.multipliers[multiplier[1].lower()]
        text = text[multiplier.end() :]
    match = _UNIT.match(text)
    if match is not None:
        suffix = match[3].lower()
        rest = text[match.end() :]
        if currency and suffix in units.CURRENCY_SUFFIXES and not rest.strip():
            return bool(percent), factor * units.CURRENCY_SUFFIXES[suffix], unit
        name = _unit_name(match, rest, words.units)
        if name:
            unit, text = (unit or name), rest
        elif not match[1] and suffix.isalpha() and factor == 1 and not percent:
            raise NotANumber(f"a number with {match[3]!r} attached")
    _check_words(text, words)
    return bool(percent), factor, unit


def _unit_name(match: re.Match[str], rest: str, known: dict[str, str]) -> str:
    """Canonical name of the unit that a match of _UNIT spells, or ""."""
    prefix, symbol, exponent, per, per_exponent = match.groups()[1:]
    name = known.get(symbol.lower().replace(" ", ""), "")
    if not name or (symbol.lower() == "in" and (rest.strip() or per)):  # "72 in total"
        return ""
    power = exponent or ({"s": "2", "c": "3"}[prefix[0].lower()] if prefix else "")
    name = f"{name}^{power}" if power else name
    if per:
        below = known.get(per.lower(), per.lower())
        name = f"{name}/{below}^{per_exponent}" if per_exponent else f"{name}/{below}"
    return name


def _check_words(text: str, known: Words) -> None:
    if not text:
        return
    if not _WORDS.fullmatch(text):
        raise NotANumber("more than one number" if any(c.isdigit() for c in text) else "an expression")
    words = [word.lower() for word in _WORD.findall(text)]
    if not words:
        if text.strip(" \t\r\n*_'\",.()"):
            raise NotANumber("an expression")
        return
    short = next((w for w in words if len(w) < 3 and w.isascii() and w not in known.short), None)
    if short is not None and short not in known.units:
        raise NotANumber(f"an expression with {short!r}")
    if words[0] in known.not_first or known.never.search(text):
        raise NotANumber("more than a number, or a hedge")


def last_number(text: str, *, unicode_digits: bool = False, locale: Locale = ENGLISH) -> tuple[str, Number] | None:
    """The last number in running text, as written and as read; None when there is none.

    Reads only the neighbourhood of the last digit, so that long text costs no more than finding that.
    """
    if unicode_digits:
        text = ascii_digits(text)
    end = _last_digit(text)
    if end < 0:
        return None
    window = locale.to_english(" ".join(plain(text[max(0, end - 2 * MAX_DIGITS) : end + 60]).split()))
    matches = list(_IN_TEXT.finditer(window))
    try:
        return _from_text(window, matches[-1], units.words_of(locale.language)) if matches else None
    except NotANumber:
        return None


# Not within a word or a longer number, and no ordinal; atomic, else 23rd would be read as 2.
_IN_TEXT = re.compile(rf"(?<![A-Za-z0-9_^])(?>{_CORE.pattern})(?!(?:st|nd|rd|th)\b)", re.VERBOSE)
_DIGITS = "0123456789¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"


def _last_digit(text: str) -> int:
    return max(text.rfind(digit) for digit in _DIGITS)


def _from_text(window: str, match: re.Match[str], words: Words) -> tuple[str, Number]:
    value = value_of(match)
    sign = match["sign"]
    before = window[: match.start()].rstrip()
    # A minus between two numbers subtracts, and one before a space is a dash or the mark of a list.
    subtracts = before[-1:].isdigit() or before.endswith(")")
    if sign == "-" and (subtracts or window[match.start() + 1].isspace()):
        value = -value
    rest = window[match.end() :]
    percent = _PERCENT.match(rest)
    multiplier = words.multiplier.match(rest)
    if multiplier:
        value *= words.multipliers[multiplier[1].lower()]
    unit = units.currency(match["currency"]) if match["currency"] else ""
    return match[0].strip(), Number(value / 100 if percent else value, bool(percent), unit)


def equal(answer: Number, reference: Number, *, percent: str = "either", compare_units: bool = True) -> bool:
    """Whether two numbers are the same, exactly.

    percent: "fraction": 50% is 0.5 and nothing else. "either": besides, where only one side has the sign, x% is
    also x, provided that x is at least 1 (the answer to "what percentage?" is written with and without the sign).
    compare_units: units that both sides have must agree; nothing is converted.
    """
    if compare_units and answer.unit and reference.unit and not _units_agree(answer.unit, reference.unit):
        return False
    one, other = answer.value, reference.value
    if one.numerator == other.numerator and one.denominator == other.denominator:  # == of fractions is slow
        return True
    if percent == "either" and answer.percent != reference.percent:
        signed, bare = (answer, reference) if answer.percent else (reference, answer)
        return abs(bare.value) >= 1 and signed.value * 100 == bare.value
    return False


def _units_agree(one: str, other: str) -> bool:
    (head, _, per), (other_head, _, other_per) = one.partition("/"), other.partition("/")
    return head == other_head and (not per or not other_per or per == other_per)
