"""Whether anybody but a component's names holds one of its objects, counted as the garbage collector counts.

All that the names lead to is visited by `gc.get_referents`, down to what is immutable or a library's own. The objects
have so many references; so many of these were met on the way, and so many are the names' own. If that is all, nobody
else has one. Only references that are real are met, so that an error leaves somebody over: then the component counts as
held by others, which costs time and nothing else.
"""

from __future__ import annotations

import abc
import array
import builtins
import collections
import enum
import functools
import gc
import logging
import sys
import types
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import ABC_CONTENT
from nls_jupyter.saved_state import handles, looks
from nls_jupyter.saved_state.kinds import content_of, module_of, name_of
from nls_jupyter.saved_state.manifest import is_result
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

# Types in C whose references are all met.
_PLAIN: frozenset[type] = frozenset(
    {
        *(object, type, list, dict, set, tuple, frozenset, bytearray, slice, property, staticmethod, classmethod),
        *(array.array, collections.deque, collections.OrderedDict, collections.defaultdict, functools.partial),
        *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.CellType, types.MappingProxyType),
        *(types.GetSetDescriptorType, types.MemberDescriptorType, weakref.ref, enum.EnumType),
        type(ABC_CONTENT.of(abc.ABC, None)),
    }
)
_PLAIN_BY_NAME = frozenset({("numpy", "ndarray")})
_PLAIN_MODULES = ("pandas._libs.", "pyarrow.lib")
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
#: A text with this in it counts as the word.
MAIN = "__main__"
# Of these, and of classes, many are a library's own.
_REFERENCES = frozenset({types.FunctionType, types.BuiltinFunctionType, logging.Logger, logging.RootLogger})
# Whatever name a notebook has them by, they are told by their own.
_TOLD = (types.ModuleType, types.BuiltinFunctionType, types.FunctionType)
# Python without a global lock does not count all references at once.
_ALL_COUNTED = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
# More objects than so many times those of a walk: this has left what is the user's.
_BEYOND = 8
_BEYOND_AT_LEAST = 20_000


@dataclass(slots=True)
class Found:
    """What is behind a component's names.

    Attributes:
        alone: see the module.
        beyond: too much to be looked at.
        functions: those whose globals are the notebook's names, by identity.
        words: all that their code says, and the names of library functions and modules that are there.
    """

    alone: bool = True
    beyond: bool = False
    functions: set[int] = field(default_factory=set)
    words: set[str] = field(default_factory=set)


