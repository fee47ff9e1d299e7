"""What cells set on modules and classes of libraries (`pd.DataFrame.shares = shares`), or put into what these hold.

Which attributes (`tqdm.monitor_interval = 0`) and contents (`nltk.data.path.append(folder)`) these are is read in the
cells: to compare whole libraries after each cell would take too long.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
import sys
import types
from collections import ChainMap
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from IPython.core.inputtransformer2 import TransformerManager

from nls_jupyter.saved_state.held import is_within
from nls_jupyter.saved_state.looks import ATOMS
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

    Owner = types.ModuleType | type
    _Target = tuple[ast.expr, str, bool]
    """Whose attribute, its name, and whether that stays and its content changes."""

# What changes a list, a dict or a set.
_CHANGE: Final = (
    *("append", "extend", "insert", "remove", "reverse", "sort", "pop", "clear"),
    *("add", "update", "discard", "setdefault", "popitem", "difference_update", "intersection_update"),
)
_MAY_SET = re.compile(rf"\.\s*\w+[^=\n]*=(?!=)|\bsetattr\b|\bdel\b|\.\s*(?:{'|'.join(_CHANGE)})\s*\(")
# Magics whose body is a cell of IPython's. That of another may be anything: for hundreds of lines that begin with %, as
# LaTeX's comments do, IPython takes a minute.
_AROUND_CODE: Final = frozenset({"capture", "debug", "gpu", "local", "prun", "time", "timeit"})
# What Python and IPython raise for what they cannot read, nor run.
_UNREADABLE: Final = (SyntaxError, ValueError, RuntimeError, MemoryError)
# What is set there is kept by other means, or each process's own.
_KEPT_OTHERWISE: Final = frozenset({"builtins", "__main__"})
_CONTENTS_KEPT_OTHERWISE: Final = frozenset({"copyreg", "gc", "sys", "warnings", "logging"})
_ENVIRONMENTS: Final = frozenset({"environ", "environb"})
_CONTAINERS: Final = (list, dict, set)
_DEEP: Final = 10
_MANY: Final = 10_000
_MORE: Final = "more than plain values"
_NOTHING: Final = object()
# Python and IPython set these where they were not; what else `sys` has as the process starts stays that process's.
_OF_A_PROMPT: Final = re.compile(r"last_\w+|ps\d")


class Patches:
    """Those of a shell's cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._looked_at = 0
        self._set: dict[str, tuple[Owner, str]] = {}
        self._filled: dict[str, tuple[Owner, str]] = {}
        self._of_sys = frozenset(vars(sys))

    def places(self) -> tuple[Place, Place]:
        """Attributes, each with its owner, which comes back with its library; and contents of lists, dicts and sets."""
        return Place("attribute", self._attributes, self._put), Place("content", self._contents, self._fill)

    def _attributes(self) -> Iterator[tuple[Hashable, Entry]]:
        self._read()
        for label, (owner, name) in self._set.items():
            if name in vars(owner):
                yield label, (owner, name, vars(owner)[name])
            elif isinstance(owner, types.ModuleType) and owner.__spec__ is not None and hasattr(owner, name):
                yield label, (owner, name, getattr(owner, name))  # behind a property, as in PyTorch
            elif "." in name and (value := _at(owner, name)) is not _NOTHING:
                yield label, (owner, name, value)

    def _contents(self) -> Iterator[tuple[Hashable, Entry]]:
        self._read()
        for label, (owner, name) in self._filled.items():
            held = vars(owner).get(name)
            if label not in self._set and type(held) in _CONTAINERS:
                yield label, (owner, name, held if _is_plain(held) else _MORE)

    def _read(self) -> None:
        """What is in the cells that nobody has looked at yet."""
        cells = self._shell.history_manager.input_hist_parsed
        # The last one may be another one by now: two parts of a notebook's cell have one number.
        for cell in cells[min(self._looked_at, max(0, len(cells) - 1)) :]:
            for owner, name, within in _set_in(cell, self._shell.user_ns):
                if within and owner.__name__ not in _CONTENTS_KEPT_OTHERWISE:
                    self._filled[_label(owner, name)] = owner, name
                elif not within and not self._is_the_processs(owner, name):
                    self._set[_label(owner, name)] = owner, name
        self._looked_at = len(cells)

    def _is_the_processs(self, owner: Owner, name: str) -> bool:
        """Whether it is kept by other means, or each process has its own."""
        first = name.partition(".")[0]
        if owner is sys:
            return first in self._of_sys or _OF_A_PROMPT.fullmatch(first) is not None
        return (owner.__name__ == "os" and first in _ENVIRONMENTS) or is_within(owner.__name__, name)

    def _put(self, owner: Owner, name: str, value: Any) -> None:
        """Raises RuntimeError for a function in the place of the library's own: without that one it could not go on."""
        own = vars(owner).get(name, value)
        if isinstance(value, types.FunctionType) and own is not value:
            raise RuntimeError("it takes the place of the library's own: run its cell again")
        holder, _, last = name.rpartition(".")
        setattr(_at(owner, holder) if holder else owner, last, value)
        self._set[_label(owner, name)] = owner, name

    def _fill(self, owner: Owner, name: str, value: Any) -> None:
        """Others hold the library's own, too: it gets what `value` has. Raises RuntimeError where that was not kept."""
        self._filled[_label(owner, name)] = owner, name
        if value == _MORE:
            raise RuntimeError("it holds more than plain values, and is as the library makes it: run its cell again")
        own = vars(owner)[name]
        if own != value or list(own) != list(value):
            own.clear()
            (own.extend if isinstance(own, list) else own.update)(value)


