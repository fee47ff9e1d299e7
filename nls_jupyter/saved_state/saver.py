"""Saves a namespace again and again into one arena, each time only what changed; lives as long as the GPU process."""

from __future__ import annotations

import json
import struct
import sys
import threading
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import libraries, recipes
from nls_jupyter.saved_state.arena import Arena, NoRoomError, SavedStateDamagedError, digest_of
from nls_jupyter.saved_state.blobs import BlobWriter, Table, chunks_of, pieces_of, read_blob
from nls_jupyter.saved_state.decoder import RestoreReport, decode
from nls_jupyter.saved_state.encoder import Encoded, Encoder, rank, reason_for
from nls_jupyter.saved_state.graph import Component, Graph
from nls_jupyter.saved_state.manifest import ChangedName, Manifest, MissingName, type_name
from nls_jupyter.saved_state.pickler import Rules
from nls_jupyter.saved_state.regions import NoRoomForError
from nls_jupyter.saved_state.room import MachineRoom
from nls_jupyter.saved_state.store import Contents, Layout, Places, Reader, Scratch, digests
from nls_jupyter.saved_state.watchdog import Watchdog, deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_jupyter.saved_state.arena import Extent, Room
    from nls_jupyter.saved_state.blobs import Blob, Chunk
    from nls_jupyter.saved_state.interpreter import Interpreter
    from nls_jupyter.saved_state.store import Fingerprints

_INDEX = struct.Struct("<QQ")  # lengths of the JSON part and of the table
# Components of fewer objects share one stream: a thousand small names are not a thousand streams.
_SMALL_NODES = 1000
# From here on names are neither modules nor functions nor classes (see `encoder.rank`).
_OTHERS_RANK = 2
#: How long an object's own code may do nothing.
PATIENCE_S = 10.0


@dataclass(slots=True)
class _Part:
    """A component in the arena.

    Attributes:
        held: keeps what the digest is made of.
        stream: the pickle stream.
        regions: where its memory lies.
        encoded: which names it holds.
    """

    held: list[Any]
    stream: Blob
    regions: Places
    encoded: Encoded

    def chunks(self) -> list[Chunk]:
        """All that it consists of."""
        return [*self.stream.chunks, *self.regions.chunks()]


@dataclass(slots=True)
class _Save:
    """One save while it is made."""

    names: Mapping[str, Any]
    rules: Rules
    graph: Graph
    tick: Callable[[], None]
    layout: Layout
    parts: list[_Part] = field(default_factory=list)
    by_digest: dict[bytes, _Part] = field(default_factory=dict)
    changed: list[ChangedName] = field(default_factory=list)
    missing: list[MissingName] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    interpreter: Blob | None = None

    def chunks(self) -> list[Chunk]:
        """All that it consists of."""
        beside = self.interpreter.chunks if self.interpreter is not None else ()
        return [*beside, *(chunk for part in self.parts for chunk in part.chunks())]


