r"""Answers that are more than one expression: lists, tuples, sets, intervals, inequalities, equations, ratios.

`read` takes an answer apart down to its leaves, each of which is one number or expression; a single leaf is an answer
too. Linear in the length of the text for a given nesting. Must not know how leaves are compared (see `matching`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from rlvr.rewards.expressions import MAX_LENGTH, Node, Unreadable, normal, parse
from rlvr.rewards.locale import ENGLISH, Locale
from rlvr.rewards.numbers import NotANumber, Number
from rlvr.rewards.units import ENGLISH as ENGLISH_WORDS

MAX_ITEMS = 50
_MAX_DEPTH = 5
#: Item of a list that says "and so on".
_DOTS = re.compile(r"\\(?:[lc]?dots|ldots|dotsc)|\.\.\.|…")
_WORDS = r"\s*,?\s+(?:and|or)\s+"
#: Spanish y is a variable beside a sign: x - y + 1.
_SPANISH_WORDS = r"(?<![-+*/=<>^])\s+[yo]\s+(?![-+*/=<>^])"
_RELATION = re.compile(r"\\le(?![A-Za-z])|\\ge(?![A-Za-z])|\\ne(?![A-Za-z])|\\approx(?![A-Za-z])|[<>=]")
_SIGNS = {"\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\approx": "=", "<": "<", ">": ">", "=": "="}
_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
#: What stands left of "=" as the name of a value: x, x_1, f(x), A', or a few words.
_NAME = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?'?(?:\([a-z]\))?|\\[a-z]+(?:_\{?\w+\}?)?|[A-Za-z]{2,}(?: [A-Za-z]+){0,4}")
_EQUATION = re.compile(r"[\s$\\(\[]*[A-Za-z](?:_\{?\w+\}?)?\s*=")
#: A unit behind an expression: 12\sqrt{3}\text{ cm}^2.
_UNIT = re.compile(
    r"\\(?:text|mathrm|mbox)\s*\{\s*(?:(square|cubic|sq\.?)\s+)?([A-Za-z]+)\.?\s*\}"
    r"(?:\s*\^\s*\{?\s*([23])\s*\}?)?[\s$.]*$"
)
_IN = re.compile(r"^\s*([A-Za-z])\s*(?:\\in(?![A-Za-z])|∈)\s*")
_CUP = re.compile("\\\\cup(?![A-Za-z])|\u222a")
_MATRIX = re.compile(r"\\begin\s*\{([pbBvV]?)(?:small)?matrix\}(.*)\\end\s*\{\1(?:small)?matrix\}", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_EMPTY = re.compile(r"\\(?:emptyset|varnothing)|∅")
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|±")
_TEXT = re.compile(r"[A-Za-z][A-Za-z' -]{0,60}")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One number or expression."""

    text: str
    number: Number | None
    tree: Node | None
    unit: str = ""
    """Of an expression; a number has its own."""


@dataclass(frozen=True, slots=True)
class Items:
    """Several answers. kind: list (bare), tuple, set, ratio, union (of intervals), matrix
    (of rows), row."""

    kind: str
    items: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """low and high: None is infinite. name: the variable of an inequality, "" for brackets."""

    low: Leaf | None
    low_closed: bool
    high: Leaf | None
    high_closed: bool
    name: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """An equation, or a relation that is no interval."""

    sign: str
    left: Answer
    right: Answer
    name: str = ""
    """Of an equation whose left side only names its value."""


@dataclass(frozen=True, slots=True)
class Text:
    """An answer in words or in notation that is not taken apart: only the same text is the same."""

    text: str


Answer = Leaf | Items | Interval | Relation | Text
ReadNumber = Callable[[str], Number]


def read(text: str, number: ReadNumber, locale: Locale = ENGLISH) -> Answer:
    """What an answer says. `number` reads one number, and raises NotANumber. Raises Unreadable."""
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"longer than {MAX_LENGTH} characters")
    return _Reader(number, locale).answer(text, 0)


def plain_text(text: str) -> Text:
    """An answer as nothing but text: spaces, case of words, mathematics' delimiters and a full stop do not count."""
    bare = normal(text.replace("$", " ")).strip(" .*")
    if bare.startswith("(") and bare.endswith(")") and len(bare) == 3:
        bare = bare[1]
    bare = bare.casefold() if _TEXT.fullmatch(bare) and len(bare) > 1 else bare
    return Text(re.sub(r"\s+", "" if "\\" in bare else " ", bare))


