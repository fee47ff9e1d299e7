"""Containers that are filled once their members have all their attributes: these lead back to the container.

pickle puts members into a set or a dict at once, by a hash of what they are by then: often nothing, which fails, or the
defaults of their class, by which they are not found again, or taken for one another.
"""

from __future__ import annotations

import functools
import gc
import types
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.kinds import hash_of
from nls_jupyter.saved_state.lost import Why, why
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Work = Callable[[], object]

# Kinds whose content can come in later, and what puts it in.
_UPDATES: tuple[tuple[type, Callable[..., None]], ...] = (
    (set, set.update),
    (dict, dict.update),  # a Counter's own would add up
    (weakref.WeakSet, weakref.WeakSet.update),
)
_MOST_LOOKED_AT = 10_000
_LISTED: frozenset[type] = frozenset({list, tuple, dict})
#: What makes an object of others would see a container of which the members are not there yet.
LEADS_BACK = Why("its members lead back to it")
_FROZEN_LEADS_BACK = Why("the members of a frozenset lead back to it")


@dataclass(frozen=True, slots=True)
class _Fill:
    """Members that are to come into a container.

    Attributes:
        target: the container.
        members: what has to have a hash for it; of another container, that itself, which may have to wait too.
        put: does it; it may be done again after it failed half-way.
        why: what kept it from being done before.
    """

    target: Any
    members: Iterable[Any]
    put: Work
    why: Why


class Late:
    """What waits for the end of a frame, in order."""

    def __init__(self) -> None:
        self._fills: list[_Fill] = []
        self._states: list[tuple[Any, Work]] = []
        self._filled_late: dict[int, Why] = {}
        self._unbuilt: dict[int, Any] = {}
        self._frozen: list[tuple[frozenset[Any], list[Any]]] = []

    def made(self, thing: Any) -> None:
        """`thing` is there, and may get its attributes later."""
        if hashes_in_python(type(thing)):
            self._unbuilt[id(thing)] = thing

    def built(self, thing: Any) -> None:
        """`thing` has its attributes."""
        self._unbuilt.pop(id(thing), None)

    def waits_for(self, members: Iterable[Any]) -> bool:
        """Whether the hash of any of them may need what is not there yet, in it or in what it leads to."""
        return bool(self._unbuilt) and any(hashes_in_python(type(one)) for one in hashed_with(members))

    def holds(self, target: Any) -> bool:
        """Whether some of what belongs into `target` is not in it."""
        return id(target) in self._filled_late

    def among(self, parts: Sequence[Any]) -> Why | None:
        """Why a container that is among `parts`, or in one of them, is not filled; `None` without."""
        if not self._fills:
            return None
        listed = [part.values() if type(part) is dict else part for part in parts if type(part) in _LISTED]
        inside = [one for part in listed for one in part]
        return next((self._filled_late[id(one)] for one in (*parts, *inside) if self.holds(one)), None)

    def fill(self, target: Any, members: Iterable[Any], put: Work, reason: Why | None = None) -> None:
        """Have `put` put `members` into `target` later. It failed for `reason`, or may not be tried yet."""
        reason = self._filled_late.setdefault(id(target), reason or LEADS_BACK)
        self._fills.append(_Fill(target, members, put, reason))

    def state(self, target: Any, state: Any, give: Work) -> bool:
        """Have `give` give `target` its state in a way of its own later, if that may look at what is not there yet."""
        if not self._fills and not self._leads_to_unbuilt(state):
            return False
        self._unbuilt[id(target)] = target
        self._states.append((target, give))
        return True

    def _leads_to_unbuilt(self, state: Any) -> bool:
        """Whether code that gets `state` can come by something without attributes; also for far too much to tell."""
        todo, seen = [state], set[int]()
        while todo and self._unbuilt and len(seen) < _MOST_LOOKED_AT:
            node = todo.pop()
            if id(node) in self._unbuilt:
                return True
            if id(node) not in seen:
                seen.add(id(node))
                todo += [child for child in gc.get_referents(node) if not isinstance(child, (type, types.ModuleType))]
        return bool(todo and self._unbuilt)

    def frozen(self, made: frozenset[Any], members: list[Any]) -> None:
        """A frozenset has these already: it is looked at again."""
        self._frozen.append((made, members))

    def settle(self) -> list[tuple[Any, Why]]:
        """Do it all, as everything has its attributes. Returns what failed, and why."""
        failed: list[tuple[Any, Why]] = []
        self._unbuilt = {id(target): target for target, _ in self._states}
        while self._fills or self._states:
            if self._fill_some():
                continue
            if self._states:
                target, give = self._states.pop(0)
                self.built(target)
                failed += [(target, reason) for reason in _failure(give)]
            else:
                failed += [(fill.target, fill.why) for fill in self._fills]
                self._fills.clear()
        for made, members in self._frozen:
            if len(made) < len(members) or not all(frozenset.__contains__(made, member) for member in members):
                failed.append((made, _FROZEN_LEADS_BACK))
        self._filled_late.clear()
        self._unbuilt.clear()
        self._frozen.clear()
        return failed

    def _fill_some(self) -> bool:
        """Each that can be filled now, if all before it for the same container, and for its members', could."""
        left: list[_Fill] = []
        stuck: set[int] = set()
        for fill in self._fills:
            waits = {id(fill.target), id(fill.members)} & stuck or self._needs_state(fill.members)
            reasons = [fill.why] if waits else _failure(fill.put)
            if reasons:
                stuck.add(id(fill.target))
                left.append(replace(fill, why=reasons[0]))
        done = len(left) < len(self._fills)
        self._fills = left
        return done

    def _needs_state(self, members: Iterable[Any]) -> bool:
        return bool(self._unbuilt) and any(id(one) in self._unbuilt for one in hashed_with(members))


def _failure(work: Work) -> list[Why]:
    """Why it failed, if it did."""
    try:
        work()
    except SaveEndsError:
        raise
    except BaseException as error:  # noqa: BLE001 - the reason is told with each name that leads here
        return [why(error)]
    return []


def hashes_in_python(kind: type) -> bool:
    """Whether the hash of its instances may be made of their attributes."""
    return type(hash_of(kind)) is types.FunctionType


def hashed_with(members: Iterable[Any]) -> Iterator[Any]:
    """They, and what their hash is made of where they are tuples or frozensets."""
    todo, seen = list(members), set[int]()
    while todo:
        member = todo.pop()
        yield member
        own = hash_of(type(member))
        kind: Any = next((base for base in (tuple, frozenset) if own is hash_of(base)), None)
        if kind is not None and id(member) not in seen:
            seen.add(id(member))
            todo += kind.__iter__(member)


def _update_of(kind: Any) -> Callable[..., None] | None:
    bases = kind.__mro__ if isinstance(kind, type) else ()
    return next((update for base, update in _UPDATES if base in bases), None)


def is_container(kind: Any) -> bool:
    """Whether it is a class whose instances can be filled later."""
    return _update_of(kind) is not None


def container(kind: Any, args: Sequence[Any]) -> tuple[Any, Work] | None:
    """An empty container, and what puts `args[0]` into it, in place of `kind(*args)`; `None` for what is none.

    Raises what `kind` raises.
    """
    update = _update_of(kind)
    if update is None or len(args) != 1 or type(args[0]) not in {list, dict}:
        return None
    made = kind()
    return made, lambda: update(made, args[0])


#: What refers to its arguments, or shows them, and does not look into them.
ONLY_REFERS = (getattr, functools.partial, types.MethodType, types.MappingProxyType, weakref.ref, weakref.proxy)
