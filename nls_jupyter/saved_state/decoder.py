"""Frames become names again; one that fails is named, and the others come back without it."""

from __future__ import annotations

import gc
import pickle
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state import set_orders
from nls_jupyter.saved_state.lost import why
from nls_jupyter.saved_state.manifest import ChangedName, MissingName
from nls_jupyter.saved_state.regions import resolve
from nls_jupyter.saved_state.tolerant import TolerantUnpickler, losses, reached
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from nls_jupyter.saved_state.alive import Alive
    from nls_jupyter.saved_state.manifest import SavedName
    from nls_jupyter.saved_state.store import Reader


_OTHER_ORDER: Final = "a set comes back with its members in another order"


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What came back, and what could not.

    Attributes:
        restored: names, in the order of the stream.
        missing: names and settings, with reasons.
        carried: of those missing, the names whose saved state is carried over, to be tried again.
        changed: of those restored, what is not as it was.
    """

    restored: tuple[str, ...]
    missing: tuple[MissingName, ...]
    carried: tuple[str, ...] = ()
    changed: tuple[ChangedName, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists, for messages."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Into:
    """Where things come back.

    Attributes:
        namespace: gets the names, and becomes the globals of functions that were defined in cells.
        alive: what is not given anything, as it is back.
    """

    namespace: dict[str, Any]
    alive: Alive


class _Globals:
    """What an unpickler gets for the globals that it finds; `regions.resolve` becomes this restore's own."""

    def __init__(self, reader: Reader, into: Into) -> None:
        self._known = {"reader": reader, "namespace": into.namespace}
        self._alive = into.alive
        self.given: dict[int, Any] = {}

    def for_what_is(self, found: Any) -> Any:
        return self._known.__getitem__ if found is resolve else self._alive.spared(found, self.given)


class _Unpickler(pickle.Unpickler):
    def __init__(self, reader: Reader, into: Into) -> None:
        super().__init__(reader.stream(), buffers=_buffers(reader))
        self.globals = _Globals(reader, into)

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return self.globals.for_what_is(super().find_class(module_name, global_name))


class _Tolerant(TolerantUnpickler):
    def __init__(self, reader: Reader, into: Into) -> None:
        super().__init__(reader.stream(), _buffers(reader))
        self.globals = _Globals(reader, into)

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return self.globals.for_what_is(super().find_class(module_name, global_name))


def _buffers(reader: Reader) -> Iterator[bytearray]:
    for region in reader.buffers:
        buffer = bytearray(reader.size_bytes(region))
        reader.read_into(region, memoryview(buffer))
        yield buffer


def decode(reader: Reader, into: Into, names: Sequence[SavedName], wanted: Container[str]) -> RestoreReport:
    """Put a component's names into a namespace, in the stream's order: functions and classes come first.

    Args:
        reader: the component.
        into: where to.
        names: all of the stream.
        wanted: those to put there; the others are only made.
    """
    namespace = into.namespace
    try:
        if not reader.hash_cycles:
            return _decode_all(reader, into, names, wanted)
    except SaveEndsError:
        raise
    except BaseException:  # noqa: BLE001 - it happens again below, and is reported name by name
        _take_back(namespace, names, wanted)
    reader.progress()
    try:
        gc.collect()  # what was loaded so far, Gpu memory too, may lie in cycles; nobody has it any more
        return _decode_what_can_be(reader, into, names, wanted)
    except SaveEndsError:
        raise
    except BaseException as error:  # noqa: BLE001 - outside of all guards; the other components come back all the same
        _take_back(namespace, names, wanted)
        reason = why(error).reason
        lost = (MissingName(saved.name, saved.type_name, reason) for saved in names if saved.name in wanted)
        return RestoreReport((), tuple(lost))


def _take_back(namespace: dict[str, Any], names: Sequence[SavedName], wanted: Container[str]) -> None:
    for saved in names:
        if saved.name in wanted:
            namespace.pop(saved.name, None)


def _decode_all(reader: Reader, into: Into, names: Sequence[SavedName], wanted: Container[str]) -> RestoreReport:
    unpickler, made = _Unpickler(reader, into), []
    for saved in names:
        [value] = _frame(unpickler)
        if saved.name in wanted:
            into.namespace[saved.name] = value
            made.append(saved.name)
    into.alive.add(unpickler.globals.given.values())
    return RestoreReport(tuple(made), (), changed=_in_order(unpickler, names, wanted))


def _frame(unpickler: _Unpickler | _Tolerant) -> Any:
    """What the next name leads to, in a list; a tuple before it has the words that this refers to."""
    while type(frame := unpickler.load()) is tuple:
        pass
    return frame


def _in_order(
    unpickler: _Unpickler | _Tolerant, names: Sequence[SavedName], wanted: Container[str]
) -> tuple[ChangedName, ...]:
    """Put the members of sets in their order again; the names that lead to one for which no way was found."""
    try:
        orders = unpickler.load()
    except EOFError:
        return ()  # there are no sets, or it was saved before their order was
    in_order = {name: [set_orders.put_in_order(*order) for order in orders[name]] for name in orders}
    others = (saved for saved in names if saved.name in wanted and not all(in_order.get(saved.name, ())))
    return tuple(ChangedName(saved.name, saved.type_name, _OTHER_ORDER) for saved in others)


def _decode_what_can_be(
    reader: Reader, into: Into, names: Sequence[SavedName], wanted: Container[str]
) -> RestoreReport:
    namespace, unpickler = into.namespace, _Tolerant(reader, into)
    frames: list[Any] = []
    for saved in names:
        frames.append(_frame(unpickler))
        if type(frames[-1]) is list and saved.name in wanted:
            namespace[saved.name] = frames[-1][0]
    restored, back, missing = [], [], []
    lost = [None] * len(names) if unpickler.whole else losses(frames, unpickler.broken, namespace)
    for saved, frame, loss in zip(names, frames, lost, strict=True):
        if saved.name not in wanted:
            continue
        if loss is None:
            restored.append(saved.name)
            back.append(frame)
        else:
            namespace.pop(saved.name, None)
            missing.append(MissingName(saved.name, saved.type_name, loss.reason, loss.lacks_memory))
    given = unpickler.globals.given
    into.alive.add(given[which] for which in given.keys() & reached(back, namespace).keys())
    changed = _in_order(unpickler, names, restored) if unpickler.whole else ()
    return RestoreReport(tuple(restored), tuple(missing), changed=changed)