class Counts:
    """One look at many components, of which no object is held by anything that saves.

    Args:
        names: all names.
        namespace: the globals of the notebook's functions.
        holders: all mappings that hold values by these names.
        results: see `Interpreter.shown`.
        flat: see `Graph`, of a walk right before.
        tick: called now and then; what it raises ends the look.
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        namespace: Mapping[str, Any],
        holders: Iterable[Mapping[str, Any]],
        results: Iterable[int],
        flat: Set[int],
        tick: Callable[[], None],
    ) -> None:
        self._names = names
        self._namespace = id(namespace)
        self._holders = list({id(mapping): mapping for mapping in (names, *holders)}.values())
        self._results = collections.Counter(results)
        modules = [module for module in list(sys.modules.values()) if type(module) is types.ModuleType]
        fields = vars(sys.modules.get("dataclasses", builtins))  # what fields have for nothing is there
        self._modules = {*map(id, map(vars, modules))} - {id(namespace)}
        self._library = {*self._modules, *map(id, self._holders), *map(id, fields.values())}
        self._library |= {id(()), id(frozenset()), id(vars(builtins)), id(namespace)}
        self._references = _REFERENCES | {*handles.streams()}
        self._are_librarys: dict[int, bool] = {}
        self._atoms: set[type] = set(looks.ATOMS)
        self._kinds: dict[int, bool] = {}  # whether plain, by identity: a reference more would be somebody else's
        self._flat = flat
        self._tick = tick
        self._none_held = sum(map(sys.getrefcount, [object()]))

    def of(self, members: Sequence[str], nodes: int) -> Found:
        """Of one component, of which a walk met so many objects."""
        found = Found()
        try:
            left_over = self._count(members, max(_BEYOND * nodes, _BEYOND_AT_LEAST), found)
            found.alone = found.alone and left_over == 0 and _ALL_COUNTED
        except SaveEndsError:
            raise
        except BaseException:  # noqa: BLE001 - whatever an object does about being looked at: it counts as held
            found.alone, found.beyond = False, True
        return found

    def _count(self, members: Sequence[str], most: int, found: Found) -> int:
        """References that are left over, of the objects and weak ones; negative ones do not come up."""
        level = self._own([self._names[name] for name in members], found)
        references = self._of_names(members, set(map(id, level)))
        met: list[list[Any]] = []
        seen: set[int] = set()
        while level:
            level = _new_of(level, seen)
            if len(seen) > most:
                found.beyond = True
                return -1
            met.append(level)
            self._tick()
            level = self._own(self._behind(level, found), found)
            references += len(level)
        del level
        held = sum(sum(map(sys.getrefcount, things)) - self._none_held * len(things) for things in met)
        return held - references + sum(_weak(things, seen) for things in met)

    def _of_names(self, members: Sequence[str], own: set[int]) -> int:
        which = {name: id(self._names[name]) for name in members if id(self._names[name]) in own}
        held = sum(id(mapping.get(name)) == value for mapping in self._holders for name, value in which.items())
        if any(map(is_result, members)):
            held += sum(self._results[value] for value in set(which.values()))
        return held

    def _own(self, level: list[Any], found: Found) -> list[Any]:
        """Without what is immutable or a library's own."""
        kinds = set(map(type, level))
        for kind in kinds:
            if id(kind) not in self._kinds:
                self._kinds[id(kind)] = _is_plain(kind)
                if _is_atom(kind):
                    self._atoms.add(kind)
        if not kinds.isdisjoint(_TOLD):
            found.words |= {word for thing in level if type(thing) in _TOLD for word in self._called(thing)}
        if not kinds.isdisjoint(self._atoms):
            atoms = self._atoms
            level = [thing for thing in level if type(thing) not in atoms] if not kinds <= atoms else []
        kinds -= self._atoms
        found.alone = found.alone and all(self._kinds[id(kind)] for kind in kinds)
        if references := {kind for kind in kinds if kind in self._references or issubclass(kind, type)}:
            level = [thing for thing in level if type(thing) not in references or not self._is_a_librarys(thing)]
        if not self._library.isdisjoint(map(id, level)):
            level = [thing for thing in level if id(thing) not in self._library]
        return level

    def _is_a_librarys(self, thing: Any) -> bool:
        known = self._are_librarys.get(id(thing))
        if known is None:
            known = self._are_librarys[id(thing)] = _is_a_librarys(thing)
        return known

    def _called(self, thing: Any) -> Iterator[str]:
        """What it is called where it comes from, unless that is the notebook."""
        if type(thing) is not types.FunctionType or id(thing.__globals__) != self._namespace:
            said = (thing.__name__, getattr(thing, "__module__", None))
            yield from (word for word in said if type(word) is str)

    def _behind(self, things: list[Any], found: Found) -> list[Any]:
        kinds = set(map(type, things))
        if types.FunctionType in kinds:
            for thing in things:
                if type(thing) is types.FunctionType and id(thing.__globals__) not in self._modules:
                    found.words |= words_of(thing.__code__)
                    if id(thing.__globals__) == self._namespace:
                        found.functions.add(id(thing))
        if not self._flat.isdisjoint(map(id, things)):
            things = [thing for thing in things if id(thing) not in self._flat]
        behind = gc.get_referents(*things)
        if "numpy" in sys.modules and any(issubclass(kind, sys.modules["numpy"].ndarray) for kind in kinds):
            for thing in things:
                if issubclass(type(thing), sys.modules["numpy"].ndarray):
                    behind += _behind_array(thing, found)
        return behind