def _label(owner: Owner, name: str) -> str:
    prefix = "" if isinstance(owner, types.ModuleType) else f"{owner.__module__}."
    return f"{prefix}{owner.__name__}.{name}"


def _is_plain(held: Any, depth: int = 0) -> bool:
    """Whether it consists of plain values, not all too many nor deep, that nobody has to be asked about."""
    if type(held) in ATOMS:
        return True
    if type(held) not in (*_CONTAINERS, tuple, frozenset) or depth > _DEEP or len(held) > _MANY:
        return False
    parts = chain(held, held.values()) if isinstance(held, dict) else held
    return all(_is_plain(part, depth + 1) for part in parts)


def _set_in(cell: str, names: Mapping[str, Any]) -> Iterator[tuple[Owner, str, bool]]:
    """Owner and name of each attribute that `cell` sets on what a library holds, or changes the content of (`True`)."""
    targets, imported = _all_targets(cell)
    if not targets:
        return  # as in most cells, each of which is asked about for attributes and for contents
    known = ChainMap(dict(names), {name: found for name, path in imported if (found := _imported(path)) is not None})
    for whose, name, within in targets:
        if (found := _owner(whose, known)) is not None:
            owner, path = found
            yield owner, f"{path}.{name}" if path else name, within


@functools.lru_cache(maxsize=2)
def _all_targets(cell: str) -> tuple[tuple[_Target, ...], tuple[tuple[str, str], ...]]:
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
    except _UNREADABLE:
        return
    for node in ast.walk(tree):
        yield node
        match node:
            case ast.Call(
                func=ast.Attribute(attr="run_cell_magic"),
                args=[ast.Constant(value=magic), _, ast.Constant(value=str(body))],
            ):
                yield from _nodes(_as_python(body) if magic in _AROUND_CODE else body)


def _as_python(cell: str) -> str:
    try:
        transformed: str = TransformerManager().transform_cell(cell)  # type: ignore[no-untyped-call]
    except _UNREADABLE:
        return ""
    return transformed


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


def _targets(node: ast.AST) -> Iterator[_Target]:
    match node:
        case ast.Attribute(value=whose, attr=name, ctx=ast.Store()):
            yield whose, name, False
        case ast.Call(func=ast.Name(id="setattr"), args=[whose, ast.Constant(value=str(name)), _]):
            yield whose, name, False
        case ast.Call(func=ast.Attribute(value=held, attr=change)) if change in _CHANGE:
            yield from _content(held)
        case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()):
            yield from _content(held)


def _content(held: ast.expr) -> Iterator[_Target]:
    """Of `nltk.data.path`, or what is in it: `dask.config.config["array"]`."""
    while isinstance(held, ast.Subscript):
        held = held.value
    if isinstance(held, ast.Attribute):
        yield held.value, held.attr, True


def _owner(whose: ast.expr, names: Mapping[str, Any]) -> tuple[Owner, str] | None:
    """The library's module or class that an expression such as `pd.DataFrame` means; `None`: something else.

    With the path in there to an object of a library's that it means, as `pyvista.global_theme.font`.
    """
    if isinstance(whose, ast.Name):
        owner, path = names.get(whose.id), ""
    elif isinstance(whose, ast.Attribute) and (outer := _owner(whose.value, names)) is not None:
        owner, path = outer
        path = f"{path}.{whose.attr}" if path else whose.attr
        found = _at(owner, path)
        if isinstance(found, (types.ModuleType, type)):
            owner, path = found, ""
        elif found is _NOTHING or is_the_users_module(type(found).__module__):
            return None
    else:
        return None
    if not isinstance(owner, (types.ModuleType, type)):
        return None
    module = owner.__name__ if isinstance(owner, types.ModuleType) else owner.__module__
    return None if module in _KEPT_OTHERWISE or is_the_users_module(module) else (owner, path)


def _at(owner: Owner, path: str) -> Any:
    """What is there; `_NOTHING` where nothing is, or where it does not tell."""
    try:
        return operator.attrgetter(path)(owner)
    except Exception:  # noqa: BLE001 - code of a library's own
        return _NOTHING
