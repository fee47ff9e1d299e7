"""Where a process keeps objects of the user's beside names: hooks, handlers, magics, formatters.

They lead to what names hold, too. So they are saved among the names, under labels such as `magic: %mine`, and go on
sharing with them. What a library has put there by its own code comes back with the library.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.looks import ATOMS, importable
from nls_jupyter.saved_state.manifest import MissingName, describe, type_name
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.watchdog import IMPORTING, StuckError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    Entry = tuple[Any, ...]

_SEPARATOR = ": "
_OURS = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Place:
    """One of them.

    Attributes:
        what: an entry is, for the user: `magic`.
        entries: what is there now, by a key that stays. The last part of each is the object itself: another one there
            is a change.
        put: takes the parts of an entry, in a new process; once more changes nothing.
        label: of an entry, from its key and its parts, for the user.
        comes_by_itself: whether an object is there again without us.
    """

    what: str
    entries: Callable[[], Iterable[tuple[Hashable, Entry]]]
    put: Callable[..., None]
    label: Callable[[Any, Entry], str] = lambda key, _: str(key)
    comes_by_itself: Callable[[Any], bool] = lambda _: False


class Places:
    """All places of a process. Made when it starts: what is there then is not the user's."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = {place.what: place for place in places}
        self._before = {place.what: dict(place.entries()) for place in places}
        self._labelled: dict[str, Entry] = {}

    def names(self) -> dict[str, Any]:
        """What cells have put there, by label. An entry that did not change is the same tuple as the last time."""
        found: dict[str, Entry] = {}
        for what, place in self._places.items():
            before = self._before[what]
            for key, parts in place.entries():
                if (was := before.get(key)) is not None and (was[-1] is parts[-1] or _same(was[-1:], parts[-1:])):
                    continue
                if not place.comes_by_itself(parts[-1]):
                    label = _unused(f"{what}{_SEPARATOR}{place.label(key, parts)}", found)
                    known = self._labelled.get(label)
                    found[label] = known if known is not None and _same(known, parts) else parts
        self._labelled = found
        return dict(found)

    def has(self, label: str) -> bool:
        """Whether it is a label of an entry here."""
        return label.partition(_SEPARATOR)[0] in self._places and _SEPARATOR in label

    def put(self, names: Mapping[str, Any]) -> list[MissingName]:
        """The inverse of `names`, in a new process; what could not be put back."""
        lost = []
        for label, parts in names.items():
            try:
                self._places[label.partition(_SEPARATOR)[0]].put(*parts)
            except (Exception, StuckError) as error:  # noqa: BLE001 - named, and the others are put back
                lost.append(MissingName(label, type_name(parts[-1]), describe(error)))
        return lost


def of_list(what: str, items: Callable[[], list[Any]], comes_by_itself: Callable[[Any], bool]) -> Place:
    """A list whose order matters: what is put there gets the position that it had."""

    def entries() -> list[tuple[Hashable, Entry]]:
        return [(id(item), (position, item)) for position, item in enumerate(items())]

    def put(position: int, item: Any) -> None:
        if item not in items():
            items().insert(position, item)

    return Place(what, entries, put, lambda _, parts: name_of(parts[-1]), comes_by_itself)


def name_of(thing: Any) -> str:
    """What to call a function or an object."""
    name: str = getattr(thing, "__qualname__", type(thing).__qualname__)
    return name.replace("<locals>.", "")


def asked_by_a_cell(*, no_import_of_theirs: bool = False) -> bool:
    """Whether the caller is called by the user's code, and not by an import, which a new process does again.

    Nor by that of a module of the user's, if it is to be so.
    """
    frame: types.FrameType | None = sys._getframe(1)
    the_users = vars(sys.modules["__main__"])
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if frame.f_globals is the_users:
            return True
        if not no_import_of_theirs and name != "__main__" and name in sys.modules and is_the_users_module(name):
            return True
        if frame.f_code.co_filename == IMPORTING:
            return False
        frame = frame.f_back
    return False


def is_librarys_code(thing: Any) -> bool:
    """Whether only a library's own code can have put this function there; it does so again when it is imported.

    What can be imported by its name may be the user's choice, and is put there once in any case.
    """
    if isinstance(thing, functools.partial):
        return is_librarys_code(thing.func) and not any(map(_is_the_users_code, thing.args))
    if isinstance(thing, types.MethodType):
        return not is_the_users_module(type(thing.__self__).__module__)
    if not isinstance(thing, types.FunctionType) or _is_the_users_code(thing):
        return False
    return not importable(thing) or thing.__module__.partition(".")[0] == _OURS


def is_librarys_object(thing: Any) -> bool:
    """As `is_librarys_code`, or an object of a library's class."""
    if isinstance(thing, (functools.partial, types.MethodType, types.FunctionType)):
        return is_librarys_code(thing)
    if isinstance(thing, type):
        return not is_the_users_module(thing.__module__)
    return not isinstance(thing, (enum.Enum, types.BuiltinFunctionType, *ATOMS)) and not is_the_users_module(
        type(thing).__module__
    )


def _is_the_users_code(thing: Any) -> bool:
    return isinstance(thing, types.FunctionType) and is_the_users_module(thing.__module__)


def _same(one: Entry, other: Entry) -> bool:
    return len(one) == len(other) and all(
        a is b or (type(a) in ATOMS and type(a) is type(b) and a == b) for a, b in zip(one, other, strict=True)
    )


def _unused(label: str, used: Mapping[str, Any]) -> str:
    number, free = 1, label
    while free in used:
        number += 1
        free = f"{label} ({number})"
    return free
