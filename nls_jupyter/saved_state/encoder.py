"""Names become frames of one pickle stream with one memo, so that what they share stays one object."""

from __future__ import annotations

import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.manifest import Manifest, MissingName, SavedName, Where, describe, type_name
from nls_jupyter.saved_state.pickler import Pickler, Probe
from nls_jupyter.saved_state.regions import Regions, UnsavableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_jupyter.saved_state.store import Writer


class Encoder:
    """Pickles a namespace name by name, leaving out those that fail."""

    def __init__(self, file: Writer, namespace: Mapping[str, Any], function_globals: Mapping[str, Any] | None) -> None:
        main = sys.modules.get("__main__")
        self._namespaces = (namespace, vars(main) if main is not None else namespace, function_globals or namespace)
        self._file = file
        self._namespace = namespace
        self.regions = Regions()
        self._pickler = Pickler(file, self.regions, self._namespaces)
        self._probe: Probe | None = None
        self._saved: list[SavedName] = []
        self._missing: list[MissingName] = []
        self._where: dict[int, Where] = {}

    def encode(self) -> None:
        """Pickle everything; what a class or function needs while objects are made comes first."""
        for library in self._pickler.libraries:
            library.prepare(list(self._namespace.values()))
        for name, value in sorted(self._namespace.items(), key=lambda item: _rank(item[1])):
            self._add(name, value)

    def manifest(self, cell: str | None) -> Manifest:
        """What came of it."""
        memory_bytes = sum(name.memory_bytes for name in self._saved)
        return Manifest(memory_bytes, tuple(self._saved), tuple(self._missing), cell)

    def _add(self, name: str, value: Any) -> None:
        position, first_region = self._file.tell(), len(self.regions.sources)
        self.regions.met_gpu = False
        if self._probe is not None and (error := self._probe.error(value)) is not None:
            self._missing.append(MissingName(name, type_name(value), _reason(error, value)))
            return
        # A list of its own around each value: its place in the memo tells where this name began.
        frame = [value]
        try:
            self._pickler.dump(frame)
        except Exception as error:
            if self._file.failure is not None:
                raise
            self._missing.append(MissingName(name, type_name(value), _reason(error, value)))
            self._forget(frame, position, first_region)
            return
        memory_bytes = self._file.tell() - position + self.regions.size_bytes(first_region)
        where = self._where.setdefault(id(value), "gpu" if self.regions.met_gpu else "host")
        self._saved.append(SavedName(name, type_name(value), memory_bytes, where))

    def _forget(self, frame: list[Any], position: int, first_region: int) -> None:
        """Back to before a name that failed: objects pickled half must not be referred to."""
        self._file.rewind(position)
        self.regions.rewind(first_region)
        memo = self._pickler.memo.copy()
        begin = memo[id(frame)][0]
        memo = {key: entry for key, entry in memo.items() if entry[0] < begin}
        self._pickler.memo = memo
        self._probe = Probe(memo, self._namespaces, list(self._namespace.values()))


def _rank(value: Any) -> int:
    """Where a name's turn comes.

    Modules, then functions and classes: code that runs while objects are made may need them. Plain containers last:
    what fails is rarely among them, and costs less while the memo is small.
    """
    if isinstance(value, types.ModuleType):
        return 0
    if isinstance(value, (type, types.FunctionType)):
        return 1
    return 2 if type(value).__module__ != "builtins" else 3


def _reason(error: Exception, value: Any) -> str:
    if isinstance(error, UnsavableError):
        return error.reason_for(value)
    if isinstance(error, (RecursionError, pickle.PicklingError)) and "recursion" in str(error):
        return "it is nested too deeply to be saved"
    return describe(error)
