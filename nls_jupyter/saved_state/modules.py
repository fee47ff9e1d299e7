"""What cells change in modules of the user's own: `helpers.REGISTRY["a"] = 1`, `helpers.Net.scale = 7`.

A new process imports such a module anew. So what it holds is looked at right after its import, and what differs from
that later, or is shared with a name of the user's, is saved beside the names. What an installed package holds is its
own affair.
"""

from __future__ import annotations

import enum
import importlib
import sys
import types
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from typing import TYPE_CHECKING, Any, Final
from zipimport import zipimporter

from nls_jupyter.between.held_signals import held
from nls_jupyter.between.seams import ABC_CONTENT
from nls_jupyter.saved_state import looks
from nls_jupyter.saved_state.graph import Graph
from nls_jupyter.saved_state.kinds import content_of, is_of, module_of, name_of
from nls_jupyter.saved_state.manifest import MissingName, describe, type_name
from nls_jupyter.saved_state.origins import is_the_users
from nls_jupyter.saved_state.pickler import Probe, Rules
from nls_jupyter.saved_state.watchdog import IMPORTING, SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.machinery import ModuleSpec

    from nls_jupyter.saved_state.graph import Component

#: They execute what is written in Python, for imports and for whoever loads a module from a file himself.
LOADERS: Final[tuple[Any, ...]] = (SourceFileLoader, SourcelessFileLoader, zipimporter)
# Of a class: what Python makes of its source, and what others note there.
_NOT_CONTENT = frozenset({"__dict__", "__weakref__", "__slotnames__", "__doc__", "__module__", ABC_CONTENT.name})
# What is replaced as a whole, never changed.
_WHOLE = (property, staticmethod, classmethod, types.MemberDescriptorType, types.GetSetDescriptorType)


class _Deleted:
    """In place of what a cell has deleted."""


@dataclass(slots=True)
class _Fresh:
    """A module as its import left it.

    Attributes:
        spec: the module's own.
        values: what is told apart by identity alone, by path.
        others: the paths of everything else.
        identities: of components, by their first label (see `graph.Component`).
        unsavable: labels of what only a new import can make.
        held: what the identities are made of.
    """

    spec: ModuleSpec
    values: dict[str, Any] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    identities: dict[str, bytes] = field(default_factory=dict)
    unsavable: set[str] = field(default_factory=set)
    held: list[Any] = field(default_factory=list)


class UserModules:
    """The modules that are imported, or loaded otherwise, from the user's own files from now on."""

    def __init__(self) -> None:
        self._fresh: dict[str, _Fresh] = {}

    def follow(self) -> None:
        """Look at each module once it is executed. Called once in a process."""
        for loader in LOADERS:
            loader.exec_module = self._telling(loader.exec_module)

    def _telling(self, execute: Callable[[Any, types.ModuleType], None]) -> Callable[[Any, types.ModuleType], None]:
        def exec_module(loader: Any, module: types.ModuleType) -> None:
            execute(loader, module)
            self.executed(module)

        # Python leaves the code that imports out of tracebacks.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=IMPORTING)
        return exec_module

    @held()
    def executed(self, module: types.ModuleType) -> None:
        """Called by loaders when a module was executed, for the first time or again."""
        spec = getattr(module, "__spec__", None)
        if spec is None or not is_the_users(spec.name, spec.origin):
            return
        was_there = spec.name in sys.modules
        if _is_of(sys.modules.setdefault(spec.name, module), spec):  # else nobody can import this one
            self._fresh[spec.name] = _as_it_is(module, spec)
        if not was_there:  # whoever has loaded it may yet put it there
            sys.modules.pop(spec.name, None)

    def names(self) -> dict[str, Any]:
        """What may have to be saved of the modules, by label; `is_fresh` tells what need not be."""
        found: dict[str, Any] = {}
        for name, fresh in self._fresh.items():
            module = sys.modules.get(name)
            if not is_of(module, types.ModuleType) or not _is_of(module, fresh.spec):
                continue
            there = set()
            for path, value in _contents(module):
                there.add(path)
                if not (_is_whole(value) and path in fresh.values and fresh.values[path] is value):
                    found[_label(name, path)] = value
            gone = (fresh.values.keys() | fresh.others) - there
            found |= {_label(name, path): _Deleted for path in sorted(gone)}
        return found

    def is_fresh(self, component: Component) -> bool:
        """Whether a component is as an import makes it, and no name of the user's shares it."""
        label = component.names[0]
        fresh = self._fresh.get(label.partition(":")[0])
        if fresh is None or fresh.identities.get(label) != component.identities or component.has_memory:
            return False
        return component.digest is not None or fresh.unsavable.issuperset(component.names)

    def put(self, names: Mapping[str, Any]) -> list[MissingName]:
        """The inverse of `names`, in a new process; what could not be put back."""
        lost = []
        for label, value in names.items():
            module, _, path = label.partition(":")
            try:
                *holders, attribute = path.split(".")
                target: Any = importlib.import_module(module)
                for holder in holders:
                    target = getattr(target, holder)
                if value is _Deleted:
                    delattr(target, attribute)
                else:
                    setattr(target, attribute, value)
            except SaveEndsError:
                raise
            except BaseException as error:  # noqa: BLE001 - named, and the others are put back
                lost.append(MissingName(label, type_name(value), describe(error)))
        return lost


