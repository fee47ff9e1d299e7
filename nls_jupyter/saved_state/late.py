"""Containers that are filled once their members have all their attributes: these lead back to the container.

pickle puts members into a set or a dict at once, by a hash of what they are by then: often nothing, which fails, or the
defaults of their class, by which they are not found again, or taken for one another.
"""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Fill = Callable[[], object]

# Kinds whose content can come in later, and what puts it in.
_UPDATES: tuple[tuple[type, Callable[..., None]], ...] = (
    (set, set.update),
    (dict, dict.update),  # a Counter's own would add up
    (weakref.WeakSet, weakref.WeakSet.update),
)
_HASH_OF_ALL: frozenset[type] = frozenset({tuple, frozenset})
_LISTED: frozenset[type] = frozenset({list, tuple, dict})


class LeadsBackError(Exception):
    """What makes an object of others would see a container of which the members are not there yet."""


class Late:
    """What waits for the end of a frame, in order."""

    def __init__(self) -> None:
        self._fills: list[tuple[Any, Fill, BaseException]] = []
        self._states: list[tuple[Any, Fill]] = []
        self._filled_late: dict[int, BaseException] = {}
        self._unbuilt: dict[int, Any] = {}
        self._frozen: list[tuple[frozenset[Any], list[Any]]] = []

    def __bool__(self) -> bool:
        return bool(self._fills)

    def made(self, thing: Any) -> None:
        """`thing` is there, and may get its attributes later."""
        if hashes_in_python(type(thing)):
            self._unbuilt[id(thing)] = thing

    def built(self, thing: Any) -> None:
        """`thing` has its attributes."""
        self._unbuilt.pop(id(thing), None)

    def waits_for(self, members: Iterable[Any]) -> bool:
        """Whether the hash of any of them needs what is not there yet."""
        return bool(self._unbuilt) and any(id(one) in self._unbuilt for one in hashed_with(members))

    def holds(self, target: Any) -> bool:
        """Whether some of what belongs into `target` is not in it."""
        return id(target) in self._filled_late

    def among(self, parts: Sequence[Any]) -> BaseException | None:
        """Why a container that is among `parts`, or in one of them, is not filled; `None` without."""
        if not self._fills:
            return None
        listed = [part.values() if type(part) is dict else part for part in parts if type(part) in _LISTED]
        inside = [one for part in listed for one in part]
        return next((self._filled_late[id(one)] for one in (*parts, *inside) if self.holds(one)), None)

    def fill(self, target: Any, fill: Fill, why: BaseException | None = None) -> None:
        """Have `fill` put something into `target` later. It failed because of `why`, or may not be tried yet."""
        why = self._filled_late.setdefault(id(target), why or LeadsBackError("its members lead back to it"))
        self._fills.append((target, fill, why))

    def state(self, target: Any, give: Fill) -> None:
        """Have `give` give `target` its state in a way of its own, which may look at the containers."""
        self._unbuilt[id(target)] = target
        self._states.append((target, give))

    def frozen(self, made: frozenset[Any], members: list[Any]) -> None:
        """A frozenset has these already: it is looked at again."""
        self._frozen.append((made, members))

    def settle(self) -> list[tuple[Any, BaseException]]:
        """Do it all, as everything has its attributes. Returns what failed, and why."""
        failed: list[tuple[Any, BaseException]] = []
        self._unbuilt = {id(target): target for target, _ in self._states}
        while self._fills or self._states:
            if self._fill_some():
                continue
            if self._states:
                target, give = self._states.pop(0)
                self.built(target)
                failed += [(target, error) for error in _failure(give)]
            else:
                failed += [(target, error) for target, _, error in self._fills]
                self._fills.clear()
        for made, members in self._frozen:
            if len(made) < len(members) or not all(member in made for member in members):
                failed.append((made, LeadsBackError("the members of a frozenset lead back to it")))
        self._filled_late.clear()
        self._unbuilt.clear()
        self._frozen.clear()
        return failed

    def _fill_some(self) -> bool:
        """Each that can be filled now, if all before it for the same container could."""
        left: list[tuple[Any, Fill, BaseException]] = []
        stuck: set[int] = set()
        for target, fill, why in self._fills:
            errors = [why] if id(target) in stuck else _failure(fill)
            if errors:
                stuck.add(id(target))
                left.append((target, fill, errors[0]))
        done = len(left) < len(self._fills)
        self._fills = left
        return done


def _failure(work: Fill) -> list[BaseException]:
    """What it raised, if anything."""
    try:
        work()
    except SaveEndsError:
        raise
    except BaseException as error:  # noqa: BLE001 - the reason is told with each name that leads here
        return [error]
    return []


def hashes_in_python(kind: type) -> bool:
    """Whether the hash of its instances may be made of their attributes."""
    return type(kind.__hash__) is types.FunctionType


def hashed_with(members: Iterable[Any]) -> Iterator[Any]:
    """They, and what their hash is made of where they are tuples or frozensets."""
    todo = list(members)
    while todo:
        member = todo.pop()
        yield member
        if type(member) in _HASH_OF_ALL:
            todo += member


def container(kind: Any, args: Sequence[Any]) -> tuple[Any, Fill] | None:
    """An empty container, and what fills it, for what makes a full one by `kind(*args)`; else `None`.

    Raises what `kind` raises.
    """
    if not (isinstance(kind, type) and len(args) == 1 and type(args[0]) in {list, dict}):
        return None
    update = next((update for base, update in _UPDATES if issubclass(kind, base)), None)
    if update is None:
        return None
    made = kind()
    return made, lambda: update(made, args[0])
