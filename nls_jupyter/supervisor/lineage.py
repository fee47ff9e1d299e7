"""Which cell made what: for a variable that is gone, the cell that makes it again."""

from __future__ import annotations

import ast
import re
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_CELLS_KEPT: Final = 5000
# Magics whose argument or body is Python that runs in the notebook's namespace.
_AROUND_CODE = re.compile(
    r"^(?:\s*%%(?:time|capture|prun)\b.*\n)+|^[ \t]*%(?:time|prun)\b(?:[ \t]+-\S+)*[ \t]", re.MULTILINE
)
_OWN_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Lineage:
    """The cells that ended well, newest last. What they bind is looked up when somebody asks, not before."""

    def __init__(self) -> None:
        self._cells: deque[tuple[str, str]] = deque(maxlen=_CELLS_KEPT)
        self._before: dict[str, str] = {}

    def ran(self, label: str, code: str) -> None:
        """A cell has ended well."""
        self._cells.append((label, code))

    def remember(self, made_in: Mapping[str, str]) -> None:
        """What an earlier kernel knew: labels by name."""
        self._before |= made_in

    def maker(self, name: str) -> str | None:
        """The label of the last cell whose own code binds `name`; `None`: what bound it is not known."""
        cells = reversed([*self._cells])
        found = (label for label, code in cells if name in code and name in bound_by(code))
        return next(found, self._before.get(name))

    def made_in(self, labels: Collection[str]) -> list[str]:
        """The names that the code of these cells binds."""
        return sorted({name for label, code in self._cells if label in labels for name in bound_by(code)})

    def forget(self) -> None:
        """The next process begins anew."""
        self._cells.clear()
        self._before.clear()


@lru_cache(maxsize=64)
def bound_by(code: str) -> frozenset[str]:
    """The names that a cell binds in its namespace, as far as its text shows; of one that is no Python, none."""
    try:
        tree = compile(_as_python(code), "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return frozenset(_bound(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _as_python(code: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    as_ipython_does: Any = TransformerManager
    text: str = as_ipython_does().transform_cell(_AROUND_CODE.sub("", code))
    return text


def _bound(node: ast.AST, *, inside: bool = False) -> Iterator[str]:
    """`inside`: of a function, where only what is declared global counts; a comprehension has variables of its own."""
    if isinstance(node, ast.Global):
        yield from node.names
    elif not inside:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name is not None:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.rest
    for child in ast.iter_child_nodes(node):
        yield from _bound(child, inside=inside or isinstance(node, _OWN_SCOPES) or isinstance(child, ast.comprehension))