def _as_it_is(module: types.ModuleType, spec: ModuleSpec) -> _Fresh:
    fresh = _Fresh(spec)
    rules = Rules(())
    graph = Graph(rules.lookers, rules.leaves, (), lambda: None)
    values = {}
    for path, value in _contents(module):
        if _is_whole(value):
            fresh.values[path] = value
        else:
            fresh.others.add(path)
            values[_label(spec.name, path)] = value
            graph.add(_label(spec.name, path), value)
    for component in graph.components():
        fresh.identities[component.names[0]] = component.identities
        fresh.held += component.held
        if component.digest is None:
            probe = Probe({}, rules, [])
            fresh.unsavable |= {name for name in component.names if probe.why_not(values[name]) is not None}
    return fresh


def _is_of(module: Any, spec: ModuleSpec) -> bool:
    """Whether a module is of a spec: its module itself, or what that has put in its own place."""
    own = vars(module).get("__spec__") if is_of(module, types.ModuleType) else None
    return own is None or own is spec


def _label(module: str, path: str) -> str:
    return f"{module}:{path}"


def _contents(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """What a cell can change in a module: its names, its classes' and functions' attributes, and defaults."""
    for name, value in list(vars(module).items()):
        if is_of(value, types.ModuleType) or (name.startswith("__") and name.endswith("__")):
            continue
        yield name, value
        if _is_code(value) and _home_of(value) == module.__name__:
            yield from _contents_of(value, name)


def _contents_of(value: type | types.FunctionType, path: str) -> Iterator[tuple[str, Any]]:
    if is_of(value, types.FunctionType):
        if value.__qualname__ != path:
            return  # it is met under its own name
        yield from ((f"{path}.{name}", part) for name, part in vars(value).items())
        if any(not _is_whole(part) for part in value.__defaults__ or ()):
            yield f"{path}.__defaults__", value.__defaults__
        return
    if not is_of(value, type) or is_of(value, enum.EnumType) or name_of(value) != path:
        return
    for name, part in list(content_of(value).items()):
        if name not in _NOT_CONTENT:
            yield f"{path}.{name}", part
            if _is_code(part) and _home_of(part) == _home_of(value):
                yield from _contents_of(part, f"{path}.{name}")


def _is_whole(value: Any) -> bool:
    """Whether it can only be replaced, or is looked at by its own name."""
    kind = type(value)
    try:
        return kind in looks.ATOMS or kind in _WHOLE or (_is_code(value) and looks.importable(value))
    except SaveEndsError:
        raise
    except BaseException:  # noqa: BLE001 - whoever raises when asked what it is is left to the pickler, which names it
        return False


def _is_code(value: Any) -> bool:
    return issubclass(type(value), (type, types.FunctionType))


def _home_of(code: Any) -> str:
    if is_of(code, type):
        return module_of(code)
    return code.__module__ if type(code.__module__) is str else ""
