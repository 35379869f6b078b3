r"""`answer_form`: is the final answer written in the form that was asked for? Says nothing about whether it is right.

A criterion of its own beside `math_answer`: (x-1)(x+1) and x^2-1 are the same answer, and only one is factored.

- reduced_fraction: a whole number, or a quotient of whole numbers in lowest terms with a denominator above 1;
- expanded: a sum of terms, no two alike, without parentheses to be multiplied out;
- factored: a product of polynomials that have no factors over the rationals but numbers and themselves, none twice
  (powers are powers), no common number left in a factor;
- simplified: nothing left to be worked out or put together: quotients of numbers in lowest terms, roots without
  square factors and not in a denominator, sums without like terms, no factor or term that is 1 or 0.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

from rlvr.records import Status, Verdict
from rlvr.rewards import symbolic
from rlvr.rewards.expressions import Node, Unreadable, normal, parse, to_plain
from rlvr.rewards.final import final_answer
from rlvr.rewards.identity import TooExpensive, exact, same
from rlvr.rewards.judgement import clip, verdict
from rlvr.rewards.registry import reward
from rlvr.rewards.sample import Sample

FORMS = ("simplified", "factored", "expanded", "reduced_fraction")
#: Roots are searched for square factors by trial, up to this number.
_MAX_RADICAND = 10**6


def check_options(form: str) -> None:
    """Raises ValueError when there is no such form, or what is needed is not installed."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    if form == "factored" and not symbolic.installed():
        raise ValueError("form=factored needs math-verify: pip install 'rlvr[math]'")


@reward("answer_form", version="1", check=check_options)
def answer_form(sample: Sample, *, form: str) -> Verdict:
    """1 if the final answer has the form, else 0.

    form: simplified, factored, expanded or reduced_fraction.
    """
    final = final_answer(sample, _read, _agree, "an expression that we can read")
    if isinstance(final, Verdict):
        return final
    try:
        problem = form_problem(final.value, form)
    except TooExpensive as error:
        problem = f"too expensive to check: {error}"
    except symbolic.Exhausted as error:
        return verdict(0.0, Status.TIMEOUT, f"checking it {error}", extracted=final.text)
    shown = clip(final.text, 120)
    if problem:
        return verdict(0.0, Status.WRONG, f"{shown} is not {form}: {problem}", extracted=final.text)
    return verdict(1.0, Status.OK, f"{shown} is {form}", extracted=final.text)


def form_problem(tree: Node, form: str) -> str:
    """Why an expression does not have the form; "" when it has. Raises TooExpensive, symbolic.Exhausted."""
    if form == "reduced_fraction":
        return _fraction_problem(tree)
    if form == "expanded":
        return _expanded_problem(tree)
    if form == "factored":
        return _factored_problem(tree)
    return _simplified_problem(tree)


def _read(text: str) -> Node:
    text = normal(text.replace("$", " ")).strip(" .*")
    name, sign, value = text.rpartition("=")
    if sign and len(name.strip()) > 4:
        raise Unreadable("an equation")
    return parse(value)


def _agree(one: Node, other: Node) -> bool:
    try:
        return bool(same(one, other))
    except TooExpensive:
        return False


def _whole(node: Node) -> int | None:
    if node[0] == "neg":
        inner = _whole(node[1])
        return None if inner is None else -inner
    return int(node[1]) if node[0] == "num" and node[1].denominator == 1 else None


def _fraction_problem(tree: Node) -> str:
    if tree[0] == "neg":
        tree = tree[1]
    if _whole(tree) is not None:
        return ""
    if tree[0] != "div":
        return "it is no quotient"
    top, bottom = _whole(tree[1]), _whole(tree[2])
    if top is None or bottom is None:
        return "it is no quotient of whole numbers"
    if bottom < 2:
        return "its denominator is below 2"
    return "" if gcd(top, bottom) == 1 else f"{top} and {bottom} have the common factor {gcd(top, bottom)}"


def _terms(tree: Node) -> list[Node]:
    if tree[0] == "add":
        return [term for part in tree[1:] for term in _terms(part)]
    return _terms(tree[1]) if tree[0] == "neg" else [tree]


def _factors(tree: Node) -> list[Node]:
    if tree[0] == "mul":
        return [factor for part in tree[1:] for factor in _factors(part)]
    return _factors(tree[1]) if tree[0] == "neg" else [tree]


def _is_sum(node: Node) -> bool:
    return node[0] == "add"


def _without_number(term: Node) -> Node:
    """A term without its number: what must differ between terms that are not alike."""
    if exact(term) is not None:
        return ("num", Fraction(1))
    if term[0] == "neg":
        return _without_number(term[1])
    if term[0] == "div" and exact(term[2]) is not None:
        return _without_number(term[1])
    rest = [factor for factor in _factors(term) if exact(factor) is None]
    return rest[0] if len(rest) == 1 else ("mul", *rest)


