"""Mutants: defects in the rules of the planner, each of which some test must catch.

`predicates` are chosen by hand: functions that ask after a rule, and now always answer the same. `generated` are some
thousands, made from the syntax tree, one small change each. `tools/mutants.py` (`make mutants`) tries them.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[2] / "node_scheduler" / "nls_scheduler"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a syntax tree.

    Attributes:
        function: the innermost function around it, by its qualified name.
        change: what it does there; unique in that function.
        within: that function.
        owner: the node in which something is replaced.
        field: what of it.
        index: which element of that, where it is a list and only that one is replaced.
        new: what is there instead.
    """

    function: str
    change: str
    within: ast.FunctionDef
    owner: ast.AST
    field: str
    index: int | None
    new: object

    def make(self) -> Edit:
        """Carry it out in the tree that it was made for; what takes it back."""
        holder = getattr(self.owner, self.field)
        old = holder if self.index is None else holder[self.index]
        if self.index is None:
            setattr(self.owner, self.field, self.new)
        else:
            holder[self.index] = self.new
        return Edit(self.function, self.change, self.within, self.owner, self.field, self.index, old)

    def shown(self) -> str:
        """The changed lines of the function, before and after."""
        before = ast.unparse(self.within).splitlines()
        back = self.make()
        after = ast.unparse(self.within).splitlines()
        back.make()
        return "\n".join([*difflib.unified_diff(before, after, n=1, lineterm="")][2:])


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect. Its name says nothing of lines, so that it is the same after edits elsewhere.

    Attributes:
        file: the mutated module, below `nls_scheduler`.
        function: the changed function's qualified name there.
        change: what is changed in it.
    """

    file: str
    function: str
    change: str

    @property
    def id(self) -> str:
        """How people and results name it."""
        return f"{self.file}: {self.function} {self.change}"

    def of(self, source: str) -> str:
        """`source`, the module's, with the defect in it. Raises LookupError where its function is not there."""
        tree = ast.parse(source)
        self.edit(tree).make()
        return ast.unparse(ast.fix_missing_locations(tree))

    def told(self) -> str:
        """What is wrong with it, for people."""
        return self.edit(ast.parse((SOURCES / self.file).read_text())).shown()

    def edit(self, tree: ast.Module) -> Edit:
        """The change that makes it of `tree`, its module's. Raises LookupError."""
        raise NotImplementedError


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """All functions of a module by their qualified names; those of one name `_` by the type of their first argument."""
    return dict(_functions(tree, ""))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.ClassDef):
            name = f"{prefix}{child.name}."
        elif isinstance(child, ast.FunctionDef):
            first = child.args.args[0].annotation if child.name == "_" else None
            own = child.name if first is None else f"_({ast.unparse(first).rpartition('.')[2]})"
            yield prefix + own, child
            name = f"{prefix}{own}."
        yield from _functions(child, name)
