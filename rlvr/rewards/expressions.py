r"""Reading a mathematical expression, in LaTeX or as typed: `\frac{a+1}{2}`, `7*sin(pi*x/5)+1`, `2\sqrt{2}`.

The result is a small tree of tuples; nothing is computed, and length, depth and number of signs are limited, so no
input is expensive. What could be read in two ways (1/2x) is refused. Must not know how expressions are compared.

    ("num", Fraction)  ("var", "x_1")  ("const", "pi" | "e" | "i" | "oo")  ("add" | "mul", one, other, ...)
    ("neg", one)  ("div", top, bottom)  ("pow", base, exponent)  ("fact", one)  ("fn", name, argument)
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from rlvr.rewards.notation import GROUP

Node = tuple[Any, ...]

MAX_LENGTH = 1000
MAX_TOKENS = 400
MAX_DEPTH = 30
MAX_DIGITS = 300

_FUNCTION_NAMES = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp abs sqrt floor ceil"
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau "
    "phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log10"}
_GREEK = frozenset(_GREEK_NAMES.split())
_CONSTANTS = {"pi": "pi", "infty": "oo", "infinity": "oo"}

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_NORMAL = [
    (re.compile(r"\\(?:left|right|displaystyle|textstyle|limits|[bB]igg?[lr]?)(?![A-Za-z])"), ""),
    (re.compile(r"(?<!\\)\\(?:[,;:!\s]|q?quad(?![A-Za-z]))|~|\s+"), " "),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])|[\u00d7\u00b7\u22c5\u2217]|\*(?!\*)(?<!\*\*)"), "*"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile("[\u2212\u2013]"), "-"),
    (
        re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|mathsf|operatorname)\*?\s*\{([A-Za-z0-9 ]*)\}"),
        r" \1 ",
    ),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\[lr]?vert(?![A-Za-z])"), "|"),
    (re.compile("π"), r"\\pi "),
    (re.compile("∞"), r"\\infty "),
    (re.compile("√"), r"\\sqrt "),
    (re.compile("≤|\\\\leq?q?(?:slant)?(?![A-Za-z])|<="), r"\\le "),
    (re.compile("≥|\\\\geq?q?(?:slant)?(?![A-Za-z])|>="), r"\\ge "),
    (re.compile(r"≠|\\neq?(?![A-Za-z])|!="), r"\\ne "),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
]
_TOKEN = re.compile(
    rf"""\s*(?:(?P<num>[0-9]{{1,3}}(?:{GROUP}[0-9]{{3}})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
    | (?P<cmd>\\[A-Za-z]+) | (?P<word>[A-Za-z]+) | (?P<sign>[-+*/^_(){{}}\[\]|!%]))""",
    re.VERBOSE,
)
_SUBSCRIPT = re.compile(r"_\s*(?:\{\s*([A-Za-z0-9]{1,8})\s*\}|([A-Za-z0-9]))")


class Unreadable(ValueError):
    """The text is no expression that we read; the message says why."""


def normal(text: str) -> str:
    """One spelling for the many of LaTeX, typed text and Unicode."""
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return _SUPERSCRIPT.sub(lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text).strip()


def parse(text: str) -> Node:
    """The tree of one expression in `normal` spelling. Raises Unreadable."""
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"longer than {MAX_LENGTH} characters")
    parser = _Parser(_tokens(text))
    tree = parser.sum(0)
    if parser.kind is not None:
        raise Unreadable(f"{parser.value!r} is not expected there")
    return tree


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            if not text[place:].strip():
                break
            raise Unreadable(f"{text[place : place + 10]!r} is no part of an expression")
        kind, value = match.lastgroup or "", match[match.lastgroup or 0]
        place = match.end()
        if kind == "word":
            names = _split(value)
            tokens += [("cmd", f"\\{name}") if len(name) > 1 else ("var", name) for name in names]
        else:
            tokens.append((kind, value))
        subscript = _SUBSCRIPT.match(text, place)
        if subscript and tokens[-1][0] in ("var", "cmd") and tokens[-1][1] not in ("\\log",):
            tokens[-1] = ("var", f"{tokens[-1][1]}_{subscript[1] or subscript[2]}")
            place = subscript.end()
        if len(tokens) > MAX_TOKENS:
            raise Unreadable(f"more than {MAX_TOKENS} signs")
    return tokens


def _split(word: str) -> list[str]:
    """A run of letters as known names and single-letter variables: `xsin` is x sin. Longer prose is no expression."""
    names: list[str] = []
    rest = word
    while rest:
        known = next((rest[:size] for size in range(min(8, len(rest)), 1, -1) if _known(rest[:size])), "")
        names.append(known or rest[0])
        rest = rest[len(names[-1]) :]
    if sum(len(name) == 1 for name in names) > 3:
        raise Unreadable(f"{word!r} is a word")
    return names


def _known(name: str) -> bool:
    return name in FUNCTIONS or name in _ALIASES or name in ("pi", "infinity", "frac")


class _Parser:
    """Recursive descent. `depth` counts what is open."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def kind(self) -> str | None:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else None

    @property
    def value(self) -> str:
        return self._tokens[self._place][1] if self._place < len(self._tokens) else "the end"

    def _take(self, *values: str) -> bool:
        if self.kind is not None and self.value in values:
            self._place += 1
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._take(value):
            raise Unreadable(f"{self.value!r} where {value!r} is missing")

    def sum(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        terms = [self._term(depth)]
        while self.value in ("+", "-"):
            negative = self._take("-")
            if not negative:
                self._take("+")
            term = self._term(depth)
            terms.append(("neg", term) if negative else term)
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def _term(self, depth: int) -> Node:
        result = self._unary(depth)
        typed_quotient = False
        while True:
            if self._take("*"):
                result, typed_quotient = ("mul", result, self._unary(depth)), False
            elif self._take("/"):
                result, typed_quotient = ("div", result, self._unary(depth)), True
            elif self._starts_factor():
                if typed_quotient:
                    raise Unreadable("a/bc can be read in two ways; write parentheses")
                if self.kind == "num" and result[0] == "num":
                    raise Unreadable("two numbers side by side")
                by_frac = self.value == "\\frac"  # 1\frac12 is a mixed number, 27(1/3) is a product
                factor = self._power(depth)
                mixed = by_frac and result[0] == "num" and _is_plain_fraction(factor) and result[1].denominator == 1
                result = ("add", result, factor) if mixed else ("mul", result, factor)
            else:
                return result

    def _starts_factor(self) -> bool:
        if self.kind in ("num", "var"):
            return True
        return (self.kind == "cmd" and self.value not in ("\\rfloor", "\\rceil")) or self.value in ("(", "{", "[")

    def _unary(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        if self._take("-"):
            return ("neg", self._unary(depth + 1))
        if self._take("+"):
            return self._unary(depth + 1)
        return self._power(depth)

    def _power(self, depth: int) -> Node:
        base = self._postfix(self._atom(depth))
        if self._take("^"):
            base = ("pow", base, self._exponent(depth + 1))
        return self._postfix(base)

    def _postfix(self, base: Node) -> Node:
        while self.value in ("!", "%"):
            base = ("fact", base) if self._take("!") else ("div", base, ("num", Fraction(100)))
            self._take("%")
        return base

    def _exponent(self, depth: int) -> Node:
        """A group, or a signed atom; powers group from the right."""
        if self._take("-"):
            return ("neg", self._exponent(depth + 1))
        return self._power(depth)

    def _group(self, closing: str, depth: int) -> Node:
        inner = self.sum(depth + 1)
        self._expect(closing)
        return inner

    def _atom(self, depth: int) -> Node:
        kind, value = self.kind, self.value
        if depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        if kind is None:
            raise Unreadable("it breaks off")
        self._place += 1
        if kind == "num":
            digits = value.replace(GROUP, "")
            if len(digits) > MAX_DIGITS:
                raise Unreadable(f"a number of more than {MAX_DIGITS} digits")
            return ("num", Fraction(digits))
        if kind == "var":
            return ("const", value) if value in ("e", "i") else ("var", value)
        if kind == "cmd":
            return self._command(value[1:], depth)
        closing = {"(": ")", "{": "}", "[": "]", "|": "|"}.get(value)
        if closing is None:
            raise Unreadable(f"{value!r} is not expected there")
        inner = self._group(closing, depth)
        return ("fn", "abs", inner) if value == "|" else inner

    def _command(self, name: str, depth: int) -> Node:
        name = _ALIASES.get(name, name)
        if name in _CONSTANTS:
            return ("const", _CONSTANTS[name])
        if name in _GREEK:
            return ("var", name)
        if name == "frac":
            top = self._argument(depth)
            return ("div", top, self._argument(depth))
        if name == "binom":
            top, bottom = self._argument(depth), self._argument(depth)
            rest = ("add", top, ("neg", bottom))
            return ("div", ("fact", top), ("mul", ("fact", bottom), ("fact", rest)))
        if name == "sqrt":
            index: Node = ("num", Fraction(2))
            if self._take("["):
                index = self._group("]", depth)
            return ("pow", self._argument(depth), ("div", ("num", Fraction(1)), index))
        if name in ("lfloor", "lceil"):
            inner = self.sum(depth + 1)
            self._expect("\\r" + name[1:])
            return ("fn", "floor" if name == "lfloor" else "ceil", inner)
        if name not in FUNCTIONS and name != "log10":
            raise Unreadable(f"\\{name} is not one of the commands we read")
        return self._function(name, depth)

    def _function(self, name: str, depth: int) -> Node:
        base: Node | None = None
        if name == "log10":
            name, base = "log", ("num", Fraction(10))
        elif name == "log" and self._take("_"):
            base = self._argument(depth)
        power = self._exponent(depth + 1) if self._take("^") else None
        if power is not None and power[0] == "neg":
            raise Unreadable(f"{name}^-1 can be read in two ways")
        argument = self._group(")", depth) if self._take("(") else self._operand(depth)
        node: Node
        if name == "exp":
            node = ("pow", ("const", "e"), argument)
        elif base is not None:
            node = ("div", ("fn", "ln", argument), ("fn", "ln", base))
        else:
            node = ("fn", name, argument)
        return node if power is None else ("pow", node, power)

    def _operand(self, depth: int) -> Node:
        """What a function without parentheses applies to: the factors up to the next sign or function."""
        if self.value == "-":
            raise Unreadable("a function of a sign")
        result = self._power(depth + 1)
        while self.kind in ("num", "var") or (
            self.kind == "cmd" and self.value[1:] in _CONSTANTS | dict.fromkeys(_GREEK)
        ):
            result = ("mul", result, self._power(depth + 1))
        return result

    def _argument(self, depth: int) -> Node:
        r"""A group, or as LaTeX has it one sign: \frac12 is a half, \sqrt2x is \sqrt{2}x."""
        if self._take("{"):
            return self._group("}", depth)
        if self._take("("):
            return self._group(")", depth)
        kind, value = self.kind, self.value
        if kind == "num" and len(value) > 1:
            self._tokens[self._place] = ("num", value[1:])
            if not value.isdigit():
                raise Unreadable(f"{value!r} without braces")
            return ("num", Fraction(value[0]))
        return self._atom(depth + 1)


def _is_plain_fraction(node: Node) -> bool:
    return node[0] == "div" and all(part[0] == "num" and part[1].denominator == 1 for part in node[1:])


def to_plain(node: Node) -> list[Any]:
    """A tree as JSON-able lists; numbers as [numerator, denominator] in text."""
    if node[0] == "num":
        return ["num", str(node[1].numerator), str(node[1].denominator)]
    return [to_plain(part) if isinstance(part, tuple) else part for part in node]


def variables(node: Node) -> frozenset[str]:
    """Names of the variables in a tree."""
    if node[0] == "var":
        return frozenset((node[1],))
    return frozenset().union(*(variables(part) for part in node[1:] if isinstance(part, tuple)))


def size(node: Node) -> int:
    """Number of nodes."""
    return 1 + sum(size(part) for part in node[1:] if isinstance(part, tuple))