@dataclass(frozen=True)
class _Reader:
    number: ReadNumber
    locale: Locale

    def answer(self, text: str, depth: int) -> Answer:
        if depth > _MAX_DEPTH:
            raise Unreadable(f"nested deeper than {_MAX_DEPTH}")
        if not _EQUATION.match(text):  # x = 5 and y = 5 may be lines
            try:
                number = self.number(text)
            except NotANumber:
                pass
            else:
                return Leaf(text.strip(), number, ("num", number.value))
        if depth == 0:
            text, unit = _without_unit(text)
            if unit:
                found = self.answer(text, depth)
                return replace(found, unit=unit) if isinstance(found, Leaf) else found
            text = normal(_undelimited(text)).strip(" .*:")
            while (box := _BOX.match(text)) and _one_pair(text[box.end() - 1 :]):
                text = text[box.end() : -1].strip()
        text = text.strip()
        if not text:
            raise Unreadable("empty")
        if _DOTS.fullmatch(text) or _EMPTY.fullmatch(text):
            return Text("..." if _DOTS.fullmatch(text) else "{}")
        if inside := _IN.match(text):
            text = text[inside.end() :]
        for split in (self._matrix, self._union, self._list, self._relation, self._bracketed, self._ratio):
            structure = split(text, depth)
            if structure is not None:
                return structure
        return self._leaf(text)

    def _leaf(self, text: str) -> Answer:
        text = text.strip()
        if "\\begin" in text:
            raise Unreadable("an environment within an expression")
        if _PLUS_MINUS.search(text):
            sides = [_PLUS_MINUS.sub(sign, text) for sign in "+-"]
            return Items("set", tuple(self._leaf(side) for side in sides))
        if not text.replace("-", "").strip():
            raise Unreadable("empty")
        try:
            number = self.number(text)
        except NotANumber:
            return Leaf(text, None, parse(self.locale.to_english(text)))
        return Leaf(text, number, ("num", number.value))

    def _matrix(self, text: str, depth: int) -> Answer | None:
        match = _MATRIX.fullmatch(text)
        if match is None:
            return None
        rows = [row for row in match[2].split("\\\\") if row.strip()]
        if not rows or sum(row.count("&") + 1 for row in rows) > MAX_ITEMS:
            raise Unreadable("an empty or a very large matrix")
        read = [Items("row", tuple(self._leaf(cell) for cell in row.split("&"))) for row in rows]
        return Items(f"matrix {match[1]}", tuple(read))

    def _union(self, text: str, depth: int) -> Answer | None:
        parts = [part for part in _CUP.split(text)]
        if len(parts) == 1 and _RELATION.search(text) and "=" not in text:
            parts = re.split(r"\s+or\s+|\s+o\s+", text)
        if not 1 < len(parts) <= MAX_ITEMS:
            return None
        return Items("union", tuple(_as_interval(self.answer(part, depth + 1)) for part in parts))

    def _list(self, text: str, depth: int) -> Answer | None:
        items = _split(text, self._separators)
        if len(items) == 1:
            return None
        if len(items) > MAX_ITEMS:
            raise Unreadable(f"more than {MAX_ITEMS} items")
        name, sign, first = items[0].partition("=")  # n = 2, 3, 4: the name is that of all
        if sign and _NAME.fullmatch(name.strip()) and not any("=" in item for item in items[1:]):
            items[0] = first
        return Items("list", tuple(_value(self.answer(item, depth + 1)) for item in items))

    @property
    def _separators(self) -> str:
        """What stands between the items of a list: commas, unless they are decimal, semicolons, and words."""
        commas = r";|,(?=\s)" if self.locale.decimal == "," else r"[,;]"
        words = f"{_WORDS}|{_SPANISH_WORDS}" if self.locale.language == "es" else _WORDS
        return f"{words}|{commas}"

    def _relation(self, text: str, depth: int) -> Answer | None:
        signs = [(match.start(), match.end(), _SIGNS[match[0]]) for match in _RELATION.finditer(text)]
        if not signs:
            return None
        if len(signs) > 2:
            raise Unreadable("a chain of relations")
        starts = [0, *(end for _, end, _ in signs)]
        ends = [*(start for start, _, _ in signs), len(text)]
        parts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if len(signs) == 2:
            return self._between(parts, [sign for _, _, sign in signs])
        sign = signs[0][2]
        if sign == "=":
            named = parts[0] if _NAME.fullmatch(parts[0]) else ""
            if not parts[0]:
                return self.answer(parts[1], depth + 1)
            if named and not _is_variable(named):
                return self.answer(parts[1], depth + 1)  # words: only a label
            left = Text(named) if "(" in named else self._leaf(parts[0])
            return Relation("=", left, self.answer(parts[1], depth + 1), named)
        left, right = self._leaf(parts[0]), self._leaf(parts[1])
        if sign in _MIRROR and isinstance(left, Leaf) and isinstance(right, Leaf):
            if _lone(left):
                return _half_line(sign, right, left.text)
            if _lone(right):
                return _half_line(_MIRROR[sign], left, right.text)
        return Relation(sign, left, right)

    def _between(self, parts: list[str], signs: list[str]) -> Answer:
        leaves = [leaf for leaf in (self._leaf(part) for part in parts) if isinstance(leaf, Leaf)]
        same_way = {sign[0] for sign in signs}
        if len(leaves) != 3 or not _lone(leaves[1]) or same_way not in ({"<"}, {">"}):
            raise Unreadable("a chain of relations")
        low, middle, high = leaves
        if same_way == {">"}:
            low, high, signs = high, low, [_MIRROR[sign] for sign in reversed(signs)]
        return Interval(low, signs[0] == "<=", high, signs[1] == "<=", middle.text)

    def _bracketed(self, text: str, depth: int) -> Answer | None:
        opening = "\\{" if text.startswith("\\{") else text[:1]
        closing = "\\}" if text.endswith("\\}") else text[-1:]
        if opening not in ("(", "[", "\\{") or closing not in (")", "]", "\\}") or not _one_pair(text):
            return None
        if (opening == "\\{") != (closing == "\\}"):
            return None
        inner = text[len(opening) : len(text) - len(closing)]
        items = _split(inner, self._separators)
        if opening == "\\{":
            if not inner.strip():
                return Text("{}")
            return Items("set", tuple(_value(self.answer(item, depth + 1)) for item in items))
        if len(items) == 1:
            if opening == "(" and closing == ")" and (_RELATION.search(inner) or _one_pair(inner)):
                return self.answer(inner, depth + 1)
            return None
        if len(items) == 2 and ((opening, closing) != ("(", ")") or "\\infty" in inner):
            return Interval(self._bound(items[0]), opening == "[", self._bound(items[1]), closing == "]")
        if opening == "[" and closing == "]":
            return Items("tuple", tuple(self.answer(item, depth + 1) for item in items))
        if (opening, closing) != ("(", ")"):
            raise Unreadable("brackets that do not match")
        return Items("tuple", tuple(self.answer(item, depth + 1) for item in items))

    def _bound(self, text: str) -> Leaf | None:
        if "\\infty" in text:
            if text.replace(" ", "").lstrip("+-") != "\\infty":
                raise Unreadable(f"{text!r} is no bound")
            return None
        leaf = self._leaf(text)
        if not isinstance(leaf, Leaf):
            raise Unreadable(f"{text!r} is no bound")
        return leaf

    def _ratio(self, text: str, depth: int) -> Answer | None:
        items = _split(text, ":")
        if len(items) == 1:
            return None
        return Items("ratio", tuple(self.answer(item, depth + 1) for item in items[:MAX_ITEMS]))


