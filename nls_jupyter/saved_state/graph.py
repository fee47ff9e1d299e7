"""One walk over all that the names lead to: which names belong together, and which have changed.

Names that share something that can be changed, or memory, form one component. A component's digest is that of the
identities of all its objects in the order of the walk; those of immutable ones are kept from being used again by
keeping these objects. Big containers are looked at in bulk, which costs less than pickling them.
"""

from __future__ import annotations

import builtins
import enum
import functools
import gc
import logging
import sys
import types
from array import array
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import xxhash

from nls_jupyter.saved_state import figures, handles, inline, loggers, looks, sentinels, widgets
from nls_jupyter.saved_state.bulk import Bulk
from nls_jupyter.saved_state.kinds import module_of
from nls_jupyter.saved_state.looks import OwnGlobals, held_by_array
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nls_jupyter.saved_state.looks import Look, Memory

_SEQUENCES: frozenset[type] = frozenset({list, tuple, set, frozenset})
_BULKY: frozenset[type] = frozenset({list, tuple, dict})
_DICT = {dict}
_STRINGS: frozenset[type] = frozenset({str, bytes})
#: Classes of others have content of their own.
_METACLASSES: frozenset[type] = frozenset({type, enum.EnumType})
#: What several names share of immutable contents is worth being saved once from here on.
_LARGE_BYTES = 4096
# Owns what each process has: Python's builtins, which every namespace leads to.
_OF_PYTHON = -2
# One's array is made again of the other's memory, where that holds all of it.
_REBUILT = {"cupy", "torch"}
# From here on a level is handled in bulk, without a look at each of its objects where that can be.
_MANY = 2_000
# As many objects of a level are walked at once, and looked at one by one between two ticks.
_AT_ONCE = 1 << 12
_BETWEEN_TICKS = 1 << 8


@dataclass(slots=True)
class Component:
    """Names that are saved together.

    Attributes:
        names: in the order of the namespace.
        digest: equal to an earlier one while that one's `held` is alive: nothing but the memory's content can have
            changed. `None`: only its pickle tells.
        nodes: how many objects it has, without immutable ones.
        held: immutable objects, whose identity the digest is made of.
        has_memory: whether any of it shows memory that lies in a region.
        identities: as `digest`, also where only a pickle tells the rest.
    """

    names: list[str]
    digest: bytes | None
    nodes: int
    held: list[Any]
    has_memory: bool
    identities: bytes = b""


@dataclass(slots=True)
class _Name:
    """What was learnt about one name.

    Attributes:
        digest: of all that was seen first under this name.
        opaque: some of it can only be pickled.
        nodes: how many objects.
        held: see `Component`.
        has_memory: see `Component`.
    """

    digest: Any = field(default_factory=xxhash.xxh3_128)
    opaque: bool = False
    nodes: int = 0
    held: list[Any] = field(default_factory=list)
    has_memory: bool = False


