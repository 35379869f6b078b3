r"""Are two expressions the same? Decided here where that can be done cheaply and surely; None says that it cannot.

An expression is evaluated in the field of integers modulo a large prime, its variables at points by chance. What is
no field operation (sin, roots, logarithms, pi) becomes an element by chance that depends on the values it is made of,
so that `sin(pi x/5)` is the same element however its argument is written. Equal at such points: equal, except with a
probability of about degree/2^61 for each point (Schwartz 1980, Zippel 1979). Different, where nothing but field
operations took part: different. What is left is refuted by plain floating point where the values are far apart.
The points are derived from the two expressions, so that verdicts can be replayed and points not aimed at.
"""

from __future__ import annotations

import cmath
import functools
import hashlib
import math
import operator
from collections.abc import Callable
from fractions import Fraction

from rlvr.rewards.expressions import Node, variables

PRIME = 2**61 - 1
_POINTS = 2
_MAX_BITS = 4096
_MAX_EXPONENT = 10**6
_MAX_FACTORIAL = 3000
#: \log without a base means 10 to some and e to others, so only what holds in any base holds: neither is this one.
LOG_BASE = 7.3
#: Floats refute at this relative distance; rounding of a few hundred operations stays far below it.
_FAR_APART = 1e-6
_REAL_POINTS = (0.7310585786300049, 1.618033988749895, 2.6180339887, -0.5671432904, -1.4142135623)
_FLOAT_CONSTANTS = {"pi": math.pi, "e": math.e, "i": 1j}


_EXACT: dict[str, Callable[[Fraction], Fraction | int]] = {"abs": abs, "floor": math.floor, "ceil": math.ceil}


class TooExpensive(ValueError):
    """Evaluating the expression would cost too much: towers of powers, factorials of large numbers."""


