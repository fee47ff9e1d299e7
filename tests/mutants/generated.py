"""Mutants made from the syntax tree of the core: one small change each.

Own operators and an own runner, as the tools that there are do not fit: mutmut leaves out whatever is decorated, which
is every property, every dataclass and every `register`; Cosmic Ray starts a test run from nothing for each mutant.

Only what another mutant does not show as well is made: who notices a comparison's moved boundary notices its opposite,
and who notices that an `and` lacks an operand notices an `or` in its place. Texts for people are left alone.
"""

from __future__ import annotations

import ast
import random
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from mutants import SOURCES, Edit, Mutant, functions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WITHOUT_RULES = {"codec", "commands", "priorities", "simulator", "__init__"}
"""Modules of the core whose functions decide nothing."""

Node = TypeVar("Node", bound=ast.AST)
Change = tuple[str, ast.AST]
"""What it is called, and what is there instead."""

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHER_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_OTHER_CALL = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
_REPLACE = {"replace", "updated", "transition"}
"""What makes a value with some fields changed."""
_CONDITIONS = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.comprehension, ast.Return)
_LEFT_ALONE = (ast.FunctionDef, ast.arguments, ast.Raise, ast.JoinedStr)
"""Functions inside have names of their own, and defaults, errors and texts decide nothing."""


@dataclass(frozen=True, slots=True)
class Generated(Mutant):
    """One of `edits`."""

    def edit(self, tree: ast.Module) -> Edit:
        """The one of that function and change."""
        found = (e for e in edits(tree) if (e.function, e.change) == (self.function, self.change))
        edit = next(found, None)
        if edit is None:
            raise LookupError(f"there is no {self.id} any more")
        return edit


def modules() -> list[Path]:
    """All modules of the core with rules."""
    sources = (path for path in (SOURCES / "core").rglob("*.py") if path.stem not in WITHOUT_RULES)
    return sorted(path for path in sources if functions(ast.parse(path.read_text())))


def generated() -> list[Mutant]:
    """All that can be made."""
    return [
        Generated(str(path.relative_to(SOURCES)), edit.function, edit.change)
        for path in modules()
        for edit in edits(ast.parse(path.read_text()))
    ]


def drawn(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of `mutants`; with the same seed the same ones, as far as they are still there."""
    chosen = sorted(mutants, key=lambda mutant: random.Random(f"{seed} {mutant.id}").random())[:count]
    return sorted(chosen, key=lambda mutant: mutant.id)


def edits(tree: ast.Module) -> Iterator[Edit]:
    """Every change that is made of a module; numbers count within a function."""
    for name, function in functions(tree).items():
        answer = "" if function.returns is None else ast.unparse(function.returns)
        if answer == "str":
            continue
        numbers: Counter[str] = Counter()
        for owner, field, index, node in _places(function):
            found = (
                _of_a_condition(node),
                _of_a_value(node, owner),
                _of_a_statement(node),
                _of_an_answer(node, answer),
            )
            for change, new in chain.from_iterable(found):
                numbers[change] += 1
                yield Edit(name, f"{change} {numbers[change]}", function, owner, field, index, new)


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "returns", "annotation"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, _LEFT_ALONE):
                yield node, field, index, child
                yield from _places(child)


def _of_a_condition(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.BoolOp():
            for rest in _without_one(node.values):
                yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.If(body=[first, *_]):
            if not isinstance(first, ast.Raise):
                yield "always", ast.If(ast.Constant(True), node.body, node.orelse)
            yield "never", ast.If(ast.Constant(False), node.body, node.orelse)
        case ast.IfExp():
            yield "always", node.body
            yield "never", node.orelse
        case ast.While() if not isinstance(node.test, ast.Constant):
            yield "never", ast.While(ast.Constant(False), node.body, node.orelse)
        case ast.match_case(guard=ast.AST()):
            yield "always", ast.match_case(node.pattern, None, node.body)
        case ast.comprehension():
            for left in _without_one(node.ifs):
                yield "filter dropped", ast.comprehension(node.target, node.iter, left, node.is_async)


def _of_a_value(node: ast.AST, owner: ast.AST) -> Iterator[Change]:
    """`owner`: of which it is a part. Where that is a condition, there is a mutant already in which it always holds."""
    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                nearby, opposite = _BOUNDARY.get(type(operator)), _OPPOSITE.get(type(operator))
                other = nearby if nearby or isinstance(owner, _CONDITIONS) else opposite
                if other:
                    ops = [*node.ops[:number], other(), *node.ops[number + 1 :]]
                    yield "boundary" if nearby else "opposite", ast.Compare(node.left, ops, node.comparators)
        case ast.UnaryOp(op=ast.Not()) if not isinstance(owner, _CONDITIONS):
            yield "not dropped", node.operand
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield "minus dropped", node.operand
        case ast.BinOp() if type(node.op) in _OTHER_OPERATOR and not _is_text(node.left) and not _is_text(node.right):
            yield "other operator", ast.BinOp(node.left, _OTHER_OPERATOR[type(node.op)](), node.right)
        case ast.Call(func=ast.Name(id=called)) if called in _OTHER_CALL:
            keywords = node.keywords if called in ("min", "max") else []
            yield f"not {called}", ast.Call(ast.Name(_OTHER_CALL[called], ast.Load()), node.args, keywords)
        case ast.Call(func=ast.Name(id=called)) if called in _REPLACE:
            for left in _without_one(node.keywords):
                yield "field kept", ast.Call(node.func, node.args, left)
        case ast.Lambda(body=ast.Tuple()):
            yield from (("key dropped", ast.Lambda(node.args, key)) for key in _shorter(node.body))


def _of_a_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
            yield "statement dropped", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if not _is_text(node.value):
            yield "statement dropped", ast.Pass()


def _of_an_answer(node: ast.AST, answer: str) -> Iterator[Change]:
    """Of a function that returns `answer`."""
    if not isinstance(node, ast.Return) or node.value is None:
        return
    constant = node.value.value if isinstance(node.value, ast.Constant) else ...
    others = (True, False) if answer == "bool" else (None,) if answer.endswith("| None") else ()
    yield from ((f"returns {other}", ast.Return(ast.Constant(other))) for other in others if other is not constant)
    if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 2:  # two are no key to sort by, but two results
        yield from (("key dropped", ast.Return(key)) for key in _shorter(node.value))


def _shorter(key: ast.Tuple) -> Iterator[ast.Tuple]:
    """`key` without one of its elements; an id only makes ties certain."""
    ids = [element for element in key.elts if isinstance(element, ast.Attribute) and element.attr == "id"]
    yield from (ast.Tuple(left, ast.Load()) for left in _without_one(key.elts, *ids))


def _without_one(nodes: list[Node], *needed: Node) -> Iterator[list[Node]]:
    """`nodes` without one of those that are not needed, each in turn."""
    for number, node in enumerate(nodes):
        if node not in needed:
            yield [*nodes[:number], *nodes[number + 1 :]]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
