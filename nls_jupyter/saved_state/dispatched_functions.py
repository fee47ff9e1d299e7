"""Implementations that cells give to functions of libraries: `@flatten.register(Mine)`.

A function of the cells' own comes back with its implementations. Nobody can be asked which functions libraries have
made with `functools.singledispatch`: it is listened to from now on.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry


class DispatchedFunctions:
    """Those of this process. None is kept alive for that."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []

    def follow(self) -> None:
        """Listen from now on. Called once in a process."""
        for module in list(sys.modules.values()):
            for function in list(getattr(module, "__dict__", {}).values()):
                if is_of(function, types.FunctionType) and hasattr(function, "registry"):
                    self._note(function)
        make: Callable[..., Any] = functools.singledispatch

        @functools.wraps(make)
        def listening(func: Any) -> Any:
            return self._note(make(func))

        functools.singledispatch = listening

    def place(self) -> Place:
        """Each implementation for a type, with where its function is found."""
        return Place("implementation", self._entries, _put, _label)

    def _note(self, function: Any) -> Any:
        self._made.append(weakref.ref(function, self._made.remove))
        return function

    def _entries(self) -> Iterator[tuple[Hashable, Entry]]:
        """Those for types of cells, and those that are of cells."""
        for function in [function for made in list(self._made) if (function := made()) is not None]:
            module, path = function.__module__, function.__qualname__
            for kind, implementation in list(function.registry.items()):
                is_a_cells = "__main__" in {kind.__module__, getattr(implementation, "__module__", None)}
                if is_a_cells and module != "__main__" and _found(module, path) is function:
                    yield (module, path, id(kind)), (module, path, kind, implementation)


def _found(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name, None)
    return found.dispatcher if isinstance(found, functools.singledispatchmethod) else found


def _put(module: str, path: str, kind: type, implementation: Any) -> None:
    importlib.import_module(module)
    _found(module, path).register(kind, implementation)


def _label(_: object, parts: Entry) -> str:
    module, path, kind, _implementation = parts
    return f"{kind.__qualname__} of {module}.{path}"
