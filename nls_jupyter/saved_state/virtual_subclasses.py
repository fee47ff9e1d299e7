"""Classes that cells have registered with abstract ones of libraries: `Sequence.register(Rows)`.

A class of the cells' own comes back with those that are registered with it. One of a library does not say who has
registered what with it: so `register` is listened to from now on.
"""

from __future__ import annotations

import abc
import functools
import weakref
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.looks import importable
from nls_jupyter.saved_state.places import Place, asked_by_a_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry


class VirtualSubclasses:
    """Those of this process. None is kept alive for that."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, int], tuple[weakref.ref[abc.ABCMeta], weakref.ref[type]]] = {}

    def follow(self) -> None:
        """Listen from now on. Called once in a process."""
        register: Callable[..., Any] = abc.ABCMeta.register

        @functools.wraps(register)
        def listening(cls: abc.ABCMeta, subclass: Any) -> Any:
            registered = register(cls, subclass)
            if importable(cls) and asked_by_a_cell(no_import_of_theirs=True):
                self._note(cls, subclass)
            return registered

        abc.ABCMeta.register = listening  # type: ignore[method-assign]

    def place(self) -> Place:
        """Each with the abstract class."""
        return Place("virtual subclass", self._entries, self._put, _label)

    def _note(self, cls: abc.ABCMeta, subclass: type) -> None:
        self._given[id(cls), id(subclass)] = weakref.ref(cls), weakref.ref(subclass)

    def _entries(self) -> Iterator[tuple[Hashable, Entry]]:
        for key, (cls, subclass) in list(self._given.items()):
            if (alive := cls()) is None or subclass() is None:
                del self._given[key]
            else:
                yield key, (alive, subclass)

    def _put(self, cls: abc.ABCMeta, subclass: weakref.ref[type]) -> None:
        if (alive := subclass()) is not None:  # else nothing that came back leads to it
            cls.register(alive)
            self._note(cls, alive)


def _label(_: object, parts: Entry) -> str:
    cls, subclass = parts
    return f"{getattr(subclass(), '__qualname__', '?')} of {cls.__name__}"
