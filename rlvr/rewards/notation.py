r"""One spelling for the many ways of typing the same thing: LaTeX, Unicode and Markdown become plain characters.

`plain(r"1\dfrac{1}{2}\text{ km}")` is `1 1/2 km`. What has no plain spelling (\pi, \sqrt{2}, \{5\}) stays as it
is, with its backslash, and is refused by whoever reads on. Must not know what a number is.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

_VULGAR = {c: str(Fraction(unicodedata.numeric(c)).limit_denominator(10)) for c in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True))
#: Minus signs and dashes that are typed for a minus, the fraction slash, wide percent, the ordinal sign as degree.
_CHARACTERS = str.maketrans("\u2212\u2013\ufe63\uff0d\u2044\uff05\u00ba", "----/%°")
#: What stands for a separator of thousands in every country: thin and no-break spaces, LaTeX's \,.
GROUP = "\ue001"  # private use
_GROUPING_SPACE = re.compile(r"(?<=[0-9])(?:\\[, ]|[\u2009\u202f\u00a0])(?=[0-9]{3}(?![0-9]))")
_VULGAR_RUN = re.compile(f"(?:([0-9])\\s*)?([{''.join(_VULGAR)}])")
_SUPERSCRIPT_RUN = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")

_DOLLAR = "\ue000"  # private use: an escaped dollar sign while the delimiters $...$ are removed

_ARGUMENT = r"\s*(?:\{\s*([^{}\\]+?)\s*\}|([0-9]))"
# No digit may follow: \frac123 is 1/2 times 3, not 1/23.
_FRACTION = re.compile(rf"(?:([0-9])\s*)?\\[dtc]?frac{_ARGUMENT}{_ARGUMENT}(?!\s*[0-9])")
_WRAPPER = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf|it|sf)|mbox|hbox)\s*\{([^{}]*)\}")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_POWER = re.compile(r"\^\s*\{\s*([+-]?[0-9]+)\s*\}(?!\s*[0-9])")
_SCRIPT = re.compile(r"([\^_])\s*\{([^{}\\]*)\}")
_GROUP = re.compile(r"(?<![\\^_A-Za-z])\{([^{}\\]*)\}")
#: A command or an escaped sign; braces around a comma, and the circle of degrees, are taken whole.
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|[^A-Za-z])|\{,\}|\^\s*\{?\s*\\circ(?![A-Za-z])\s*\}?|(?<=\w)~")
_SYMBOLS = {
    **dict.fromkeys(("\\left", "\\right", "\\displaystyle", "\\textstyle", "\\!"), ""),
    **dict.fromkeys(("\\,", "\\;", "\\:", "\\ ", "\\\n", "\\quad", "\\qquad", "~"), " "),
    **dict.fromkeys(("\\(", "\\)", "\\[", "\\]"), " "),
    **dict.fromkeys(("\\degree", "\\textdegree"), "°"),
    **dict.fromkeys(("\\times", "\\cdot"), "\u00d7"),
    **dict.fromkeys(("\\approx", "\\simeq", "\\sim", "\\thickapprox"), "≈"),
    **dict.fromkeys(("\\pounds", "\\textsterling"), "£"),
    **dict.fromkeys(("\\euro", "\\texteuro"), "€"),
    "{,}": ",",
    "\\%": "%",
    "\\#": "#",
    "\\&": "&",
}
#: Deeper nesting than this is nobody's way of writing a number.
_MAX_NESTING = 6


def ascii_digits(text: str) -> str:
    """Every decimal digit of Unicode (full-width, Arabic-Indic, ...) as an ASCII digit."""
    return "".join(str(unicodedata.decimal(c)) if not c.isascii() and c.isdecimal() else c for c in text)


def plain(text: str) -> str:
    """`text` in plain characters, GROUP between groups of digits. Linear in its length, for a given nesting."""
    if not text.isascii() or "\\," in text or "\\ " in text:
        text = _GROUPING_SPACE.sub(GROUP, text)
    if not text.isascii():
        text = text.translate(_CHARACTERS)
        text = _VULGAR_RUN.sub(lambda m: f"{m[1]} {_VULGAR[m[2]]}" if m[1] else _VULGAR[m[2]], text)
        text = _SUPERSCRIPT_RUN.sub(lambda m: "^" + "".join(_SUPERSCRIPTS[c] for c in m[0]), text)
    if "$" in text:
        text = text.replace("\\$", _DOLLAR)
        if text.count("$") % 2 == 0:  # delimiters of mathematics come in pairs; a single one is a currency
            text = text.replace("$", "")
        text = text.replace(_DOLLAR, "$")
    if "\\" in text or "{" in text:
        text = _latex(text)
    return text


def _latex(text: str) -> str:
    text = _COMMAND.sub(_symbol, text)
    for _ in range(_MAX_NESTING):
        before = text
        if "\\" in text:
            text = _FRACTION.sub(_fraction, _WRAPPER.sub(r" \1 ", text))
        if "^" in text or "_" in text:
            text = _SCRIPT.sub(_script, _POWER.sub(r"^\1", text))
        if "\\" in text:
            text = _BOX.sub(r" \1 ", text)
        if "{" in text:
            text = _GROUP.sub(r"\1", text)
        if text == before or ("{" not in text and "\\" not in text):
            break
    return text


def _symbol(match: re.Match[str]) -> str:
    return "°" if match[0][0] == "^" else _SYMBOLS.get(match[0], match[0])


def _script(match: re.Match[str]) -> str:
    return f"^({match[2]})" if match[1] == "^" else f"_{match[2]}"


def _fraction(match: re.Match[str]) -> str:
    before, top, top_digit, bottom, bottom_digit = match.groups()
    quotient = f"{top or top_digit}/{bottom or bottom_digit}"
    return f"{before} {quotient}" if before else quotient
