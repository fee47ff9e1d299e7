"""Frames become names again; one that fails is named, and the others come back without it."""

from __future__ import annotations

import gc
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.arena import SavedStateDamagedError
from nls_jupyter.saved_state.manifest import MissingName
from nls_jupyter.saved_state.regions import resolve
from nls_jupyter.saved_state.tolerant import TolerantUnpickler, losses
from nls_jupyter.saved_state.watchdog import StuckError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nls_jupyter.saved_state.manifest import SavedName
    from nls_jupyter.saved_state.store import Reader


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What came back, in the order of the stream, and what could not and why."""

    restored: tuple[str, ...]
    missing: tuple[MissingName, ...]


class _References:
    """Finds globals for an unpickler; `regions.resolve` becomes this restore's own."""

    def __init__(self, reader: Reader, namespace: dict[str, Any]) -> None:
        self._known = {"reader": reader, "namespace": namespace}

    def __call__(self, what: str) -> Any:
        return self._known[what]


class _Unpickler(pickle.Unpickler):
    def __init__(self, reader: Reader, namespace: dict[str, Any]) -> None:
        super().__init__(reader.stream(), buffers=_buffers(reader))
        self._resolve = _References(reader, namespace)

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == resolve.__module__ and global_name == resolve.__name__:
            return self._resolve
        return super().find_class(module_name, global_name)


class _Tolerant(TolerantUnpickler):
    def __init__(self, reader: Reader, namespace: dict[str, Any]) -> None:
        super().__init__(reader.stream(), _buffers(reader))
        self._resolve = _References(reader, namespace)

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == resolve.__module__ and global_name == resolve.__name__:
            return self._resolve
        return super().find_class(module_name, global_name)


def _buffers(reader: Reader) -> Iterator[bytearray]:
    for region in reader.buffers:
        buffer = bytearray(reader.size_bytes(region))
        reader.read_into(region, memoryview(buffer))
        yield buffer


def decode(reader: Reader, namespace: dict[str, Any], names: Sequence[SavedName]) -> RestoreReport:
    """Put a component's names into `namespace`, in the stream's order: functions and classes come first."""
    try:
        _decode_all(reader, namespace, names)
    except (Exception, SystemExit, StuckError):  # noqa: BLE001 - it happens again below, and is reported name by name
        for saved in names:
            namespace.pop(saved.name, None)
    else:
        return RestoreReport(tuple(saved.name for saved in names), ())
    reader.progress()
    try:
        gc.collect()  # what was loaded so far, Gpu memory too, may lie in cycles
        return _decode_what_can_be(reader, namespace, names)
    except (SavedStateDamagedError, StuckError) as error:
        for saved in names:
            namespace.pop(saved.name, None)
        return _all_missing(names, str(error))


def _all_missing(names: Sequence[SavedName], reason: str) -> RestoreReport:
    return RestoreReport((), tuple(MissingName(saved.name, saved.type_name, reason) for saved in names))


def _decode_all(reader: Reader, namespace: dict[str, Any], names: Sequence[SavedName]) -> None:
    unpickler = _Unpickler(reader, namespace)
    for saved in names:
        [namespace[saved.name]] = unpickler.load()


def _decode_what_can_be(reader: Reader, namespace: dict[str, Any], names: Sequence[SavedName]) -> RestoreReport:
    unpickler = _Tolerant(reader, namespace)
    frames: list[Any] = []
    for saved in names:
        frames.append(unpickler.load())
        if isinstance(frames[-1], list):
            namespace[saved.name] = frames[-1][0]
    lost = losses(frames, unpickler.broken, namespace)
    for saved, reason in zip(names, lost, strict=True):
        if reason is not None:
            namespace.pop(saved.name, None)
    return RestoreReport(
        tuple(saved.name for saved, reason in zip(names, lost, strict=True) if reason is None),
        tuple(
            MissingName(saved.name, saved.type_name, reason)
            for saved, reason in zip(names, lost, strict=True)
            if reason is not None
        ),
    )
