"""One save while it is made: components, looked at once, become parts in the arena."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import other_threads
from nls_jupyter.saved_state.arena import NoRoomError
from nls_jupyter.saved_state.blobs import Table, pieces_of
from nls_jupyter.saved_state.encoder import Encoded, Encoder
from nls_jupyter.saved_state.graph import Component, Graph
from nls_jupyter.saved_state.hash_cycles import has_hash_cycles
from nls_jupyter.saved_state.manifest import ChangedName, Manifest, MissingName, type_name
from nls_jupyter.saved_state.order import in_order
from nls_jupyter.saved_state.part import Part
from nls_jupyter.saved_state.pickler import Rules
from nls_jupyter.saved_state.reasons import missing_name
from nls_jupyter.saved_state.regions import NoRoomForError
from nls_jupyter.saved_state.store import Layout, Places, Scratch, Stored
from nls_jupyter.saved_state.watchdog import OverBudgetError, SaveEndsError, deadline
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from nls_jupyter.saved_state.blobs import Blob, Chunk
    from nls_jupyter.saved_state.committed import Committed
    from nls_jupyter.saved_state.store import Fingerprints, Held


class OneSave:
    """What one save sees and writes.

    Attributes:
        memory_bytes: of all arrays that were met; known after `look`.
        on_devices: names under which memory of Gpus was met; known as that.
        parts: all that it consists of.
        by_digest: parts that the next save may find unchanged, by their component's digest.
        groups: names that belong together, and of how many objects.
        flat: see `Graph`.
        fingerprints: of memory on devices.
        on_host: all memory of the host that was stored, first address and size in bytes.
        has_mapped: whether a memory-mapped array was stored.
        recurring_s: what any save of this content costs: the walk, and pickling what only its pickle tells about.

    Args:
        namespace: all names, outputs too.
        function_globals: namespaces that functions defined in cells have as their globals.
        committed: where everything goes, beside what stands.
        tick: called now and then; what it raises stops the save.
        before: the fingerprints of the save before.
        is_fresh: what need not be saved, because a new process has it anyway.
        held: what memory of Gpus held, for a copy of its process, which cannot read it.
    """

    def __init__(
        self,
        namespace: Mapping[str, Any],
        function_globals: tuple[Mapping[str, Any], ...],
        committed: Committed,
        tick: Callable[[], None],
        before: Fingerprints,
        is_fresh: Callable[[Component], bool],
        held: Held | None = None,
    ) -> None:
        self._names = namespace
        main = sys.modules.get("__main__")
        self._namespaces = (*function_globals, vars(main) if main is not None else namespace)
        self._arena, self._blobs = committed.arena, committed.blobs
        self._tick = tick
        self._is_fresh = is_fresh
        self._rules = Rules(self._namespaces)
        self._rules.regions.in_copy = held is not None
        self._layout = Layout(committed.blobs, tick, before, held)
        self.parts: list[Part] = []
        self._changed: list[ChangedName] = []
        self._missing: list[MissingName] = []
        self._interpreter: Blob | None = None
        self.memory_bytes = 0
        self.recurring_s = 0.0
        self.on_devices: set[str] = set()
        self.by_digest: dict[bytes, Part] = {}
        self.groups: list[tuple[list[str], int]] = []
        self.flat: dict[int, int] = {}
        self._walked = namespace
        self._left: dict[int, Part] = {}
        self._last_found: dict[tuple[Hashable, ...], bool] = {}

    @property
    def fingerprints(self) -> Fingerprints:
        """See the class."""
        return self._layout.fingerprints

    @property
    def on_host(self) -> list[tuple[int, int]]:
        """See the class."""
        return self._layout.on_host

    @property
    def has_mapped(self) -> bool:
        """See the class."""
        return self._rules.regions.met_mapped

    def chunks(self) -> list[Chunk]:
        """All that the save consists of."""
        beside = self._interpreter.chunks if self._interpreter is not None else ()
        return [*beside, *(chunk for part in self.parts for chunk in part.stored.chunks())]

    def hold(self, within_s: float) -> Held:
        """Read the memory of Gpus that the names lead to, but for names that take too long to look at.

        Raises NoRoomError, OSError.
        """
        check = deadline(within_s)
        graph = Graph(self._rules.lookers, self._rules.leaves, self._namespaces, check)
        for name, value in self._names.items():
            with contextlib.suppress(OverBudgetError):
                check()
                graph.add(name, value)
        self.on_devices = graph.names_on_devices()
        found = {key: memory.source() for key, memory in graph.memories.items() if memory.space != "host"}
        return {key: self._layout.hold(source, key) for key, source in found.items() if source.size_bytes}

    def write(self, known: Mapping[bytes, Part], last: Sequence[Part], left: Sequence[Part] = ()) -> None:
        """Look at everything and store what is not among the parts that are `known` from the save before.

        Those that are `left` are right as they are, and nobody looks at their names. `last` are all of that save.
        """
        self._last_found = {_seen_in(part.stored.stream, part.encoded.hashed): part.stored.hash_cycles for part in last}
        self._left = {id(part.component): part for part in left}
        unchanged = {name for part in left for name in part.component.names}
        self._walked = {name: value for name, value in self._names.items() if name not in unchanged}
        began = other_threads.run_times_ns()
        began_s = monotonic_s()
        graph = self._walk()
        self.recurring_s = monotonic_s() - began_s
        self.memory_bytes = sum(memory.size_bytes for memory in graph.memories.values())
        self.on_devices = graph.names_on_devices()
        for library in self._rules.libraries:
            library.prepare(graph.holders)
        self.flat = graph.flat
        components = [component for component in graph.components() if not self._is_fresh(component)]
        self.groups = [(found.names, found.nodes) for found in (*components, *(part.component for part in left))]
        self._changed += [_torn(name, self._names[name]) for name in sorted(graph.torn)]
        for component in in_order([*components, *(part.component for part in left)], self._names):
            self._add(component, graph, known)
        if other_threads.run_times_ns() != began:
            moved = other_threads.changed_memory(self.parts, graph, self.fingerprints, self._tick)
            moved += other_threads.changed_objects(components, self._walk().components())
            self._changed += other_threads.named(moved, self._names)

    def keep_interpreter(self, captured: tuple[bytes, list[MissingName]] | None) -> None:
        """Store what is kept beside the names: what `Interpreter.capture` returned, or nothing."""
        if captured is None:
            return
        stored, self._missing = captured
        self._interpreter = self._blobs.put(pieces_of(memoryview(stored)), self._tick)

    def manifest(self, cell: str | None) -> Manifest:
        """The list of what was saved."""
        saved = tuple(name for part in self.parts for name in part.encoded.saved)
        changed = [name for part in self.parts for name in part.encoded.changed]
        return Manifest(
            memory_bytes=sum(name.memory_bytes for name in saved),
            saved=saved,
            missing=(*(name for part in self.parts for name in part.encoded.missing), *self._missing),
            cell=cell,
            changed=(*changed, *self._changed),
            left=sum(len(part.encoded.saved) for part in self._left.values()),
        )

    def to_index(self, table: Table) -> dict[str, Any]:
        """The index's entries for what was stored."""
        components = [
            {
                "names": len(part.encoded.saved),  # of the manifest's, in order
                **part.stored.to_index(table),
            }
            for part in self.parts
        ]
        interpreter = table.add(self._interpreter) if self._interpreter is not None else None
        return {"components": components, "interpreter": interpreter}

    def _walk(self) -> Graph:
        graph = Graph(self._rules.lookers, self._rules.leaves, self._namespaces, self._tick)
        for name, value in self._walked.items():
            graph.add(name, value)
        return graph

    def _add(self, component: Component, graph: Graph, known: Mapping[bytes, Part]) -> None:
        before = known.get(component.digest) if component.digest is not None else None
        if id(component) in self._left:
            part = self._left[id(component)]
        elif before is not None and all(key in graph.memories for key in before.encoded.keys):
            sources = [graph.memories[key].source() for key in before.encoded.keys]
            try:
                placed = self._layout.put(sources, before.encoded.keys)
                part = Part(component, replace(before.stored, regions=placed), before.encoded)
            except NoRoomError:
                part = self._encode(component, graph)  # which names what does not fit
        else:
            began_s = monotonic_s()
            try:
                part = self._encode(component, graph)
            finally:
                self.recurring_s += monotonic_s() - began_s if component.digest is None else 0.0
        self.parts.append(part)
        if component.digest is not None:
            self.by_digest[component.digest] = part

    def _encode(self, component: Component, graph: Graph) -> Part:
        """Pickle a component, again without what turns out to have no room."""
        names = {name: self._names[name] for name in component.names}
        regions = self._rules.regions
        regions.refused = {}
        while True:
            scratch = Scratch(self._arena.fits, self._tick)
            encoded = Encoder(scratch, self._rules, graph.holders, graph.flat, graph.globals, graph.sets).encode(names)
            failed: list[int] = []
            try:
                placed = self._layout.put(regions.sources, regions.keys, failed.append)
                stream = self._blobs.put(pieces_of(scratch.content()), self._tick)
            except NoRoomError as error:
                key = regions.keys[failed[0]] if failed else None
                if key is None:
                    return self._nothing_of(component, error)
                regions.refused[key] = NoRoomForError.maker(error, regions.sources[failed[0]].size_bytes)
                continue
            hash_cycles = self._has_hash_cycles(names.values(), stream, encoded.hashed)
            return Part(component, Stored(stream, placed, encoded.buffers, hash_cycles), encoded)

    def _has_hash_cycles(self, values: Collection[Any], stream: Blob, hashed: int) -> bool:
        """As the last save found it, where it pickled the same: a restore sees no more than the stream."""
        if not hashed:
            return False
        if (known := self._last_found.get(_seen_in(stream, hashed))) is not None:
            return known
        try:
            return has_hash_cycles(values, self._namespaces, self._tick, self._rules.handlers)
        except SaveEndsError:
            raise
        except BaseException:  # noqa: BLE001 - a class of somebody's raises where it is asked what it is
            return True

    def _nothing_of(self, component: Component, error: NoRoomError) -> Part:
        """What is left of a component whose stream itself has no room."""
        nothing = self._blobs.put((), self._tick)
        values = {name: self._names[name] for name in component.names}
        missing = [missing_name(name, value, error) for name, value in values.items()]
        return Part(component, Stored(nothing, Places([], nothing), ()), Encoded(missing=missing))


def _seen_in(stream: Blob, hashed: int) -> tuple[Hashable, ...]:
    return stream.size_bytes, hashed, *(chunk.digest for chunk in stream.chunks)


def _torn(name: str, value: object) -> ChangedName:
    return ChangedName(
        name, type_name(value), "memory that two libraries show on the Gpu comes back as a copy for each"
    )
