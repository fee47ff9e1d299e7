"""Whether a component has sets or dicts whose members lead back to them, and get their hash from what they lead to.

Such a component is read by the unpickler that can wait with them (`late.py`), which is about fifty times slower.
"""

from __future__ import annotations

import gc
import weakref
from itertools import chain
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.kinds import hash_of, is_of
from nls_jupyter.saved_state.late import hashed_with, hashes_in_python
from nls_jupyter.saved_state.looks import ATOMS, is_array
from nls_jupyter.saved_state.tolerant import ONE_BY_ONE, children_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

_CONTAINERS: tuple[Any, ...] = (set, frozenset, dict)
_WEAK = (weakref.WeakSet, weakref.WeakKeyDictionary)
_HASHES_OF_PARTS: tuple[Any, ...] = (tuple.__hash__, frozenset.__hash__)
_AT_ONCE = 1 << 10


def may_lead_back(thing: Any) -> bool:
    """Whether an instance has more than plain values, so that a cycle can go through it."""
    parts = [part for part in gc.get_referents(thing) if part is not type(thing)]
    inside = chain.from_iterable(chain(part, part.values()) if type(part) is dict else (part,) for part in parts)
    return not all(type(part) in ATOMS for part in inside)


def has_hash_cycles(
    roots: Collection[Any],
    namespaces: Iterable[Mapping[str, Any]],
    tick: Callable[[], None],
    met: Container[type],
) -> bool:
    """Whether any container that the roots lead to is in a cycle with what the hash of a member of it is made of.

    Args:
        roots: a component's values.
        namespaces: the user's, which are not looked into.
        tick: called now and then; what it raises ends the look.
        met: the types of what is pickled; of others there is nothing in a stream that could be hashed.
    """
    left_out = {id(namespace) for namespace in namespaces}
    if not _leads_to_hashed(roots, left_out, tick, met):
        return False
    groups = _Groups(left_out, tick)
    for root in roots:
        groups.walk(root)
    return any(
        groups.of(node) == groups.of(member)
        for node in groups.containers
        for member in hashed_with(_members(node))
        if _is_hashed(type(member), met)
    )


def _leads_to_hashed(
    roots: Iterable[Any], left_out: Container[int], tick: Callable[[], None], met: Container[type]
) -> bool:
    """Whether there is any container with such a member: most objects are looked at together, and few one by one."""
    seen: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        tick()
        some = todo[-_AT_ONCE:]
        del todo[-_AT_ONCE:]
        found = {id(thing): thing for thing in some if type(thing) not in ATOMS and id(thing) not in left_out}
        fresh = [thing for number, thing in found.items() if number not in seen]
        seen.update(found)
        kinds = set(map(type, fresh))
        hashing = {kind for kind in kinds if kind in _WEAK or issubclass(kind, _CONTAINERS)}
        if hashing and _have_hashed([thing for thing in fresh if type(thing) in hashing], met):
            return True
        alone = {kind for kind in kinds if kind in _WEAK or issubclass(kind, ONE_BY_ONE) or is_array(kind)}
        todo += gc.get_referents(*(thing for thing in fresh if type(thing) not in alone))
        todo += chain.from_iterable(_children(thing) for thing in fresh if type(thing) in alone)
    return False


def _have_hashed(containers: list[Any], met: Container[type]) -> bool:
    """Whether any of these has a member whose hash may be made of its attributes."""
    members = [*chain.from_iterable(map(_members, containers))]
    kinds = set(map(type, members))
    of_parts = {kind for kind in kinds if any(hash_of(kind) is of_parts for of_parts in _HASHES_OF_PARTS)}
    parts = hashed_with(member for member in members if type(member) in of_parts) if of_parts else ()
    return any(_is_hashed(kind, met) for kind in chain(kinds, map(type, parts)))


def _is_hashed(kind: type, met: Container[type]) -> bool:
    """Whether instances may be hashed by their attributes when they are made again: of those met, or of a metaclass."""
    return hashes_in_python(kind) and (kind in met or issubclass(kind, type))


def _children(node: Any) -> Iterator[Any]:
    return chain(children_of(node), list(node)) if type(node) in _WEAK else children_of(node)


def _members(node: Any) -> list[Any]:
    """Past what a class of somebody's makes of its iteration."""
    return list(next((base.__iter__(node) for base in _CONTAINERS if is_of(node, base)), node))


class _Groups:
    """Which objects lead to each other: strongly connected components, by Tarjan's algorithm without recursion."""

    def __init__(self, left_out: Container[int], tick: Callable[[], None]) -> None:
        self._left_out = left_out
        self._tick = tick
        self._number: dict[int, int] = {}
        self._lowest: dict[int, int] = {}
        self._open: list[Any] = []
        self._group: dict[int, int] = {}
        self._alive: list[Any] = []
        self.containers: list[Any] = []

    def of(self, node: Any) -> int | None:
        """Equal for two that lead to each other."""
        return self._group.get(id(node))

    def walk(self, root: Any) -> None:
        """All that `root` leads to."""
        if id(root) in self._number:
            return
        path = [(root, self._enter(root))]
        while path:
            node, children = path[-1]
            for child in children:
                known = self._number.get(id(child))
                if known is None:
                    path.append((child, self._enter(child)))
                    break
                if id(child) not in self._group:
                    self._lowest[id(node)] = min(self._lowest[id(node)], known)
            else:
                path.pop()
                self._leave(node, path[-1][0] if path else None)

    def _enter(self, node: Any) -> Iterator[Any]:
        self._number[id(node)] = self._lowest[id(node)] = len(self._number)
        self._open.append(node)
        self._alive.append(node)
        if len(self._alive) % _AT_ONCE == 0:
            self._tick()
        if type(node) in _WEAK or issubclass(type(node), _CONTAINERS):
            self.containers.append(node)
        return (child for child in _children(node) if type(child) not in ATOMS and id(child) not in self._left_out)

    def _leave(self, node: Any, parent: Any) -> None:
        lowest = self._lowest[id(node)]
        if lowest == self._number[id(node)]:
            while True:
                member = self._open.pop()
                self._group[id(member)] = lowest
                if member is node:
                    break
        if parent is not None:
            self._lowest[id(parent)] = min(self._lowest[id(parent)], lowest)