def exact(node: Node) -> Fraction | None:
    """The value of an expression of rational numbers alone; None when it is anything else. Raises TooExpensive."""
    kind = node[0]
    if kind == "num":
        value: Fraction = node[1]
        return value
    if kind == "fn" and node[1] in _EXACT:
        inner = exact(node[2])
        return None if inner is None else Fraction(_EXACT[node[1]](inner))
    if kind in ("var", "const", "fn"):
        return None
    parts = [exact(part) for part in node[1:]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if kind == "fact":
        if known[0].denominator != 1 or known[0] < 0:
            return None
        if known[0] > _MAX_FACTORIAL:
            raise TooExpensive("the factorial of a large number")
        result = Fraction(math.factorial(int(known[0])))
        return result if result.numerator.bit_length() <= _MAX_BITS * 8 else None
    if kind == "pow":
        return _exact_power(known[0], known[1])
    if kind == "neg":
        result = -known[0]
    elif kind == "div":
        if known[1] == 0:
            return None
        result = known[0] / known[1]
    else:
        result = known[0]
        for part in known[1:]:
            result = result + part if kind == "add" else result * part
    _check(result)
    return result


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return None
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and abs(exponent) * bits > _MAX_BITS * 8:
        raise TooExpensive("a power too large to be written out")
    if base == 0 and exponent < 0:
        return None
    return base ** int(exponent)


def _check(value: Fraction) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS * 16:
        raise TooExpensive("a number too large to be written out")


class _Undefined(ArithmeticError):
    """A division by zero at this point."""


class _Point:
    """One point of the field; remembers whether anything but field operations took part."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self.opaque = False

    def _element(self, *key: object) -> int:
        digest = hashlib.blake2b(repr(key).encode(), key=self._seed, digest_size=16).digest()
        return int.from_bytes(digest, "big") % PRIME

    def value(self, node: Node) -> int:
        kind = node[0]
        if kind == "num":
            bottom = node[1].denominator % PRIME
            if not bottom:
                raise _Undefined
            return int(node[1].numerator * pow(bottom, -1, PRIME) % PRIME)
        if kind == "var":
            return self._element("var", node[1])
        if kind == "const":
            self.opaque = self.opaque or node[1] not in ("pi", "e")
            return self._element("const", node[1])
        if kind == "pow":
            return self._power(node[1], node[2])
        if kind == "fact":
            return self._factorial(node[1])
        parts = [self.value(part) for part in node[1:] if isinstance(part, tuple)]
        if kind == "neg":
            return -parts[0] % PRIME
        if kind == "add":
            return sum(parts) % PRIME
        if kind == "mul":
            product = 1
            for part in parts:
                product = product * part % PRIME
            return product
        if kind == "div":
            if not parts[1]:
                raise _Undefined
            return parts[0] * pow(parts[1], -1, PRIME) % PRIME
        self.opaque = True
        return self._element(kind, node[1], *parts)

    def _power(self, base: Node, exponent: Node) -> int:
        times = exact(exponent)
        if times is not None and times.denominator == 1:
            if abs(times) > _MAX_EXPONENT:
                raise TooExpensive("an exponent too large")
            root = self.value(base)
            if not root and times < 0:
                raise _Undefined
            return pow(root, int(times), PRIME)
        self.opaque = True
        return self._element("pow", self.value(base), self.value(exponent))

    def _factorial(self, inner: Node) -> int:
        number = exact(inner)
        if number is not None and number.denominator == 1 and number >= 0:
            if number > _MAX_FACTORIAL:
                raise TooExpensive("the factorial of a large number")
            product = 1
            for factor in range(2, int(number) + 1):
                product = product * factor % PRIME
            return product
        self.opaque = True
        return self._element("fact", self.value(inner))


def same(one: Node, other: Node) -> bool | None:
    """Whether two expressions are equal; None: not decided here. Raises TooExpensive."""
    if one == other:
        return True
    opaque = decided = False
    for number in range(4 * _POINTS):
        point = _point(one, other, number)
        try:
            equal = point.value(one) == point.value(other)
        except _Undefined:
            continue
        opaque = opaque or point.opaque
        if not equal:
            return False if not point.opaque else _far_apart(one, other)
        decided = True
        if number >= _POINTS - 1:
            return True
    return True if decided and not opaque else None


def proportional(one: Node, other: Node) -> bool | None:
    """Whether two expressions have a constant ratio that is not 0: then one = 0 and other = 0 say the same.

    None: not decided here. Raises TooExpensive.
    """
    ratios: set[int] = set()
    for number in range(6):
        point = _point(one, other, number)
        try:
            top, bottom = point.value(one), point.value(other)
        except _Undefined:
            continue
        if point.opaque and not (top and bottom):
            return None
        if not top or not bottom:
            return not top and not bottom
        ratios.add(top * pow(bottom, -1, PRIME) % PRIME)
        if len(ratios) > 1:
            return None if point.opaque else False
        if number >= 2:
            return True
    return None


def _point(one: Node, other: Node, number: int) -> _Point:
    seed = hashlib.blake2b(repr((one, other, number)).encode(), digest_size=32).digest()
    return _Point(seed)


def _far_apart(one: Node, other: Node) -> bool | None:
    """False when floating point shows that they differ, else None."""
    names = sorted(variables(one) | variables(other))
    for number in range(len(_REAL_POINTS)):
        point = {
            name: _REAL_POINTS[(number + place) % len(_REAL_POINTS)] + 0.01 * place for place, name in enumerate(names)
        }
        try:
            left, right = float_value(one, point), float_value(other, point)
        except (ArithmeticError, ValueError, TypeError):
            continue
        size = max(abs(left), abs(right))
        if not math.isfinite(size) or not 1e-9 < size < 1e12:
            continue
        if abs(left.imag) + abs(right.imag) > 1e-9 * size:
            continue  # the branches of complex functions are none of the reals' business
        if abs(left - right) > _FAR_APART * size:
            return False
        if not names:
            break
    return None


def float_value(node: Node, point: dict[str, float]) -> complex:
    """The value of an expression in floating point. Raises ArithmeticError, ValueError or TypeError."""
    kind = node[0]
    if kind == "num":
        return complex(float(node[1]))
    if kind == "var":
        return complex(point[node[1]])
    if kind == "const":
        return complex(_FLOAT_CONSTANTS.get(node[1], math.inf))
    if kind == "fn":
        return _function(node[1], float_value(node[2], point))
    parts = [float_value(part, point) for part in node[1:]]
    if kind == "neg":
        return -parts[0]
    if kind == "add":
        if max(map(abs, parts)) > 1e6 * abs(sum(parts)):
            raise ArithmeticError("cancellation")
        return sum(parts)
    if kind == "mul":
        return functools.reduce(operator.mul, parts)
    if kind == "div":
        return parts[0] / parts[1]
    if kind == "pow":
        return _real_root(parts[0], parts[1])
    raise ValueError(kind)


def _real_root(base: complex, exponent: complex) -> complex:
    """A power; of a negative number to an odd root the real one, as in school."""
    if base.imag == 0 and base.real < 0 and exponent.imag == 0:
        inverse = 1 / exponent.real if exponent.real else 0.0
        if abs(inverse - round(inverse)) < 1e-12 and round(inverse) % 2:
            return complex(-((-base.real) ** exponent.real))
    return base**exponent


_COMPLEX: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "sinh": cmath.sinh,
    "cosh": cmath.cosh,
    "tanh": cmath.tanh,
    "ln": cmath.log,
    "log": lambda value: cmath.log(value, LOG_BASE),
    "abs": lambda value: complex(abs(value)),
}
_RECIPROCAL: dict[str, Callable[[complex], complex]] = {"cot": cmath.tan, "sec": cmath.cos, "csc": cmath.sin}


def _function(name: str, value: complex) -> complex:
    if name in _RECIPROCAL:
        return 1 / _RECIPROCAL[name](value)
    if name in ("floor", "ceil"):
        raise ValueError(name)  # not continuous: nearby values refute nothing
    return _COMPLEX[name](value)