class Saver:
    """The saved state of one process. Everything runs in one thread, the main one where objects are to be watched.

    Attributes:
        recipes: expressions by name; such a name is not saved but computed again, after everything else is there.

    Args:
        room: how much there is room for.
        interpreter: what is kept beside the names; `None` for nothing.
        patience_s: how long an object's own code may do nothing before its name is given up; `None` for ever.
    """

    def __init__(
        self,
        room: Room | None = None,
        interpreter: Interpreter | None = None,
        patience_s: float | None = PATIENCE_S,
    ) -> None:
        self.recipes: dict[str, str] = {}
        self._interpreter = interpreter
        self._room = room or MachineRoom()
        self._patience_s = patience_s
        self._arena: Arena | None = None
        self._blobs: BlobWriter | None = None
        self._parts: dict[bytes, _Part] = {}
        self._fingerprints: Fingerprints = {}
        self._index: Extent | None = None

    def descriptors(self) -> list[int]:
        """Of the files that hold what was committed last, for others to copy."""
        return self._arena.descriptors() if self._arena is not None else []

    def close(self) -> None:
        """Let go of the arena; others may hold it on. Idempotent."""
        if self._arena is not None:
            self._arena.close()
        self._arena, self._blobs, self._parts, self._fingerprints = None, None, {}, {}

    # -- saving -----------------------------------------------------------------------------------------------------
    def save(
        self,
        namespace: Mapping[str, Any],
        *,
        cell: str | None,
        function_globals: Mapping[str, Any] | None = None,
        budget_s: float | None = None,
    ) -> Manifest:
        """Save names with all that they share; those that cannot be saved are in the manifest with their reasons.

        Killed or failed at any point, what was committed before stands. What a stopped save has already copied is
        not copied again by the next one.

        Args:
            namespace: the user's names (see `user_names`).
            cell: the cell after which this is, for the manifest.
            function_globals: the namespace of functions defined in cells, where it is not `__main__`'s or `namespace`.
            budget_s: what this save may cost; `None` for whatever it takes.

        Raises:
            OverBudgetError: it costs more than `budget_s`.
            OSError: the system refuses the memory.
            Exception: what a Gpu library raised while it was waited for or copied from.
        """
        libraries.synchronize()
        arena, blobs = self._open()
        arena.begin()
        blobs.begin()
        watchdog = Watchdog(self._patience_s)
        check = deadline(budget_s)

        def tick() -> None:
            watchdog.progress()
            check()

        outputs = self._interpreter.outputs() if self._interpreter is not None else {}
        names = {name: value for name, value in namespace.items() if name not in self.recipes}
        with watchdog.watching():
            save = self._look({**names, **outputs}, (namespace, function_globals or namespace), tick, blobs)
            save.outputs = list(outputs)
            components = save.graph.components()
            save.changed += [_torn(name, save.names[name]) for name in sorted(save.graph.torn)]
            for component in _in_order(components, save.names):
                self._add(save, component, arena, blobs)
            self._look_again(save)
            if self._interpreter is not None:
                stored, save.missing = self._interpreter.capture()
                save.interpreter = blobs.put(pieces_of(memoryview(stored)), tick)
        return self._commit(save, cell, arena, blobs)

    def _open(self) -> tuple[Arena, BlobWriter]:
        if self._arena is None or self._blobs is None:
            self._arena = Arena.new(self._room)
            self._blobs = BlobWriter(self._arena)
        return self._arena, self._blobs

    def _look(
        self,
        namespace: Mapping[str, Any],
        function_globals: tuple[Mapping[str, Any], ...],
        tick: Callable[[], None],
        blobs: BlobWriter,
    ) -> _Save:
        main = sys.modules.get("__main__")
        namespaces = (*function_globals, vars(main) if main is not None else namespace)
        rules = Rules(namespaces)
        graph = Graph(rules.lookers, tuple(kind for kind, _ in rules.unsavable), namespaces, tick)
        for name, value in namespace.items():
            graph.add(name, value)
        for library in rules.libraries:
            library.prepare(graph.holders)
        return _Save(namespace, rules, graph, tick, Layout(blobs, tick, self._fingerprints))

    def _add(self, save: _Save, component: Component, arena: Arena, blobs: BlobWriter) -> None:
        known = self._parts.get(component.digest) if component.digest is not None else None
        if known is not None and all(key in save.graph.memories for key in known.encoded.keys):
            sources = [save.graph.memories[key].source() for key in known.encoded.keys]
            try:
                part = _Part(known.held, known.stream, save.layout.put(sources, known.encoded.keys), known.encoded)
            except NoRoomError:
                part = self._encode(save, component, arena, blobs)  # which names what does not fit
        else:
            part = self._encode(save, component, arena, blobs)
        save.parts.append(part)
        if component.digest is not None:
            save.by_digest[component.digest] = part

    def _encode(self, save: _Save, component: Component, arena: Arena, blobs: BlobWriter) -> _Part:
        """Pickle a component, again without what turns out to have no room."""
        names = {name: save.names[name] for name in component.names}
        regions = save.rules.regions
        regions.refused = {}
        while True:
            scratch = Scratch(arena.fits, save.tick)
            encoded = Encoder(scratch, save.rules, save.graph.holders).encode(names)
            failed: list[int] = []
            try:
                placed = save.layout.put(regions.sources, regions.keys, failed.append)
                stream = blobs.put(pieces_of(scratch.content()), save.tick)
            except NoRoomError as error:
                key = regions.keys[failed[0]] if failed else None
                if key is None:
                    return self._nothing_of(names, error, blobs, save.tick)
                regions.refused[key] = NoRoomForError.maker(error, regions.sources[failed[0]].size_bytes)
                continue
            return _Part(component.held, stream, placed, encoded)

    def _nothing_of(
        self, names: Mapping[str, Any], error: NoRoomError, blobs: BlobWriter, tick: Callable[[], None]
    ) -> _Part:
        """What is left of a component whose stream itself has no room."""
        nothing = blobs.put((), tick)
        missing = [MissingName(name, type_name(value), reason_for(error, value)) for name, value in names.items()]
        return _Part([], nothing, Places([], nothing), Encoded(missing=missing))

    def _look_again(self, save: _Save) -> None:
        """With other threads at work, an array may have changed between its first byte and its last."""
        if not _foreign_threads():
            return
        for part in save.parts:
            moved = False
            for key, place in zip(part.encoded.keys, part.regions.places, strict=True):
                if key in save.graph.memories and not isinstance(place, tuple):
                    again = digests(save.graph.memories[key].source(), save.tick)
                    moved |= again != [chunk.digest for chunk in place.chunks]
            if moved:
                change = "another thread changed it while it was saved: parts of it may be of different moments"
                save.changed += [ChangedName(name.name, name.type_name, change) for name in part.encoded.saved]

    def _commit(self, save: _Save, cell: str | None, arena: Arena, blobs: BlobWriter) -> Manifest:
        manifest = _manifest(save, cell)
        table = Table()
        components = [
            {
                "names": len(part.encoded.saved),  # of the manifest's, in order
                "stream": table.add(part.stream),
                "buffers": part.encoded.buffers,
                **part.regions.to_index(table),
            }
            for part in save.parts
        ]
        index = {
            "manifest": manifest.to_json(),
            "components": components,
            "interpreter": table.add(save.interpreter) if save.interpreter is not None else None,
            "outputs": save.outputs,
            "recipes": self.recipes,
        }
        text = json.dumps(index).encode()
        rows = table.to_bytes()
        before = self._index
        self._index = arena.commit(_INDEX.pack(len(text), len(rows)) + text + rows)
        self._parts, self._fingerprints = save.by_digest, save.layout.fingerprints
        spare_bytes = min(blobs.written_bytes, max(arena.memory_room_bytes, 0) // 2)
        blobs.keep_only(save.chunks(), spare_bytes)
        if before is not None:
            arena.release([before])
        return manifest

    # -- restoring --------------------------------------------------------------------------------------------------
    def restore(self, descriptors: Sequence[int], namespace: dict[str, Any]) -> RestoreReport:
        """Put the saved names into `namespace`, which becomes the globals of functions that were defined in cells.

        Names that cannot be restored are left out and reported. What is saved next goes into the same files; the
        descriptors themselves stay the caller's. Raises SavedStateDamagedError.
        """
        arena = Arena.adopt(descriptors, self._room)
        try:
            index_extent, index, chunks = _read_index(arena)
        except BaseException:
            arena.close()
            raise
        self.close()
        arena.release_all_but([*(chunk.extent for chunk in chunks if chunk.extent is not None), index_extent])
        self._arena, self._blobs, self._index = arena, BlobWriter(arena), index_extent
        self._blobs.adopt(chunks)
        self.recipes = dict(index["recipes"])
        watchdog = Watchdog(self._patience_s)
        with watchdog.watching():
            return self._bring_back(index, Contents(arena, chunks, watchdog.progress), namespace)

    def _bring_back(self, index: Mapping[str, Any], contents: Contents, namespace: dict[str, Any]) -> RestoreReport:
        stored = _read_stored(contents, index["interpreter"]) if self._interpreter is not None else None
        missing: list[MissingName] = []
        restored: list[str] = []
        if self._interpreter is not None and stored:
            missing += self._interpreter.apply(stored, early=True)
        names = iter(Manifest.from_json(index["manifest"]).saved)
        for entry in index["components"]:
            contents.progress()
            report = decode(Reader(contents, entry), namespace, list(islice(names, entry["names"])))
            restored += report.restored
            missing += report.missing
        outputs = {name: namespace.pop(name) for name in index["outputs"] if name in namespace}
        again, failed = recipes.compute(self.recipes, namespace)
        if self._interpreter is not None:
            self._interpreter.put_outputs(outputs)
            missing += self._interpreter.apply(stored, early=False) if stored else []
        kept = [name for name in restored if name not in outputs]
        return RestoreReport((*kept, *again), (*missing, *failed))


def _read_stored(contents: Contents, entry: list[int] | None) -> bytes | None:
    if entry is None:
        return None
    blob = contents.blob(entry)
    stored = bytearray(blob.size_bytes)
    read_blob(contents.arena, blob, memoryview(stored))
    return bytes(stored)


def read_manifest(descriptors: Sequence[int]) -> Manifest:
    """The manifest of a saved state. Nothing is unpickled. Raises SavedStateDamagedError."""
    arena = Arena.adopt(descriptors, MachineRoom())
    try:
        return Manifest.from_json(_read_index(arena)[1]["manifest"])
    finally:
        arena.close()


def _read_index(arena: Arena) -> tuple[Extent, dict[str, Any], list[Chunk]]:
    extent, content = arena.index()
    try:
        text_bytes, table_bytes = _INDEX.unpack_from(content)
        text = content[_INDEX.size : _INDEX.size + text_bytes]
        table = content[_INDEX.size + text_bytes :][:table_bytes]
        return extent, json.loads(text), chunks_of(table)
    except (struct.error, ValueError) as error:
        raise SavedStateDamagedError(f"The saved state's index cannot be read: {error}") from error


def _in_order(components: Sequence[Component], namespace: Mapping[str, Any]) -> list[Component]:
    """Components in the order in which they are restored; small ones without memory of their own together."""
    small: dict[bool, list[Component]] = {}
    found: list[tuple[int, Component]] = []
    for component in components:
        order = max(rank(namespace[name]) for name in component.names)
        if component.digest is None or component.nodes > _SMALL_NODES or component.has_memory:
            found.append((order, component))
            continue
        bunch = small.setdefault(order < _OTHERS_RANK, [])
        bunch.append(component)
        if sum(each.nodes for each in bunch) > _SMALL_NODES:
            found.append((order, _together(small.pop(order < _OTHERS_RANK))))
    found += [(0 if is_code else _OTHERS_RANK, _together(bunch)) for is_code, bunch in small.items()]
    return [component for _, component in sorted(found, key=lambda pair: pair[0])]


def _together(components: list[Component]) -> Component:
    digests = [component.digest for component in components if component.digest is not None]
    return Component(
        names=[name for component in components for name in component.names],
        digest=digest_of(b"".join(digests)),
        nodes=sum(component.nodes for component in components),
        held=[thing for component in components for thing in component.held],
        has_memory=False,
    )


def _torn(name: str, value: object) -> ChangedName:
    return ChangedName(
        name, type_name(value), "memory that two libraries show on the Gpu comes back as a copy for each"
    )


def _manifest(save: _Save, cell: str | None) -> Manifest:
    saved = tuple(name for part in save.parts for name in part.encoded.saved)
    changed = [name for part in save.parts for name in part.encoded.changed]
    return Manifest(
        memory_bytes=sum(name.memory_bytes for name in saved),
        saved=saved,
        missing=(*(name for part in save.parts for name in part.encoded.missing), *save.missing),
        cell=cell,
        changed=(*changed, *save.changed),
    )


def _foreign_threads() -> bool:
    """Whether threads run that may change what the user sees; those of the kernel's own machinery do not."""
    own = ("ipykernel", "IPython", "zmq", "tornado", "debugpy", "_pydevd", "pydevd")
    current = threading.current_thread()
    return any(
        thread is not current and thread is not threading.main_thread() and not type(thread).__module__.startswith(own)
        for thread in threading.enumerate()
    )
