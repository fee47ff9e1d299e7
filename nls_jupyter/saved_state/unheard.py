"""Who is told that a class is made: `__init_subclass__` of its bases, `__set_name__` of what it has.

Code of the user's has been told before, of a class that comes back; a library has not, in this process.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import content_of, line_of
from nls_jupyter.saved_state.looks import importable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_HEARD: Final = "__init_subclass__"
_NAMED: Final = "__set_name__"


def told(bases: Iterable[type]) -> list[type]:
    """Those above a class of these bases that may be told when one is made, but for Python's own."""
    return _having(_HEARD, bases)


@contextlib.contextmanager
def by_the_users(bases: Iterable[type], values: Iterable[Any] = ()) -> Iterator[None]:
    """No code of the user's is told of a class that is made of these bases, with these values; a library's is."""
    own: list[tuple[type, str, Any]]
    own = [(kind, _HEARD, classmethod(_passing_on(kind, _HEARD))) for kind in told(bases)]
    own += [(kind, _NAMED, _passing_on(kind, _NAMED)) for kind in _having(_NAMED, map(type, values))]
    kept = [(kind, name, content_of(kind)[name], silent) for kind, name, silent in own if not importable(kind)]
    try:
        for kind, name, _, silent in kept:
            setattr(kind, name, silent)
        yield
    finally:
        for kind, name, before, _ in kept:
            setattr(kind, name, before)


def _having(name: str, kinds: Iterable[type]) -> list[type]:
    lines = dict.fromkeys(base for kind in kinds for base in line_of(kind))
    return [kind for kind in lines if kind is not object and name in content_of(kind)]


def _passing_on(kind: type, name: str) -> Callable[..., None]:
    """What tells a library above a class of the user's, if that does."""
    own: Any = content_of(kind)[name]
    code = getattr(getattr(own, "__func__", own), "__code__", None)
    tells = name in getattr(code, "co_names", ())

    def pass_on(told: Any, /, *names: Any, **options: Any) -> None:
        if tells and (above := getattr(super(kind, told), name, None)) is not None:
            above(*names, **options)

    return pass_on
