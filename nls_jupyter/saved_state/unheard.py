"""Who is told that a class is made, by `__init_subclass__`: of one that comes back they have been told before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.looks import importable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEARD: Final = "__init_subclass__"


def told(bases: Iterable[type]) -> list[type]:
    """Those above a class of these bases that may be told when one is made, but for Python's own."""
    return [kind for base in bases for kind in base.__mro__ if kind is not object and _HEARD in vars(kind)]


@contextlib.contextmanager
def by_the_users(bases: Iterable[type]) -> Iterator[None]:
    """No class of cells is told of those that are made of these bases meanwhile; a library's is."""
    kept = [(kind, vars(kind)[_HEARD]) for kind in told(bases) if not importable(kind)]
    try:
        for kind, _ in kept:
            setattr(kind, _HEARD, classmethod(_unheard))
        yield
    finally:
        for kind, own in kept:
            setattr(kind, _HEARD, own)


def _unheard(_: type, /, **__: Any) -> None:
    """Nobody is told that there is one more class."""
