"""Classes that are back, and loggers of such classes: what comes back later finds them as they are by then.

A stream that leads to one which is there already makes no other. It has with it what that held when it was saved,
which its user may have changed since.
"""

from __future__ import annotations

import functools
import logging
import weakref
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import GIVE_TO_CLASS
from nls_jupyter.saved_state import classes, enumerations, reducers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_GIVES: Final = (classes.BEGINS, enumerations.complete, reducers.set_attributes, GIVE_TO_CLASS.here(None))
_FOUND: Final = (type, logging.Logger)


class Alive:
    """Those of one process."""

    def __init__(self) -> None:
        self._back: dict[int, weakref.ref[Any]] = {}

    def add(self, things: Iterable[Any]) -> None:
        """Names that are back lead to these."""
        for thing in things:
            self._back[id(thing)] = weakref.ref(thing)

    def spared(self, function: Any, given: dict[int, Any]) -> Any:
        """What an unpickler is to call in place of a function, if that gives things to classes and loggers.

        Args:
            function: what it has found.
            given: gets all that are given something, by identity.
        """
        return self._sparing(function, given) if any(function is give for give in _GIVES) else function

    def _sparing(self, give: Callable[..., Any], given: dict[int, Any]) -> Callable[..., Any]:
        @functools.wraps(give)
        def sparing(thing: Any, *content: Any) -> Any:
            if issubclass(type(thing), _FOUND):
                if (back := self._back.get(id(thing))) is not None and back() is thing:
                    return thing
                given[id(thing)] = thing
            return give(thing, *content)

        return sparing