def _without_unit(text: str) -> tuple[str, str]:
    """An expression and its unit, when that is one we know; units are not counted for more than to be compared."""
    match = _UNIT.search(text) if "\\" in text else None
    if match is None or not text[: match.start()].strip(" $"):
        return text, ""
    word = match[2].lower()
    name = "unit" if word in ("unit", "units") else ENGLISH_WORDS.units.get(word, "")
    power = match[3] or ({"s": "2", "c": "3"}[match[1][0]] if match[1] else "")
    return (text[: match.start()], f"{name}^{power}" if power else name) if name else (text, "")


def _undelimited(text: str) -> str:
    """Without the delimiters of mathematics and emphasis around it."""
    text = re.sub(r"\\[()\[\]]|\\\$", " ", text)
    return text.replace("$", " ").replace("**", " ")


def _split(text: str, separators: str) -> list[str]:
    """The parts between separators that stand outside of all brackets."""
    pattern = re.compile(rf"(?P<open>\\\{{|[(\[{{])|(?P<close>\\\}}|[)\]}}])|(?P<cut>{separators})")
    parts, depth, start = [], 0, 0
    for match in pattern.finditer(text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
        elif depth == 0:
            if text[start : match.start()].strip():
                parts.append(text[start : match.start()])
            start = match.end()
    if text[start:].strip():
        parts.append(text[start:])
    return parts or [text]


def _one_pair(text: str) -> bool:
    """Whether the first bracket of `text` is closed by the last one."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character in ")]}":
            return place == len(text) - 1
    return False


def _is_variable(name: str) -> bool:
    return len(name) == 1 or name.startswith("\\") or any(mark in name for mark in "_('")


def _lone(leaf: Leaf) -> bool:
    return leaf.tree is not None and leaf.tree[0] == "var"


def _half_line(sign: str, bound: Leaf, name: str) -> Interval:
    if sign[0] == "<":
        return Interval(None, False, bound, sign == "<=", name)
    return Interval(bound, sign == ">=", None, False, name)


def _value(answer: Answer) -> Answer:
    """x = 5 within a list is 5."""
    if isinstance(answer, Relation) and answer.sign == "=" and answer.name:
        return answer.right
    return answer


def _as_interval(answer: Answer) -> Answer:
    """(1, 2) within a union is an open interval."""
    if isinstance(answer, Items) and answer.kind == "tuple" and len(answer.items) == 2:
        low, high = answer.items
        if isinstance(low, Leaf) and isinstance(high, Leaf):
            return Interval(low, False, high, False)
    return answer


ZERO = Leaf("0", Number(Fraction(0)), ("num", Fraction(0)))
