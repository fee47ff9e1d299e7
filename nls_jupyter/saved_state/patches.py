"""What cells set on modules and classes of libraries: `pd.DataFrame.shares = shares`, `tqdm.monitor_interval = 0`.

Which attributes these are is read in the cells: to compare whole libraries after each cell would take too long.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
from collections import ChainMap
from typing import TYPE_CHECKING, Any, Final

from IPython.core.inputtransformer2 import TransformerManager

from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

    Owner = types.ModuleType | type

_MAY_SET = re.compile(r"\.\s*\w+[^=\n]*=(?!=)|\bsetattr\b")
# What is set there is kept by other means, or each process's own.
_KEPT_OTHERWISE: Final = frozenset({"builtins", "__main__"})
_ENVIRONMENTS: Final = frozenset({"environ", "environb"})
# Python and IPython set these where they were not; what else `sys` has as the process starts stays that process's.
_OF_A_PROMPT: Final = re.compile(r"last_\w+|ps\d")


class Patches:
    """Those of a shell's cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._looked_at = 0
        self._found: dict[str, tuple[Owner, str]] = {}
        self._of_sys = frozenset(vars(sys))

    def place(self) -> Place:
        """Each with its owner, which comes back with its library."""
        return Place("attribute", self._entries, self._put)

    def _entries(self) -> Iterator[tuple[Hashable, Entry]]:
        cells = self._shell.history_manager.input_hist_parsed
        # The last one may be another one by now: two parts of a notebook's cell have one number.
        for cell in cells[min(self._looked_at, max(0, len(cells) - 1)) :]:
            for owner, name in _set_in(cell, self._shell.user_ns):
                if not self._is_the_processs(owner, name):
                    self._note(owner, name)
        self._looked_at = len(cells)
        for label, (owner, name) in self._found.items():
            if name in vars(owner):
                yield label, (owner, name, vars(owner)[name])
            elif isinstance(owner, types.ModuleType) and owner.__spec__ is not None and hasattr(owner, name):
                yield label, (owner, name, getattr(owner, name))  # behind a property, as in PyTorch

    def _is_the_processs(self, owner: Owner, name: str) -> bool:
        """Whether it is kept by other means, or each process has its own."""
        if owner is sys:
            return name in self._of_sys or _OF_A_PROMPT.fullmatch(name) is not None
        return owner.__name__ == "os" and name in _ENVIRONMENTS

    def _note(self, owner: Owner, name: str) -> None:
        prefix = "" if isinstance(owner, types.ModuleType) else f"{owner.__module__}."
        self._found[f"{prefix}{owner.__name__}.{name}"] = owner, name

    def _put(self, owner: Owner, name: str, value: Any) -> None:
        """Raises RuntimeError for a function in the place of the library's own: without that one it could not go on."""
        own = vars(owner).get(name, value)
        if isinstance(value, types.FunctionType) and own is not value:
            raise RuntimeError("it takes the place of the library's own: run its cell again")
        setattr(owner, name, value)
        self._note(owner, name)


def _set_in(cell: str, names: Mapping[str, Any]) -> Iterator[tuple[Owner, str]]:
    """Owner and name of each attribute that `cell` sets on what a library holds."""
    targets, imported = _all_targets(cell)
    known = ChainMap(dict(names), {name: found for name, path in imported if (found := _imported(path)) is not None})
    for whose, name in targets:
        owner = _owner(whose, known)
        if owner is not None:
            yield owner, name


@functools.lru_cache(maxsize=2)
def _all_targets(cell: str) -> tuple[tuple[tuple[ast.expr, str], ...], tuple[tuple[str, str], ...]]:
    """What `cell` may set, and what its imports name, which a function may have to itself.

    The last cell is asked about in each save until there is a next one; only what its names mean can change.
    """
    nodes = [*_nodes(cell)] if _MAY_SET.search(cell) else []
    targets = tuple(target for node in nodes for target in _targets(node))
    return targets, tuple(found for node in nodes if targets for found in _imports(node))


def _nodes(cell: str) -> Iterator[ast.AST]:
    """All of its syntax, with that of what a magic such as `%%time` runs."""
    try:
        tree = ast.parse(cell)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        yield node
        match node:
            case ast.Call(func=ast.Attribute(attr="run_cell_magic"), args=[_, _, ast.Constant(value=str(body))]):
                transformed: str = TransformerManager().transform_cell(body)  # type: ignore[no-untyped-call]
                yield from _nodes(transformed)


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that it binds to what is imported, and each one's path."""
    match node:
        case ast.Import(names=names):
            yield from (
                (each.asname or each.name.partition(".")[0], each.name if each.asname else each.name.partition(".")[0])
                for each in names
            )
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield from ((each.asname or each.name, f"{module}.{each.name}") for each in names)


def _imported(path: str) -> Any:
    """The module or what a module has under a path, where that is imported already."""
    module, _, name = path.rpartition(".")
    return sys.modules.get(path) or getattr(sys.modules.get(module), name, None)


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    match node:
        case ast.Attribute(value=whose, attr=name, ctx=ast.Store()):
            yield whose, name
        case ast.Call(func=ast.Name(id="setattr"), args=[whose, ast.Constant(value=str(name)), _]):
            yield whose, name


def _owner(whose: ast.expr, names: Mapping[str, Any]) -> Owner | None:
    """The library's module or class that an expression such as `pd.DataFrame` means; `None`: something else."""
    if isinstance(whose, ast.Name):
        found = names.get(whose.id)
    elif isinstance(whose, ast.Attribute) and (outer := _owner(whose.value, names)) is not None:
        found = getattr(outer, whose.attr, None)
    else:
        return None
    if not isinstance(found, (types.ModuleType, type)):
        return None
    module = found.__name__ if isinstance(found, types.ModuleType) else found.__module__
    return None if module in _KEPT_OTHERWISE or is_the_users_module(module) else found