# With which NumPy and PyTorch run what a file says.
UNPICKLES: Final = frozenset({"allow_pickle", "weights_only"})
# What the body of every class says first.
_CLASS_BEGINS: Final = ("__name__", "__module__", "__qualname__")


def words_of(code: types.CodeType) -> set[str]:
    """The names that code says, and what is nested in it: globals, attributes, what it imports."""
    names = code.co_names
    words = {*(names[len(_CLASS_BEGINS) :] if names[: len(_CLASS_BEGINS)] == _CLASS_BEGINS else names)}
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            words |= words_of(constant)
        elif type(constant) is str and MAIN in constant:
            words.add(MAIN)
        elif type(constant) is tuple:
            words |= UNPICKLES.intersection(each for each in constant if type(each) is str)  # names of arguments
    return words


def _new_of(level: list[Any], seen: set[int]) -> list[Any]:
    ids = set(map(id, level))
    if len(ids) == len(level) and seen.isdisjoint(ids):
        seen |= ids
        return level
    fresh = list({id(thing): thing for thing in level if id(thing) not in seen}.values())
    seen |= ids
    return fresh


def _weak(things: list[Any], seen: set[int]) -> int:
    """Weak references from elsewhere; classes have some of their base, and those of a class are no way to an object."""
    kinds = set(map(type, things))
    if not any(kind is weakref.ref or kind.__weakrefoffset__ for kind in kinds):
        return 0
    from_inside = sum(
        id(thing()) in seen and not issubclass(type(thing()), type) for thing in things if type(thing) is weakref.ref
    )
    weak = sum(weakref.getweakrefcount(thing) for thing in things if not issubclass(type(thing), type))
    return weak - from_inside


def _behind_array(thing: Any, found: Found) -> Iterator[Any]:
    """The collector does not see into arrays."""
    numpy: Any = sys.modules["numpy"]
    base, dtype = numpy.ndarray.base.__get__(thing), numpy.ndarray.dtype.__get__(thing)
    if base is not None:
        yield base
    elif not numpy.ndarray.flags.__get__(thing).owndata or (dtype.hasobject and dtype.kind != "O"):
        found.alone = False
    elif dtype.hasobject:
        yield from numpy.ndarray.flat.__get__(thing)


def _is_atom(kind: type) -> bool:
    if kind in looks.ATOMS or kind in _DESCRIPTORS:
        return True
    if issubclass(kind, enum.Enum):
        return looks.importable(kind)
    if any(name_of(base) == "ExtensionDtype" and module_of(base).startswith("pandas.") for base in kind.__mro__):
        return True
    numpy: Any = sys.modules.get("numpy")
    immutable = () if numpy is None else (numpy.dtype, numpy.generic, numpy.ufunc)
    return issubclass(kind, immutable) and not issubclass(kind, getattr(numpy, "void", ()))


def _is_plain(kind: type) -> bool:
    """Whether all references of instances are met, and nothing of them is anywhere else."""
    for base in kind.__mro__:
        if base in _PLAIN or (module_of(base), name_of(base)) in _PLAIN_BY_NAME:
            continue
        if module_of(base).startswith(_PLAIN_MODULES):
            continue
        in_c = any(type(part) in _DESCRIPTORS for part in content_of(base).values())
        if in_c or not looks.is_written_in_python(base):
            return False
    return True


def _is_a_librarys(thing: Any) -> bool:
    """Whether it is saved as a reference to where it is imported from, or is there once in each process."""
    kind = type(thing)
    if issubclass(kind, type) or kind is types.FunctionType:
        if issubclass(kind, type) and (thing in _PLAIN or (module_of(thing), name_of(thing)) in _PLAIN_BY_NAME):
            return True
        return looks.importable(thing)
    if kind is types.BuiltinFunctionType:
        owner = thing.__self__
        return owner is None or type(owner) in {types.ModuleType, type} or looks.is_exported(thing)
    return looks.is_registered(thing) if issubclass(kind, logging.Logger) else handles.is_standard(thing)
