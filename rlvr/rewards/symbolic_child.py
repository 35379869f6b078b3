"""The child of `rlvr.rewards.symbolic`: `python -m rlvr.rewards.symbolic_child`. sympy and mpmath run here only.

Reads questions and writes answers as frames of JSON. Its owner has the deadline and kills it. Nothing of what it is
sent is ever evaluated as Python: trees are walked, LaTeX goes through math-verify's grammar.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr.rewards.child import claim_pipes, die_with_owner, read_frame, write_frame
from rlvr.rewards.identity import LOG_BASE

_POINTS = 5
#: Of the digits worked with, so many may be lost to cancellation.
_GUARD = 20


def main() -> None:
    """Serve until the owner closes the pipe."""
    requests, answers = claim_pipes()
    die_with_owner(requests.fileno())
    setup = read_frame(requests)
    if setup is None:
        return
    import mpmath  # noqa: F401  before the limit, and before the owner starts its clock

    if setup["imports"] == "sympy":
        import math_verify  # noqa: F401
        import sympy  # noqa: F401

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it warns that it has no deadline; its owner has
    _limit_memory(setup["memory_mb"])
    write_frame(answers, {"ready": True})
    while (question := read_frame(requests)) is not None:
        try:
            answer: dict[str, Any] = {"answer": _DO[question["do"]](question)}
        except (MemoryError, RecursionError):
            answer = {"exhausted": True}
        except Exception as error:  # what sympy may raise is without number; it means that there is no answer
            answer = {"answer": None, "why": f"{type(error).__name__}: {error}"[:200]}
        write_frame(answers, answer)


def _limit_memory(memory_mb: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():
        limit = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + memory_mb * 2**20
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _agree(question: dict[str, Any]) -> bool | None:
    import mpmath

    one, other, digits = question["one"], question["other"], int(question["digits"])
    mpmath.mp.dps = digits + 2 * _GUARD
    close = mpmath.mpf(10) ** -digits
    seed = json.dumps([one, other]).encode()
    agreed = 0
    for number in range(_POINTS):
        point = _Numbers(seed, number)
        try:
            left, right = mpmath.mpmathify(point.value(one)), mpmath.mpmathify(point.value(other))
        except (ArithmeticError, ValueError, NotImplementedError):
            continue
        if not (mpmath.isfinite(left) and mpmath.isfinite(right)):
            continue
        real = [abs(mpmath.im(value)) <= close * (abs(value) + 1) for value in (left, right)]
        near = abs(left - right) <= close * max(abs(left), abs(right), close)
        if real[0] != real[1] or (all(real) and not near):
            return False
        agreed += near
        if not point.names:
            break
    return True if agreed >= (2 if point.names else 1) else None


class _Numbers:
    """Values of trees at one point, with many digits. Points are on both sides of 0, first the positive one."""

    def __init__(self, seed: bytes, number: int) -> None:
        self._seed = seed
        self._number = number
        self.names: set[str] = set()

    def _variable(self, name: str) -> Any:
        import mpmath

        self.names.add(name)
        digest = hashlib.blake2b(f"{name} {self._number}".encode(), key=hashlib.sha256(self._seed).digest()).digest()
        size = mpmath.mpf(int.from_bytes(digest, "big") % 10**30) / 10**30 * 2 + mpmath.mpf(1) / 7
        return -size if self._number >= 2 and digest[0] % 2 else size

    def value(self, node: list[Any]) -> Any:
        import mpmath

        kind = node[0]
        if kind == "num":
            return mpmath.mpf(int(node[1])) / int(node[2])
        if kind == "var":
            return self._variable(node[1])
        if kind == "const":
            return {"pi": mpmath.pi, "e": mpmath.e, "i": mpmath.mpc(0, 1)}[node[1]] + 0
        if kind == "fn":
            return _function(node[1], self.value(node[2]))
        parts = [self.value(part) for part in node[1:]]
        if kind == "neg":
            return -parts[0]
        if kind == "add":
            return mpmath.fsum(parts)
        if kind == "mul":
            return mpmath.fprod(parts)
        if kind == "div":
            return parts[0] / parts[1]
        if kind == "fact":
            return mpmath.factorial(parts[0])
        base, exponent = parts
        if mpmath.im(base) == 0 and mpmath.re(base) < 0 and node[2][0] == "div":
            top, bottom = node[2][1], node[2][2]
            if top == ["num", "1", "1"] and bottom[0] == "num" and bottom[2] == "1" and int(bottom[1]) % 2:
                return -mpmath.power(-base, exponent)  # an odd root of a negative number, as in school
        return mpmath.power(base, exponent)


def _function(name: str, value: Any) -> Any:
    import mpmath

    functions: dict[str, Callable[[Any], Any]] = {
        "ln": mpmath.log,
        "log": lambda x: mpmath.log(x) / mpmath.log(LOG_BASE),
        "abs": abs,
        "arcsin": mpmath.asin,
        "arccos": mpmath.acos,
        "arctan": mpmath.atan,
    }
    for known in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "floor", "ceil"):
        functions[known] = getattr(mpmath, known)
    return functions[name](value)


def _latex(question: dict[str, Any]) -> bool | None:
    """Equality of what math-verify reads, by sympy. math-verify's own, more generous comparison is not used."""
    import sympy
    from math_verify import LatexExtractionConfig, parse

    sides = []
    for text in (question["one"], question["other"]):
        found = parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        if not found or not isinstance(found[0], (sympy.Expr, sympy.MatrixBase)):
            return None
        sides.append(found[0])
    one, other = (side.doit() for side in sides)
    if isinstance(one, sympy.MatrixBase) or isinstance(other, sympy.MatrixBase):
        if not isinstance(one, sympy.MatrixBase) or not isinstance(other, sympy.MatrixBase) or one.shape != other.shape:
            return False
        return all(sympy.simplify(x - y) == 0 for x, y in zip(one, other, strict=True))
    return bool(sympy.simplify(one - other) == 0)


def _irreducible(question: dict[str, Any]) -> bool | None:
    import sympy

    tree = _polynomial(question["one"])
    names = sorted(tree.free_symbols, key=str)
    if not names:
        return True
    _, factors = sympy.factor_list(tree, *names)
    return len(factors) == 1 and factors[0][1] == 1


def _polynomial(node: list[Any]) -> Any:
    """A tree of sums, products and small whole powers, in sympy. Raises ValueError on anything else."""
    import sympy

    kind = node[0]
    if kind == "num":
        return sympy.Rational(int(node[1]), int(node[2]))
    if kind == "var":
        return sympy.Symbol(node[1])
    parts = [_polynomial(part) for part in node[1:]] if kind in ("add", "mul", "neg", "div", "pow") else []
    if kind == "add":
        return sympy.Add(*parts)
    if kind == "mul":
        return sympy.Mul(*parts)
    if kind == "neg":
        return -parts[0]
    if kind == "div" and parts[1].is_number and parts[1] != 0:
        return parts[0] / parts[1]
    if kind == "pow" and parts[1].is_Integer and 0 <= parts[1] <= 20:
        return parts[0] ** parts[1]
    raise ValueError(f"{kind} in a polynomial")


_DO: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "agree": _agree,
    "latex": _latex,
    "irreducible": _irreducible,
}

if __name__ == "__main__":
    main()
