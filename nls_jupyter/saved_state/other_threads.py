"""What threads of the user's changed while it was saved: found by a second look, and named.

A thread can change a value and change it back between the two looks; nobody sees that, here or anywhere.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from nls_jupyter.between.seams import THREAD_TARGET
from nls_jupyter.saved_state.manifest import ChangedName, type_name
from nls_jupyter.saved_state.store import OnDevice, digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nls_jupyter.saved_state.blobs import Blob
    from nls_jupyter.saved_state.graph import Component, Graph
    from nls_jupyter.saved_state.part import Part
    from nls_jupyter.saved_state.store import Fingerprints, Source

_CHANGE = "another thread changed it while it was saved: parts of it may be of different moments"
# Threads that never touch what the user sees: of the kernel's own machinery, and of saved state.
_OWN_MODULES = ("ipykernel", "IPython", "zmq", "tornado", "debugpy", "_pydevd", "pydevd")
_OWN_NAMES = "nls-saved-state"


def run_times_ns() -> dict[int, int]:
    """How long each thread that may change what the user sees has run so far, on a CPU; by the system's thread id.

    Equal before and after: none of them has run, in Python or in C, and what sleeps changes nothing.
    """
    current = threading.current_thread()
    found = {}
    for thread in threading.enumerate():
        runs = getattr(THREAD_TARGET.of(thread, None), "__self__", thread)
        own = type(runs).__module__.startswith(_OWN_MODULES) or thread.name.startswith(_OWN_NAMES)
        if thread is current or thread is threading.main_thread() or own or thread.native_id is None:
            continue
        if _only_watches(thread):
            continue
        with contextlib.suppress(OSError):  # it has just ended
            found[thread.native_id] = time.clock_gettime_ns(_clock_of(thread.native_id))
    return found


def _only_watches(thread: threading.Thread) -> bool:
    """Whether it is the thread that any bar of tqdm's leaves behind, and there is no open one that it could change."""
    kind = getattr(sys.modules.get("tqdm"), "TMonitor", None)
    if kind is None or type(thread) is not kind:
        return False
    try:
        return not thread.get_instances()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - as any other thread then
        return False


def _clock_of(thread_id: int) -> int:
    """A thread's CPU clock, as `pthread_getcpuclockid` makes it (Linux: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED).

    That function crashes for a thread that has ended; asking this clock then is an error.
    """
    return (~thread_id << 3) | 6


def changed_memory(
    parts: Iterable[Part], graph: Graph, fingerprints: Fingerprints, tick: Callable[[], None]
) -> list[str]:
    """Names whose memory is not any more what was saved of it; the save's `fingerprints` tell of that on devices."""
    names = []
    for part in parts:
        moved = False
        for key, place in zip(part.encoded.keys, part.stored.regions.places, strict=True):
            if key in graph.memories and not isinstance(place, tuple):
                moved |= _has_changed(graph.memories[key].source(), place, fingerprints.get(key), tick)
        if moved:
            names += [name.name for name in part.encoded.saved]
    return names


def _has_changed(source: Source, place: Blob, seen: tuple[list[bytes], Blob] | None, tick: Callable[[], None]) -> bool:
    if seen is not None and isinstance(source, OnDevice):
        tick()
        if (now := source.fingerprints()) is not None:
            return now != seen[0]
    return digests(source, tick) != [chunk.digest for chunk in place.chunks]


def changed_objects(before: Sequence[Component], after: Sequence[Component]) -> list[str]:
    """Names whose objects are not the same any more, by two walks; `before`'s objects are all still alive."""
    digests_after = {name: component.digest for component in after for name in component.names}
    return [
        name
        for component in before
        if component.digest is not None
        for name in component.names
        if digests_after.get(name) != component.digest
    ]


def named(names: Iterable[str], namespace: Mapping[str, object]) -> list[ChangedName]:
    """What the user reads of them, each once."""
    return [ChangedName(name, type_name(namespace[name]), _CHANGE) for name in dict.fromkeys(names)]
