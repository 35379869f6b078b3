r"""Completions that state a reference answer rightly, and ones that do not, in many ways of writing, each with a name.

A kind is a way of writing a number (`1{,}234`, `\frac{2468}{2}`) or of stating an answer (`\boxed{}`, `Answer:`,
after a think block). Every completion is spelled in one kind; all else about it is plain. Kinds that do not apply
(no thousands separator in 12) are left out. Must not know any verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlvr.rewards.locale import Locale, locale_of
from rlvr.rewards.numbers import NotANumber, parse_number

Spelling = Callable[["Answer"], str | None]

_GIVEN_AWAY = "First we look at what is given."
_OTHER_DIGITS = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


@dataclass(frozen=True)
class Answer:
    """A reference answer, in the pieces that spellings are made of."""

    text: str
    """As it is written plainly in its locale, e.g. 1234,5; for what is no number, the reference itself."""
    value: Fraction | None
    """None: not a number, or none with finitely many decimals."""
    unit: str
    locale: Locale

    @classmethod
    def of(cls, reference: str, locale: str) -> Answer:
        """Raises ValueError when there is no such locale."""
        where = locale_of(locale)
        try:
            number = parse_number(reference.rpartition("####")[2], locale=where)
            return cls(where.written(_decimal(number.value)), number.value, number.unit, where)
        except NotANumber:
            return cls(reference.strip(), None, "", where)

    def write(self, value: Fraction, grouped: bool = False) -> str:
        """Another number as this locale writes it."""
        return self.locale.written(_decimal(value, grouped))

    @property
    def number(self) -> Fraction:
        """The value. Raises NotANumber when there is none."""
        if self.value is None:
            raise NotANumber("the reference is not a number")
        return self.value

    @property
    def whole(self) -> int | None:
        """The value if it is a whole number."""
        return int(self.value) if self.value is not None and self.value.denominator == 1 else None


def _decimal(value: Fraction, grouped: bool = False) -> str:
    """All decimals of a number, in English notation. Raises NotANumber when there are infinitely many."""
    places, bottom = 0, value.denominator
    while bottom % 10 == 0 or bottom % 5 == 0 or bottom % 2 == 0:
        bottom //= 10 if bottom % 10 == 0 else 5 if bottom % 5 == 0 else 2
        places += 1
    if bottom != 1:
        raise NotANumber("it has no finite decimal form")
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    head, tail = (digits[:-places], digits[-places:].rstrip("0")) if places else (digits, "")
    head = f"{int(head):,}" if grouped else head
    return f"{'-' if value < 0 else ''}{head}{'.' + tail if tail else ''}"


def _grouped(answer: Answer, separator: str) -> str | None:
    written = answer.write(answer.number, grouped=True)
    if len(written.split(answer.locale.decimal)[0].lstrip("-")) <= 3:
        return None
    whole, decimal, fraction = written.partition(answer.locale.decimal)
    return f"{whole.replace(answer.locale.group, separator)}{decimal}{fraction}"


def _scientific(answer: Answer) -> tuple[str, int] | None:
    """(mantissa, power of ten) of a number that is not 0."""
    if answer.number == 0:
        return None
    power = len(str(abs(int(answer.number)))) - 1
    return answer.write(answer.number / 10**power), power


def _multiple(answer: Answer, factor: int) -> tuple[int, int]:
    value = answer.number
    return value.numerator * factor, value.denominator * factor


def _places(answer: Answer) -> str:
    return answer.text + ("0" if answer.locale.decimal in answer.text else f"{answer.locale.decimal}00")


def _mixed(answer: Answer) -> str | None:
    value = abs(answer.number)
    whole, rest = divmod(value, 1)
    if not whole or not rest:
        return None
    sign = "-" if answer.number < 0 else ""
    return f"\\boxed{{{sign}{int(whole)}\\frac{{{rest.numerator}}}{{{rest.denominator}}}}}"


def _power(answer: Answer, form: str) -> str | None:
    found = _scientific(answer)
    return form.format(*found) if found else None


def _grouping(separator: str, form: str = "\\boxed{{{}}}") -> Spelling:
    def spell(answer: Answer) -> str | None:
        written = _grouped(answer, separator)
        return form.format(written) if written else None

    return spell


def _money(form: str) -> Spelling:
    def spell(answer: Answer) -> str | None:
        return None if answer.unit else form.format(answer.text)

    return spell


#: Ways of stating the answer, whatever it is: {} is the answer. They hold for symbols as well as for numbers.
_STATED = {
    "hashes": "#### {}",
    "hashes, after reasoning": _GIVEN_AWAY + "\nThen we work it out.\n#### {}",
    "hashes, no space": "####{}",
    "hashes, next line": "####\n{}",
    "hashes, after headings": "#### Step one: read\n#### Step two: think\n#### {}",
    "hashes, blank lines after": "#### {}\n\n",
    "boxed": "\\boxed{{{}}}",
    "boxed, in a sentence": "Therefore the result is $\\boxed{{{}}}$.",
    "boxed, displayed": "Thus\n\\[ \\boxed{{{}}} \\]",
    "boxed twice, nested": "\\boxed{{\\boxed{{{}}}}}",
    "boxed twice, repeated": "\\boxed{{{0}}}. To say it again: \\boxed{{{0}}}",
    "fbox": "\\fbox{{{}}}",
    "the answer is": "The answer is {}",
    "the answer is, a sentence": "So the answer is {}.",
    "the answer is, mathematics": "The answer is ${}$.",
    "the final answer is": "the final answer is: {}",
    "Answer:": "Answer: {}",
    "ANSWER:": "ANSWER: {}",
    "bold Answer:": "**Answer:** {}",
    "bold Final Answer": "**Final Answer**\n\n{}",
    "answer tag": "<answer>{}</answer>",
    "answer tag, on lines": "Well.\n<answer>\n{}\n</answer>",
    "answer tag, boxed": "<answer>\\boxed{{{}}}</answer>",
    "after a think block": "<think>Maybe \\boxed{{0}}? No.</think>\n\\boxed{{{}}}",
    "after a think block, opened by the prompt": "Is it 0? No.</think>\nThe answer is {}",
    "boxed and hashes": "\\boxed{{{0}}}\n#### {0}",
    "because": "The answer is {}, because we added everything up.",
    "la respuesta es": "La respuesta es {}",
    "la respuesta final es": "Por lo tanto, la respuesta final es: {}.",
    "Respuesta:": "Respuesta: {}",
    "bold Respuesta final": "**Respuesta final**\n\n{}",
}
_RIGHT_NUMBERS: dict[str, Spelling] = {
    "grouped": lambda a: _grouping(a.locale.group, "#### {}")(a),
    "grouped, boxed": lambda a: _grouping(a.locale.group)(a),
    "grouped by \\,": _grouping("\\,"),
    "grouped by thin spaces": _grouping("\u202f", "#### {}"),
    "grouped by no-break spaces": _grouping("\u00a0", "The answer is {}."),
    "grouped by {,}": lambda a: _grouping("{,}")(a) if a.locale.group == "," else None,
    "zeros after the decimal sign": lambda a: f"#### {_places(a)}",
    "zeros before": lambda a: f"\\boxed{{00{a.text}}}" if a.whole is not None and a.whole >= 0 else None,
    "plus": lambda a: f"#### +{a.text}" if a.number > 0 else None,
    "Unicode minus": lambda a: "#### \u2212" + a.text[1:] if a.number < 0 else None,
    "dollars": _money("#### ${}"),
    "dollars, escaped": _money("The answer is \\${}."),
    "dollars, in mathematics": _money("$\\boxed{{\\${}}}$"),
    "dollars, in words": _money("The answer is {} dollars."),
    "euros": _money("#### {} €"),
    "a thing counted": lambda a: f"#### {a.text} clips",
    "a thing counted, in a sentence": lambda a: f"The answer is {a.text} clips in total.",
    "\\text after": lambda a: f"\\boxed{{{a.text} \\text{{ clips}}}}",
    "\\mathrm after": lambda a: f"\\boxed{{{a.text}\\,\\mathrm{{clips}}}}",
    "\\textbf": lambda a: f"\\boxed{{\\textbf{{{a.text}}}}}",
    "bold": lambda a: f"#### **{a.text}**",
    "code": lambda a: f"#### `{a.text}`",
    "in parentheses": lambda a: f"#### ({a.text})" if a.whole is not None and a.whole >= 0 else None,
    "in braces": lambda a: f"\\boxed{{{{{a.text}}}}}",
    "mathematics": lambda a: f"#### ${a.text}$",
    "mathematics, \\(": lambda a: f"The answer is \\({a.text}\\).",
    "named": lambda a: f"\\boxed{{x = {a.text}}}",
    "named in words": lambda a: f"#### Total: {a.text}",
    "quotient": lambda a: "#### {}/{}".format(*_multiple(a, 2)),
    "\\frac": lambda a: "\\boxed{{\\frac{{{}}}{{{}}}}}".format(*_multiple(a, 3)),
    "\\dfrac, signed": lambda a: "\\boxed{{\\dfrac{{{}}}{{{}}}}}".format(*_multiple(a, -1)),
    "quotient worked out": lambda a: "The answer is {}/{} = {}.".format(*_multiple(a, 2), a.text),
    "e notation": lambda a: _power(a, "#### {}e{}"),
    "scientific notation": lambda a: _power(a, "\\boxed{{{} \\times 10^{{{}}}}}"),
    "scientific notation, \\cdot": lambda a: _power(a, "The answer is ${}\\cdot10^{{{}}}$"),
    "mixed number": _mixed,
    "full stop": lambda a: f"#### {a.text}.",
    "prose after": lambda a: f"#### {a.text}\nI hope this helps",
    "worked out before": lambda a: f"{a.write(a.number - 1)} + 1 = {a.text}\n#### {a.text}",
}


def _swapped(answer: Answer) -> str | None:
    text = answer.text
    for place in range(len(text) - 1, 0, -1):
        if text[place].isdigit() and text[place - 1].isdigit() and text[place] != text[place - 1]:
            return f"#### {text[: place - 1]}{text[place]}{text[place - 1]}{text[place + 1 :]}"
    return None


def _first_digit(answer: Answer) -> str:
    place = next(i for i, character in enumerate(answer.text) if character.isdigit())
    return f"#### {answer.text[:place]}{(int(answer.text[place]) + 1) % 10}{answer.text[place + 1 :]}"


def _shifted(step: Fraction | int, form: str = "#### {}") -> Spelling:
    return lambda answer: form.format(answer.write(answer.number + step))


def _scaled(factor: Fraction | int) -> Spelling:
    return lambda answer: f"#### {answer.write(answer.number * factor)}" if answer.number else None


def _both(form: str) -> Spelling:
    """{0}: the right answer, {1}: another."""
    return lambda answer: form.format(answer.text, answer.write(answer.number + 1))


def _other_convention(answer: Answer) -> str | None:
    """1.234 where 1,234 is written, and the other way round: a thousandth."""
    if answer.whole is None or not 1000 <= abs(answer.whole) < 10**6 or answer.locale.group == " ":
        return None
    return f"#### {_grouped(answer, answer.locale.decimal)}"


_WRONG_NUMBERS: dict[str, Spelling] = {
    "one more": _shifted(1),
    "one less": _shifted(-1, "The answer is {}."),
    "a half more": _shifted(Fraction(1, 2), "\\boxed{{{}}}"),
    "a millionth more": _shifted(Fraction(1, 10**6)),
    "ten more, boxed": _shifted(10, "\\boxed{{{}}}"),
    "a hundred less, in a tag": _shifted(-100, "<answer>{}</answer>"),
    "negated": lambda a: f"#### {a.write(-a.number)}" if a.number else None,
    "tenfold": _scaled(10),
    "a tenth": _scaled(Fraction(1, 10)),
    "doubled": _scaled(2),
    "a digit more": lambda a: f"#### {a.text}{a.locale.decimal if a.whole is not None else ''}1",
    "digits swapped": _swapped,
    "another first digit": _first_digit,
    "the first digit missing": lambda a: f"#### {a.text[1:]}" if a.whole is not None and a.whole > 9 else None,
    "of another country": _other_convention,
    "groups of the wrong size": lambda a: (
        f"#### {a.text[:2]}{a.locale.group}{a.text[2:]}"
        if a.whole is not None and a.whole > 1000 and len(a.text) != 5
        else None
    ),
    "power of ten too large": lambda a: f"#### {a.text}e1" if a.number else None,
    "reciprocal": lambda a: f"#### 1/{a.text}" if a.whole is not None and a.whole > 1 else None,
    "percent": lambda a: f"\\boxed{{{a.text}\\%}}" if a.number else None,
    "thousands": lambda a: f"#### {a.text} thousand" if a.number else None,
    "dozens": lambda a: f"The answer is {a.text} dozen." if a.number else None,
    "squared": lambda a: f"\\boxed{{{a.text}^2}}",
    "factorial": lambda a: f"\\boxed{{{a.text}!}}",
    "square root": lambda a: f"\\boxed{{\\sqrt{{{a.text}}}}}",
    "with a variable": lambda a: f"\\boxed{{{a.text}x}}",
    "or": _both("#### {} or {}"),
    "or, the right one last": _both("The answer is {1} or {0}."),
    "or in words": lambda a: f"#### {a.text} or twelve and a half",
    "or, in parentheses": _both("\\boxed{{{}}} (or {})"),
    "maybe": _both("\\boxed{{{}}}, or maybe {}"),
    "o": _both("La respuesta es {} o {}."),
    "list": _both("#### {}, {}"),
    "list, the right one last": _both("\\boxed{{{1}, {0}}}"),
    "list with and": _both("The answer is {} and {}."),
    "list with slash": _both("#### {} / {} / 3"),
    "range": _both("#### {}-{}"),
    "range in words": _both("The answer is {} to {}."),
    "interval": _both("\\boxed{{[{}; {}]}}"),
    "tuple": _both("\\boxed{{({}; {})}}"),
    "set": lambda a: f"\\boxed{{\\{{{a.text}\\}}}}",
    "set of both": _both("\\boxed{{\\{{{}; {}\\}}}}"),
    "ratio": _both("#### {}:{}"),
    "bound": lambda a: f"\\boxed{{\\geq {a.text}}}",
    "bound in words": lambda a: f"The answer is at least {a.text}.",
    "or more": lambda a: f"#### {a.text} or more",
    "plus or minus": lambda a: f"\\boxed{{\\pm {a.text}}}",
    "and a half": lambda a: f"#### {a.text} and a half",
    "question mark": lambda a: f"#### {a.text}?",
    "two boxes": _both("\\boxed{{{}}} \\boxed{{{}}}"),
    "two boxes, the right one last": _both("\\boxed{{{1}}} \\boxed{{{0}}}"),
    "box and phrase": _both("The answer is {}. \\boxed{{{}}}"),
    "hashes and box": _both("\\boxed{{{}}}\n#### {}"),
    "two hashes": _both("#### {}\n#### {}"),
    "two tags": _both("<answer>{}</answer><answer>{}</answer>"),
    "taken back": _both("\\boxed{{{}}}. Wait, that is wrong. The answer is {}."),
    "a box in the box": _both("\\boxed{{\\boxed{{{}}} \\text{{ or }} {}}}"),
    "many answers": lambda a: " ".join(f"\\boxed{{{a.write(a.number + i)}}}" for i in range(-3, 4)),
    "chain of different numbers": _both("#### {1} = {0}"),
    "chain with a wrong sum": lambda a: f"\\boxed{{{a.text} + 1 = {a.text}}}",
    "unevaluated sum": lambda a: f"\\boxed{{{a.write(a.number - 1)} + 1}}",
    "unevaluated product": lambda a: f"\\boxed{{2 \\cdot {a.write(a.number / 2)}}}",
    "denied": lambda a: f"The answer is not {a.text}.",
    "digits of another script": lambda a: f"#### {a.text.translate(_OTHER_DIGITS)}",
    "hexadecimal": lambda a: f"#### {hex(a.whole)}" if a.whole is not None else None,
    "other unit": lambda a: f"#### {a.text} {'kg' if a.unit != 'kg' else 'm'}" if a.unit else None,
    "right in the think block only": _both("<think>\\boxed{{{}}}</think>\\boxed{{{}}}"),
}
#: These hold for symbols as well as for numbers: the right answer is there, but not stated as the final one.
_UNSTATED = {
    "not marked": "I think that it might be {}",
    "nothing else": "{}",
    "in the think block": "<think>The answer is {0}. \\boxed{{{0}}}</think>",
    "think block not closed": "<think>The answer is \\boxed{{{}}}",
    "box not closed": "So we get \\boxed{{{}",
    "tag not closed": "So we get <answer>{}",
    "two hashes only": "## {}",
    "before a new response": "\\boxed{{{}}}\n### Response\nI am not sure.",
    "beside an unknown": "\\boxed{{{}, ?}}",
}

#: Names of all kinds.
RIGHT_KINDS: tuple[str, ...] = (*_STATED, *_RIGHT_NUMBERS)
WRONG_KINDS: tuple[str, ...] = (*_UNSTATED, *_WRONG_NUMBERS)


@lru_cache(maxsize=256)
def _answer(reference: str, locale: str) -> Answer:
    return Answer.of(reference, locale)


def right_spellings(reference: str, locale: str = "en") -> Iterator[tuple[str, str]]:
    """(kind, completion) for each kind that applies: completions that state `reference` as their final answer.

    Raises ValueError when there is no such locale.
    """
    yield from _spell(reference, locale, _STATED, _RIGHT_NUMBERS)


def wrong_spellings(reference: str, locale: str = "en") -> Iterator[tuple[str, str]]:
    """(kind, completion) for each kind that applies: completions that deserve no score, many a near miss or a cheat.

    Raises ValueError when there is no such locale.
    """
    yield from _spell(reference, locale, _UNSTATED, _WRONG_NUMBERS)


def _spell(
    reference: str, locale: str, stated: dict[str, str], numbers: dict[str, Spelling]
) -> Iterator[tuple[str, str]]:
    answer = _answer(reference, locale)
    for kind, form in stated.items():
        yield kind, form.format(answer.text)
    if answer.value is None:
        return
    for kind, spell in numbers.items():
        completion = spell(answer)
        if completion is not None:
            yield kind, completion
