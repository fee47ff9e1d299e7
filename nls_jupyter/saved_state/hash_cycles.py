"""Whether a component has sets or dicts whose members lead back to them, and get their hash from what they lead to.

Such a component is read by the unpickler that can wait with them (`late.py`), which is about fifty times slower.
"""

from __future__ import annotations

import gc
import weakref
from itertools import chain
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.late import hashed_with, hashes_in_python
from nls_jupyter.saved_state.looks import ATOMS
from nls_jupyter.saved_state.tolerant import children_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_CONTAINERS: tuple[Any, ...] = (set, frozenset, dict)
_WEAK = (weakref.WeakSet, weakref.WeakKeyDictionary)
_AT_ONCE = 1 << 10


def may_lead_back(thing: Any) -> bool:
    """Whether an instance has more than plain values, so that a cycle can go through it."""
    parts = [part for part in gc.get_referents(thing) if part is not type(thing)]
    inside = chain.from_iterable(chain(part, part.values()) if type(part) is dict else (part,) for part in parts)
    return not all(type(part) in ATOMS for part in inside)


def has_hash_cycles(roots: Iterable[Any], namespaces: Iterable[Mapping[str, Any]], tick: Callable[[], None]) -> bool:
    """Whether any container that the roots lead to is in a cycle with what the hash of a member of it is made of.

    Args:
        roots: a component's values.
        namespaces: the user's, which are not looked into.
        tick: called now and then; what it raises ends the look.
    """
    groups = _Groups(namespaces, tick)
    for root in roots:
        groups.walk(root)
    return any(
        groups.of(node) == groups.of(member)
        for node in groups.containers
        for member in hashed_with(_members(node))
        if hashes_in_python(type(member))
    )


def _members(node: Any) -> list[Any]:
    """Past what a class of somebody's makes of its iteration."""
    return list(next((base.__iter__(node) for base in _CONTAINERS if is_of(node, base)), node))


class _Groups:
    """Which objects lead to each other: strongly connected components, by Tarjan's algorithm without recursion."""

    def __init__(self, namespaces: Iterable[Mapping[str, Any]], tick: Callable[[], None]) -> None:
        self._left_out = {id(namespace) for namespace in namespaces}
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
        weak = type(node) in _WEAK
        if weak or issubclass(type(node), _CONTAINERS):
            self.containers.append(node)
        children = chain(children_of(node), list(node) if weak else ())
        return (child for child in children if type(child) not in ATOMS and id(child) not in self._left_out)

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
