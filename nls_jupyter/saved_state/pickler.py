"""The pickler of saved state: cloudpickle with array libraries, the user's namespace and reasons for refusals."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import cloudpickle

from nls_jupyter.saved_state import libraries, reducers
from nls_jupyter.saved_state.regions import NAMESPACE, HostMemory, Regions, refuse

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable, Mapping

_PROTOCOL = 5


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle with array libraries, functions that keep the user's namespace, and reasons for refusals."""

    def __init__(self, file: Any, regions: Regions, namespaces: tuple[Mapping[str, Any], ...]) -> None:
        # No bound method of this pickler here or among the handlers: in a cycle, its memo would keep all that the
        # user deletes afterwards, Gpu memory too, until the garbage collector comes by.
        super().__init__(file, protocol=_PROTOCOL, buffer_callback=functools.partial(_take_buffer, regions))
        self._namespaces = {id(namespace) for namespace in namespaces}
        self.libraries = libraries.loaded(regions)
        self._handlers: dict[type, Callable[[Any], Any] | None] = {
            types.CellType: reducers.reduce_cell,
        }
        for library in self.libraries:
            self._handlers.update(library.handlers())
        self._unsavable = tuple(reducers.unsavable_types())

    def reducer_override(self, obj: Any) -> Any:
        """The pickler asks this for every object except those of the plain built-in types."""
        kind = type(obj)
        if kind is types.FunctionType:
            return self._reduce_function(obj)
        try:
            handler = self._handlers[kind]
        except KeyError:
            handler = self._handlers[kind] = self._find_handler(kind)
        return super().reducer_override(obj) if handler is None else handler(obj)

    def _find_handler(self, kind: type) -> Callable[[Any], Any] | None:
        if issubclass(kind, types.ModuleType):
            return reducers.reduce_module
        for unsavable, what in self._unsavable:
            if issubclass(kind, unsavable):
                return refuse(what)
        return None

    def _reduce_function(self, function: types.FunctionType) -> Any:
        reduced = self._function_reduce(function)
        if reduced is NotImplemented:  # importable
            return reduced
        make, (code, base_globals, name, defaults, _), (attributes, slots), *rest = reduced
        if id(function.__globals__) in self._namespaces:
            base_globals, slots["__globals__"] = NAMESPACE, {}
        # The cells themselves, not their values: functions of one scope go on sharing its variables.
        slots["__closure__"] = None
        return make, (code, base_globals, name, defaults, function.__closure__), (attributes, slots), *rest


def _take_buffer(regions: Regions, buffer: pickle.PickleBuffer) -> bool:
    try:
        content = buffer.raw()
    except BufferError:  # not contiguous: the pickler copies it into the stream
        return True
    regions.add_buffer(HostMemory(content, content.nbytes))
    return False


class Probe:
    """Tells whether further names can be pickled, without a trace in the stream's own memo.

    A name that fails costs the stream a copy of its whole memo; once one has failed, the others are tried here first.
    What the stream already holds is not tried again.
    """

    def __init__(self, known: dict[int, Any], namespaces: tuple[Mapping[str, Any], ...], values: list[Any]) -> None:
        self._regions = Regions()
        self._pickler = _ProbePickler(_Nowhere(), self._regions, namespaces, set(known))
        for library in self._pickler.libraries:
            library.prepare(values)
        self._alive: list[dict[int, Any]] = [known]  # an id means its object only while that lives

    def error(self, value: Any) -> Exception | None:
        """Why `value` cannot be pickled, or `None`; what it consists of is known from then on."""
        try:
            self._pickler.dump([value])
        except Exception as error:  # noqa: BLE001 - any object may raise anything; the user is told which and why
            return error
        else:
            made = self._pickler.memo.copy()
            self._pickler.known.update(made)
            self._alive.append(made)
            return None
        finally:
            self._pickler.clear_memo()
            self._regions.rewind(0)


class _ProbePickler(Pickler):
    def __init__(self, file: Any, regions: Regions, namespaces: tuple[Mapping[str, Any], ...], known: set[int]) -> None:
        super().__init__(file, regions, namespaces)
        self.known = known

    def persistent_id(self, obj: Any) -> int | None:
        return 0 if id(obj) in self.known else None


class _Nowhere:
    def write(self, content: Any) -> int:
        return len(content)
