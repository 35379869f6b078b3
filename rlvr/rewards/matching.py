"""Whether an answer is the reference: structure against structure, leaf against leaf.

Leaves are numbers, compared exactly, or expressions, compared by `identity`, and where that leaves it open by the
symbolic child to more digits than the two have characters. Must not know where an answer was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlvr.rewards import identity, symbolic
from rlvr.rewards.expressions import Node, size, to_plain
from rlvr.rewards.numbers import Number
from rlvr.rewards.structures import ZERO, Answer, Interval, Items, Leaf, Relation, Text

#: Digits that two expressions must agree in, besides twice as many as they have signs.
_DIGITS = 40
_MAX_DIGITS = 2000


@dataclass
class Matcher:
    """Compares answers under the policies of one verifier; `stage` is what decided, for the evidence."""

    same_number: Callable[[Number, Number], bool]
    ordered: bool = True
    """Bare lists must have the order of the reference."""
    unevaluated: bool = False
    """An expression may stand where the reference is a number."""
    compare_units: bool = True
    """Units behind expressions must agree where both sides have one."""
    cheap: bool = False
    """Never ask the symbolic child: what it would have to decide counts as different."""
    stage: str = field(default="structure", init=False)

    def same(self, answer: Answer, reference: Answer) -> bool:
        """Whether they say the same. Raises TooExpensive, Exhausted, InfrastructureError."""
        if isinstance(answer, Leaf) and isinstance(reference, Leaf):
            return self._leaves(answer, reference)
        if isinstance(answer, Interval) or isinstance(reference, Interval):
            return self._intervals(answer, reference)
        if isinstance(answer, Items) and isinstance(reference, Items):
            return self._items(answer, reference)
        if isinstance(answer, Relation) or isinstance(reference, Relation):
            return self._relations(answer, reference)
        return isinstance(answer, Text) and answer == reference

    def _leaves(self, answer: Leaf, reference: Leaf) -> bool:
        if answer.number is not None and reference.number is not None:
            self.stage = "numbers"
            return self.same_number(answer.number, reference.number)
        if reference.number is not None and not self.unevaluated:
            self.stage = "not worked out"
            return False
        if self.compare_units and answer.unit and reference.unit and answer.unit != reference.unit:
            self.stage = "units"
            return False
        if answer.tree is None or reference.tree is None:
            return answer.text == reference.text
        return self._trees(answer.tree, reference.tree)

    def _trees(self, one: Node, other: Node) -> bool:
        self.stage = "identity"
        decided = identity.same(one, other)
        if decided is None and not self.cheap:
            self.stage = "symbolic"
            digits = _DIGITS + 2 * (size(one) + size(other)) + _written_digits(one) + _written_digits(other)
            if digits > _MAX_DIGITS:
                raise identity.TooExpensive("too many digits")
            decided = symbolic.agree(to_plain(one), to_plain(other), digits)
        return bool(decided)

    def _items(self, answer: Items, reference: Items) -> bool:
        if len(answer.items) != len(reference.items):
            self.stage = "number of items"
            return False
        kinds = {answer.kind, reference.kind}
        if kinds <= {"list", "set"}:
            if kinds == {"list"} and self.ordered:
                return self._in_order(answer.items, reference.items)
            return self._in_any_order(answer.items, reference.items)
        brackets = {kind[-1] for kind in kinds if kind.startswith("matrix")}
        if len(kinds) != 1 and not (len(brackets) == 2 and brackets <= {"p", "b"}):  # round or square is all the same
            self.stage = "another kind of answer"
            return False
        if answer.kind == "union":
            return self._in_any_order(answer.items, reference.items)
        return self._in_order(answer.items, reference.items)

    def _in_order(self, answers: Sequence[Answer], references: Sequence[Answer]) -> bool:
        return all(self.same(one, other) for one, other in zip(answers, references, strict=True))

    def _in_any_order(self, answers: Sequence[Answer], references: Sequence[Answer]) -> bool:
        left = list(references)
        for answer in answers:
            place = next((place for place, other in enumerate(left) if self.same(answer, other)), None)
            if place is None:
                return False
            del left[place]
        return True

    def _intervals(self, answer: Answer, reference: Answer) -> bool:
        one, other = _open_pair(answer), _open_pair(reference)
        if not isinstance(one, Interval) or not isinstance(other, Interval):
            self.stage = "another kind of answer"
            return False
        if one.name and other.name and one.name != other.name:
            return False
        if (one.low_closed, one.high_closed) != (other.low_closed, other.high_closed):
            return False
        return self._bounds(one.low, other.low) and self._bounds(one.high, other.high)

    def _bounds(self, one: Leaf | None, other: Leaf | None) -> bool:
        if one is None or other is None:
            return one is other
        return self._leaves(one, other)

    def _relations(self, answer: Answer, reference: Answer) -> bool:
        if isinstance(answer, Relation) and isinstance(reference, Relation):
            if answer.sign != reference.sign:
                return False
            if answer.sign == "=":
                return self._equations(answer, reference)
            return self.same(answer.left, reference.left) and self.same(answer.right, reference.right)
        for one, other in ((answer, reference), (reference, answer)):
            if isinstance(one, Relation) and one.sign == "=" and one.name and not isinstance(other, Relation):
                return self.same(one.right, other) if one is answer else self.same(other, one.right)
        return False

    def _equations(self, answer: Relation, reference: Relation) -> bool:
        if (
            isinstance(answer.left, Text)
            or isinstance(reference.left, Text)
            or (answer.name and answer.name == reference.name)
        ):
            return self.same(answer.left, reference.left) and self.same(answer.right, reference.right)
        one, other = _difference(answer), _difference(reference)
        if one is None or other is None:
            return False
        self.stage = "identity"
        return bool(identity.proportional(one, other))


def _written_digits(tree: Node) -> int:
    """Digits of all numbers in a tree, worked out: one that is nearly another must not pass for it. TooExpensive."""
    value = identity.exact(tree)
    if value is not None:
        return (value.numerator.bit_length() + value.denominator.bit_length()) // 3
    return sum(_written_digits(part) for part in tree[1:] if isinstance(part, tuple))


def _open_pair(answer: Answer) -> Answer:
    """(1, 2) beside an interval is an open interval itself."""
    if isinstance(answer, Items) and answer.kind == "tuple" and len(answer.items) == 2:
        low, high = answer.items
        if isinstance(low, Leaf) and isinstance(high, Leaf):
            return Interval(low, False, high, False)
    if isinstance(answer, Relation) and answer.name and isinstance(answer.right, Interval):
        return answer.right
    return answer


def _difference(equation: Relation) -> Node | None:
    left, right = equation.left, equation.right
    if not isinstance(left, Leaf) or not isinstance(right, Leaf) or left.tree is None or right.tree is None:
        return None
    if right == ZERO:
        return left.tree
    return ("add", left.tree, ("neg", right.tree))