class Graph:
    """The objects behind a namespace, as seen once.

    Attributes:
        memories: all memory that was met, by key.
        holders: the objects that show memory.
        flat: the size of the pickle without a memo of big containers that alone hold what is in them, and nothing is
            behind that; by identity.
        torn: names that show memory of a device which another library shows too; known after `components`.
        sets: those that were met first under each name, if any were.
        globals: dicts that functions have as their globals and that are no module's, by each name of the component that
            they are in, with Python's builtins first where any of it leads there; known after `components`.
    """

    def __init__(
        self,
        lookers: Mapping[type, Callable[[Any], Look | None]],
        leaves: tuple[type, ...],
        namespaces: Iterable[Mapping[str, Any]],
        tick: Callable[[], None],
    ) -> None:
        self.memories: dict[object, Memory] = {}
        self.holders: list[Any] = []
        self.flat: dict[int, int] = {}
        self.torn: set[str] = set()
        self.sets: dict[str, list[set[Any]]] = {}
        self.globals: dict[str, list[OwnGlobals]] = {}
        self._lookers = {**looks.LOOKERS, **lookers}
        immutable = {kind for kind, looker in lookers.items() if looker is looks.ATOM}
        self._leaves = leaves
        self._namespaces = {id(namespace) for namespace in namespaces}
        self._tick = tick
        self._bulk = Bulk(tick)
        self._atoms = looks.ATOMS | immutable
        # Shared by everybody and without content; never a reason to belong together.
        self._owner: dict[int, int] = dict.fromkeys((id(()), id(frozenset()), *self._namespaces), -1)
        self._owner[id(vars(builtins))] = _OF_PYTHON
        self._alive: list[Any] = []
        # Objects of these types may be saved as a reference to where they can be imported from.
        self._references: dict[type, Callable[[Any], bool]] = {
            types.MethodType: looks.is_exported,
            types.BuiltinFunctionType: looks.is_found_builtin,
            **dict.fromkeys(looks.DESCRIPTORS, looks.is_found_descriptor),
            types.MappingProxyType: sentinels.is_one,
            **dict.fromkeys((logging.Logger, logging.RootLogger), looks.is_registered),
            **dict.fromkeys(handles.streams(), handles.is_standard),
        }
        self._names: list[_Name] = []
        self._labels: list[str] = []
        self._parent: list[int] = []
        self._spans: dict[str, list[tuple[int, int, int, str]]] = {}
        self._own_globals: dict[int, OwnGlobals] = {}
        self._with_builtins: set[int] = set()

    # -- walking ----------------------------------------------------------------------------------------------------
    def add(self, name: str, value: Any) -> None:
        """Walk over what `name` leads to, as far as no earlier name did."""
        number = len(self._names)
        seen = _Name()
        self._labels.append(name)
        self._names.append(seen)
        self._parent.append(number)
        seen.digest.update(name.encode())
        level: list[Any] = [value]
        try:
            while level:
                behind: list[Any] = []
                for start in range(0, len(level), _AT_ONCE):
                    self._tick()
                    behind += self._walk(number, seen, level[start : start + _AT_ONCE])
                level = behind
        except SaveEndsError:
            raise
        except BaseException:  # noqa: BLE001 - a container changed its size under the walk: a thread is at work; or worse
            seen.opaque = True

    def _walk(self, number: int, seen: _Name, level: list[Any]) -> list[Any]:
        """A level, or a part of a large one; returns what lies behind it."""
        seen.digest.update(array("Q", map(id, level)))
        try:
            kinds = set(map(type, level))
        except SaveEndsError:
            raise
        except BaseException:  # noqa: BLE001 - there is a class that cannot be told from others
            return self._one_by_one(number, seen, level)
        if kinds <= self._atoms:
            self._hold(number, seen, level)
            return []
        if kinds & self._atoms:
            atoms = self._atoms
            self._hold(number, seen, [thing for thing in level if type(thing) in atoms])
            level = [thing for thing in level if type(thing) not in atoms]
        fresh = self._new_among(number, level)
        seen.nodes += len(fresh)
        seen.digest.update(array("Q", map(id, map(type, fresh))))
        if set in kinds:
            self.sets.setdefault(self._labels[number], []).extend(thing for thing in fresh if type(thing) is set)
        if kinds == _DICT:
            return self._behind_containers(seen, (), fresh)
        sequences = [thing for thing in fresh if type(thing) in _SEQUENCES]
        dicts = [thing for thing in fresh if type(thing) is dict]
        behind = self._behind_containers(seen, sequences, dicts)
        if len(sequences) + len(dicts) < len(fresh):
            others = (thing for thing in fresh if type(thing) not in _SEQUENCES and type(thing) is not dict)
            for looked_at, thing in enumerate(others, start=1):
                behind += self._look(number, seen, thing)
                if looked_at % _BETWEEN_TICKS == 0:
                    self._tick()
        return behind

    def _one_by_one(self, number: int, seen: _Name, level: list[Any]) -> list[Any]:
        """As `_walk`; what has a class without a hash is left to the pickler, which names it."""
        if len(level) > 1:
            return [behind for thing in level for behind in self._walk(number, seen, [thing])]
        seen.opaque = True
        return self._behind(level[0]) if self._is_new(number, level[0]) else []

    def _behind_containers(self, seen: _Name, sequences: Sequence[Any], dicts: Sequence[Any]) -> list[Any]:
        seen.digest.update(array("Q", map(len, chain(sequences, dicts))))
        if any(len(container) > _MANY for container in chain(sequences, dicts)):
            sequences = [container for container in sequences if not self._in_bulk(seen, container)]
            dicts = [container for container in dicts if not self._in_bulk(seen, container)]
        behind = list(chain.from_iterable(chain(sequences, dicts)))
        behind += chain.from_iterable(map(dict.values, dicts))
        return behind

    def _in_bulk(self, seen: _Name, container: Any) -> bool:
        flat = self._bulk.look_at(container) if len(container) > _MANY and type(container) in _BULKY else None
        if flat is None:
            return False
        seen.digest.update(flat.digest)
        seen.nodes += len(container)
        self.flat[id(container)] = flat.size_bytes
        return True

    def _hold(self, number: int, seen: _Name, things: list[Any]) -> None:
        seen.held.append(things)
        for large in [thing for thing in things if type(thing) in _STRINGS and len(thing) >= _LARGE_BYTES]:
            self._is_new(number, large)

    def _new_among(self, number: int, things: list[Any]) -> list[Any]:
        if len(things) > _MANY:
            ids = set(map(id, things))
            if len(ids) == len(things) and self._owner.keys().isdisjoint(ids):  # the plain case, in bulk
                self._owner.update(zip(ids, repeat(number)))
                return things
        return [thing for thing in things if self._is_new(number, thing)]

    def _is_new(self, number: int, thing: Any) -> bool:
        whose = self._owner.get(id(thing))
        if whose is None:
            self._owner[id(thing)] = number
            return True
        if whose == _OF_PYTHON:
            self._with_builtins.add(number)
        elif whose not in {number, -1}:
            self._join(number, whose)
        return False

    # -- single objects ---------------------------------------------------------------------------------------------
    def _look(self, number: int, seen: _Name, thing: Any) -> Iterable[Any]:
        try:
            looker = self._looker(type(thing))
            is_reference = self._references.get(type(thing))
            if type(thing) in self._atoms or (is_reference is not None and is_reference(thing)):
                seen.held.append(thing)
                self._owner[id(thing)] = -1
                return ()
            look = looker(thing)
        except SaveEndsError:
            raise
        except BaseException:  # noqa: BLE001 - the pickler meets the same, and names it
            look = None
        if look is None:
            seen.opaque = True
            return self._behind(thing)
        seen.opaque |= look.is_opaque
        self._alive.append(look)  # what was made for the look must not lose its identity to the next one
        seen.digest.update(look.token + len(look.children).to_bytes(4, "little"))
        if look.memory is not None:
            self._meet(number, thing, look.memory)
        return look.children

    def _looker(self, kind: type) -> Callable[[Any], Look | None]:
        looker = self._lookers.get(kind)
        if looker is None:
            looker = self._lookers[kind] = self._find_looker(kind)
        return looker

    def _find_looker(self, kind: type) -> Callable[[Any], Look | None]:
        if issubclass(kind, type):
            self._references[kind] = looks.importable
            return looks.look_at_class if kind in _METACLASSES else _opaque
        if kind is types.FunctionType:
            self._references[kind] = looks.is_found
            # Never `self`: a cycle keeps all that it met.
            return functools.partial(looks.look_at_function, self._namespaces, self._own_globals)
        looker = None if issubclass(kind, self._leaves) else widgets.looker(kind) or figures.looker(kind)
        if looker is not None:
            return looker
        if (looker := loggers.looker(kind)) is not None:
            return looker
        if issubclass(kind, enum.Enum) and looks.importable(kind):
            self._atoms |= {kind}
        if sentinels.may_be(kind):
            self._references[kind] = sentinels.is_one
        slots = None if issubclass(kind, self._leaves) else looks.slots_of(kind)
        if slots is None:
            return _opaque
        layouts = inline.layouts_of(kind)
        return functools.partial(looks.look_at_instance, slots, layouts.of if layouts is not None else _opaque)

    def _behind(self, thing: Any) -> list[Any]:
        """What an object that only its pickle tells about may lead to; rather too much than too little."""
        # Never isinstance: it asks the object itself, and a proxy whose object is gone raises.
        kind = type(thing)
        if issubclass(kind, (*self._leaves, types.ModuleType)):
            return []
        if inside := held_by_array(thing):
            self._alive.append(inside)
            return inside
        outside = id(thing.__globals__) if kind is types.FunctionType else None
        return [behind for behind in gc.get_referents(thing) if id(behind) != outside]

    def _meet(self, number: int, thing: Any, memory: Memory) -> None:
        self.memories.setdefault(memory.key, memory)
        self.holders.append(thing)
        self._names[number].has_memory = True
        if memory.size_bytes:
            span = (memory.start, memory.start + memory.size_bytes, number, module_of(type(thing)).partition(".")[0])
            self._spans.setdefault(memory.space, []).append(span)

    # -- components -------------------------------------------------------------------------------------------------
    def components(self) -> list[Component]:
        """Names by what they share; none of them shares anything with another."""
        for space, spans in self._spans.items():
            self._join_overlapping(sorted(spans), on_device=space != "host")
        members: dict[int, list[int]] = {}
        for number in range(len(self._names)):
            members.setdefault(self._root(number), []).append(number)
        found = [self._component(numbers) for numbers in members.values()]
        self._alive.clear()
        self._tell_globals(members)
        return found

    def _tell_globals(self, members: Mapping[int, list[int]]) -> None:
        found = {self._root(number): [OwnGlobals(vars(builtins))] for number in self._with_builtins}
        unheld = sum(map(sys.getrefcount, [OwnGlobals({}).content]))
        for key, own in self._own_globals.items():
            own.is_held = sum(map(sys.getrefcount, [own.content])) > unheld + 1 + own.functions
            if (owner := self._owner.get(key)) is not None:  # else the walk ended before
                found.setdefault(self._root(owner), []).append(own)
        self.globals = {self._labels[number]: own for root, own in found.items() for number in members[root]}

    def names_on_devices(self) -> set[str]:
        """Names under which memory of a device was met first."""
        return {
            self._labels[number] for space, spans in self._spans.items() if space != "host" for _, _, number, _ in spans
        }

    def _join_overlapping(self, spans: list[tuple[int, int, int, str]], *, on_device: bool) -> None:
        begin, end, owner, whose = -1, -1, -1, ""
        for position, (first, last, number, library) in enumerate(spans):
            if position % _BETWEEN_TICKS == 0:
                self._tick()
            if first < end:
                self._join(number, owner)
                rebuilt = {library, whose} == _REBUILT and (last <= end or first == begin)
                if on_device and library != whose and not rebuilt:
                    self.torn |= {self._labels[number], self._labels[owner]}
            if last > end:
                begin, end, owner, whose = first, last, number, library

    def _component(self, numbers: list[int]) -> Component:
        names = [self._names[number] for number in numbers]
        identities = xxhash.xxh3_128_digest(b"".join(name.digest.digest() for name in names))
        held = [thing for name in names for thing in name.held]
        return Component(
            names=[self._labels[number] for number in numbers],
            digest=None if any(name.opaque for name in names) else identities,
            nodes=sum(name.nodes for name in names),
            held=held,
            has_memory=any(name.has_memory for name in names),
            identities=identities,
        )

    def _join(self, one: int, other: int) -> None:
        one, other = self._root(one), self._root(other)
        self._parent[max(one, other)] = min(one, other)

    def _root(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = number = self._parent[self._parent[number]]
        return number


def _opaque(_: Any) -> None:
    return None