def _like_terms(terms: list[Node]) -> bool:
    kinds = [_without_number(term) for term in terms]
    return any(_agree(one, other) for place, one in enumerate(kinds) for other in kinds[:place])


def _expanded_problem(tree: Node) -> str:
    terms = _terms(tree)
    for term in terms:
        for factor in _factors(term[1] if term[0] == "div" else term):
            if _is_sum(factor):
                return "a sum in parentheses is left"
            if factor[0] == "pow" and factor[1][0] not in ("var", "num", "const", "fn"):
                return "a power of an expression is left"
    return "like terms are left" if _like_terms(terms) else ""


def _factored_problem(tree: Node) -> str:
    bases: list[Node] = []
    for factor in _factors(tree):
        if exact(factor) is not None:
            continue
        if factor[0] == "div":
            problem = _factored_problem(factor[1]) or _factored_problem(factor[2])
            if problem:
                return problem
            continue
        base = factor
        if factor[0] == "pow" and exact(factor[2]) is not None:
            base = factor[1]
        content = _content(base)
        if content != 1:
            return f"the number {content} can be taken out of a factor"
        answer = symbolic.irreducible(to_plain(base))
        if answer is None:
            return "a factor is no polynomial"
        if not answer:
            return "a factor can be factored further"
        bases.append(base)
    repeated = any(_agree(one, other) for place, one in enumerate(bases) for other in bases[:place])
    return "a factor is written twice instead of as a power" if repeated else ""


def _content(base: Node) -> int:
    """Common divisor of the whole coefficients of a sum."""
    if base[0] != "add":
        return 1
    common = 0
    for term in _terms(base):
        number = 1
        for factor in _factors(term):
            value = exact(factor)
            if value is not None:
                if value.denominator != 1:
                    return 1
                number *= int(value)
        common = gcd(common, number)
    return common or 1


def _simplified_problem(tree: Node) -> str:
    problem = _node_problem(tree)
    if problem:
        return problem
    return next((found for part in tree[1:] if isinstance(part, tuple) and (found := _simplified_problem(part))), "")


def _node_problem(node: Node) -> str:
    kind = node[0]
    if kind == "fact" and exact(node) is not None:
        return "a factorial is left"
    if kind == "add":
        if any(exact(term) == 0 for term in _terms(node)):
            return "a term is 0"
        return "like terms are left" if _like_terms(_terms(node)) else ""
    if kind == "mul":
        values = [value for value in map(exact, _factors(node)) if value is not None]
        if any(value in (0, 1) for value in values) or len(values) > 1:
            return "numbers are left to be multiplied"
        roots = [factor for factor in _factors(node) if _radicand(factor) is not None]
        return "roots are left to be multiplied" if len(roots) > 1 else ""
    if kind == "div":
        return _quotient_problem(node[1], node[2])
    if kind == "pow":
        radicand = _radicand(node)
        if radicand is not None:
            return "a root has a square factor" if radicand < 2 or _has_square(radicand) else ""
        exponent = exact(node[2])
        if exponent in (0, 1):
            return "a power of 0 or 1 is left"
        small = exact(node) if exact(node[1]) is not None and exponent is not None else None
        if small is not None and abs(small) < 10**6:
            return "a power of numbers is left"
    return ""


def _quotient_problem(top: Node, bottom: Node) -> str:
    numbers = []
    for side in (top, bottom):
        values = [abs(value) for value in map(exact, _factors(side)) if value is not None]
        numbers.append(values[0] if values else Fraction(_content(side)))
    if numbers[1] == 1 and exact(bottom) is not None:
        return "the denominator is 1"
    if any(value.denominator != 1 for value in numbers) or gcd(int(numbers[0]), int(numbers[1])) != 1:
        return "a quotient is not in lowest terms"
    if any(_radicand(factor) is not None for factor in _factors(bottom)):
        return "a root is in a denominator"
    shared = any(exact(one) is None and _agree(one, other) for one in _factors(top) for other in _factors(bottom))
    return "a common factor is left" if shared else ""


def _radicand(node: Node) -> int | None:
    """n of a square root of a whole number n."""
    if node[0] == "pow" and exact(node[2]) == Fraction(1, 2):
        value = exact(node[1])
        if value is not None and value.denominator == 1 and 0 <= value <= _MAX_RADICAND:
            return int(value)
    return None


def _has_square(number: int) -> bool:
    factor = 2
    while factor * factor <= number:
        if number % (factor * factor) == 0:
            return True
        factor += 1
    return False
