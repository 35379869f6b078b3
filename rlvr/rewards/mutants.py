"""Small mistakes put into a right program, to see which of them a test suite notices. Runs nothing."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

MAX_MUTANTS = 30

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}

#: Changes a node in place; the copy of the tree is thrown away afterwards.
Change = Callable[[ast.AST], None]


def mutants(source: str) -> list[str]:
    """Variants of a program, each with one mistake, in order of the text. Raises SyntaxError, ValueError."""
    tree = ast.parse(source)
    found: dict[str, None] = {}
    for place, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            mutant = copy.deepcopy(tree)
            change(next(other for number, other in enumerate(ast.walk(mutant)) if number == place))
            text = ast.unparse(ast.fix_missing_locations(mutant))
            if text != ast.unparse(tree):
                found[text] = None
    spread = list(found)
    step = max(1, -(-len(spread) // MAX_MUTANTS))
    return spread[::step]


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for other in _COMPARED.get(type(node.ops[0]), ()):
            yield lambda node, other=other: setattr(node, "ops", [other(), *node.ops[1:]])  # type: ignore[attr-defined, misc]
    elif isinstance(node, (ast.BinOp, ast.AugAssign)):
        operator = _COMPUTED.get(type(node.op))
        if operator is not None:
            yield lambda node: setattr(node, "op", operator())
        if isinstance(node, ast.AugAssign):
            yield lambda node: setattr(node, "value", ast.Constant(0))
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            yield lambda node, step=step: setattr(node, "value", node.value + step)  # type: ignore[attr-defined, misc]
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield lambda node: setattr(node, "value", not node.value)  # type: ignore[attr-defined]
    elif isinstance(node, ast.BoolOp):
        joined = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield lambda node: setattr(node, "op", joined())
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield lambda node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))  # type: ignore[attr-defined]
        yield lambda node: setattr(node, "test", ast.Constant(False))
        yield lambda node: setattr(node, "test", ast.Constant(True))
