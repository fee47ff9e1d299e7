"""Saves a namespace again and again into one arena, each time only what changed; lives as long as the GPU process."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.held_signals import held
from nls_jupyter.saved_state import libraries, order
from nls_jupyter.saved_state.alone import Counts
from nls_jupyter.saved_state.arena import Arena, NoRoomError, SavedStateDamagedError
from nls_jupyter.saved_state.aside import NotAsideError
from nls_jupyter.saved_state.blobs import Table
from nls_jupyter.saved_state.bringing_back import BringingBack
from nls_jupyter.saved_state.carried import Carried
from nls_jupyter.saved_state.classes import without_a_trace
from nls_jupyter.saved_state.collector import no_collections
from nls_jupyter.saved_state.committed import Committed
from nls_jupyter.saved_state.copies import Copies
from nls_jupyter.saved_state.manifest import describe
from nls_jupyter.saved_state.one_save import OneSave
from nls_jupyter.saved_state.room import MachineRoom, resident_bytes
from nls_jupyter.saved_state.store import Contents
from nls_jupyter.saved_state.touched import Touched
from nls_jupyter.saved_state.watchdog import OverBudgetError, SaveEndsError, StuckError, Watchdog, deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nls_jupyter.saved_state.blobs import Chunk
    from nls_jupyter.saved_state.budget import Room
    from nls_jupyter.saved_state.decoder import RestoreReport
    from nls_jupyter.saved_state.graph import Component
    from nls_jupyter.saved_state.interpreter import Interpreter
    from nls_jupyter.saved_state.manifest import Manifest, MissingName
    from nls_jupyter.saved_state.part import Part
    from nls_jupyter.saved_state.store import Fingerprints, Held

#: How long an object's own code may do nothing.
PATIENCE_S = 10.0
# What looks for memory of Gpus before a copy is made takes at most this.
_LOOK_S = 0.02


class DroppedError(Exception):
    """Somebody else has emptied the files while this was saved into them."""


class Saver:
    """The saved state of one process. Everything runs in one thread, the main one where objects are to be watched.

    Signals that Python handles wait until a save or a restore is over.

    Attributes:
        recipes: expressions by name; such a name is not saved but computed again, after everything else is there.
        drops: how often somebody else has emptied the files of what was saved here, see `arena.empty`.
        on_component: gets the key of each component that is brought back now, and `None` once none is.
        touched: is to be told what runs.
        missed: names that a whole look found changed though nothing that was told of could touch them.

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
        self.on_component: Callable[[str | None], None] = _unheard
        self.drops: Callable[[], int] = int
        self._drops_seen = 0
        self._interpreter = interpreter
        self._room = room or MachineRoom()
        self._patience_s = patience_s
        self._committed: Committed | None = None
        self.touched = Touched()
        self.missed: set[str] = set()
        self._parts: dict[bytes, Part] = {}
        self._last: list[Part] = []
        self._to_look_at: tuple[list[tuple[list[str], int]], dict[int, int]] | None = None
        self._fingerprints: Fingerprints = {}
        self._carried = Carried()
        self._recurring_s = 0.0
        self._copies = Copies()
        self._is_behind = False

    def descriptors(self) -> list[int]:
        """Of the files that hold what was committed last, for others to copy."""
        return self._committed.arena.descriptors() if self._committed is not None else []

    def close(self) -> None:
        """Let go of the arena; others may hold it on. Idempotent."""
        self._copies.end()
        self._is_behind = False
        if self._committed is not None:
            self._committed.close()
        self._committed, self._parts, self._fingerprints = None, {}, {}
        self._last, self._to_look_at = [], None
        self._carried = Carried()

    # -- saving -----------------------------------------------------------------------------------------------------
    @held()
    def save(
        self,
        namespace: Mapping[str, Any],
        *,
        cell: str | None,
        function_globals: Mapping[str, Any] | None = None,
        budget_s: float | None = None,
        stop: Callable[[], None] | None = None,
        after_cell: bool = False,
    ) -> Manifest:
        """Save names with all that they share; those that cannot be saved are in the manifest with their reasons.

        Killed or failed at any point, what was committed before stands. What a stopped save has already copied is
        not copied again by the next one.

        Args:
            namespace: the user's names (see `user_names`).
            cell: the cell after which this is, for the manifest.
            function_globals: the namespace of functions defined in cells, where it is not `__main__`'s or `namespace`.
            budget_s: what this save may cost; `None` for whatever it takes.
            stop: called now and then; what it raises, such as SaveStoppedError, stops the save.
            after_cell: leave what `touched` tells to be as it was saved; a save without looks at everything.

        Raises:
            OverBudgetError: it costs more than `budget_s`; at once where the last save tells.
            OSError: the system refuses the memory.
            DroppedError: what was saved was dropped meanwhile; the next save is a whole one.
            Exception: what a Gpu library raised while it was waited for or copied from.
        """
        self._settle()
        self._to_look_at = None
        names = self._names(namespace, function_globals)
        untouched = self._untouched(names)
        left = untouched if after_cell else []
        if budget_s is not None and self._recurring_s > budget_s and not left:
            raise OverBudgetError(f"the save before took {self._recurring_s:g} s for what each save does")
        libraries.synchronize()
        manifest = self._save(names, cell, self._captured, budget_s, stop, left=left)
        self._note_missed(untouched)
        return manifest

    @held()
    def look(
        self,
        namespace: Mapping[str, Any],
        *,
        function_globals: Mapping[str, Any] | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        """After a save and before anything else runs: what the next one after a cell will be able to leave.

        Raises nothing: without it, that looks at everything. For the arguments see `save`.
        """
        groups, flat = self._to_look_at or ([], {})
        self._to_look_at = None
        if not groups:
            return
        if not any(map(order.is_large, (part.component for part in self._last))):
            self.touched.anything("all is small")
            return
        watchdog = Watchdog(self._patience_s, stop)
        try:
            with watchdog.watching():
                names = self._names(namespace, function_globals)
                main = function_globals or vars(sys.modules["__main__"])
                shown = self._interpreter.shown() if self._interpreter is not None else []
                holders, tick = (*names.main_globals, main), stop or watchdog.progress
                counts = Counts(names.every, main, holders, shown, flat.keys(), tick)
                self.touched.look(groups, names.every, main, counts)
        except (Exception, SaveEndsError, StuckError) as error:  # noqa: BLE001 - it was to make the next save cheaper, no more
            self.touched.anything(f"the look ended: {describe(error)}")

    def _untouched(self, names: _Names) -> list[Part]:
        """What the last save wrote, as far as that is right still, whatever ran since."""
        untouched = self.touched.untouched(names.every)
        large = (part for part in self._last if order.is_large(part.component) and not part.encoded.missing)
        return [part for part in large if frozenset(part.component.names) in untouched]

    def _note_missed(self, untouched: Iterable[Part]) -> None:
        now = {tuple(part.component.names): part for part in self._last}
        for part in untouched:
            names = tuple(part.component.names)
            if names not in now or now[names].stored.digests() != part.stored.digests():
                self.missed |= {*names}

    @held()
    def save_aside(
        self,
        namespace: Mapping[str, Any],
        *,
        cell: str | None,
        function_globals: Mapping[str, Any] | None = None,
        stop: Callable[[], None],
        committed: Callable[[], None],
        over: Callable[[str], None],
    ) -> None:
        """Have a copy of this process save, as `save` does, while this one goes on: what is saved is as of now.

        The next call of anything else here ends it. Memory of Gpus, which only this process can read, is read before.
        The copy refuses what this would have missed, and to leave out what the save before did not. What is new and
        cannot be saved is left out, and the copy refuses once the rest is saved: the process itself might save it.

        Args:
            namespace: see `save`.
            cell: see `save`.
            function_globals: see `save`.
            stop: see `save`; called in the copy.
            committed: called in the copy once the save stands.
            over: see `Aside`.

        Raises:
            NotAsideError: this process is better not copied now.
        """
        self._settle()
        self._to_look_at = None
        if (why := self.why_not_aside()) is not None:
            raise NotAsideError(why)
        self._copies.refuse_shared()
        libraries.synchronize()
        # Here and not in the copy: a fork seeds the random numbers anew, among others.
        captured, names = self._captured(), self._names(namespace, function_globals)
        committed_last = self._open()
        committed_last.begin()
        if committed_last.arena.memory_room_bytes < resident_bytes():
            raise NotAsideError("memory is too short for a copy of this process")
        held, on_devices = self._hold(names, stop)

        def work(check: Callable[[], None]) -> None:
            def stopped() -> None:
                check()
                stop()

            manifest = self._save(names, cell, lambda: captured, None, stopped, held)
            committed()
            self._copies.refuse_losses(names.every, manifest, but_new=False)

        self._copies.begin(work, over, names.every, on_devices)

    def why_not_aside(self) -> str | None:
        """Why no copy of this process can save, as far as is known now; `None` if one can."""
        return self._copies.why_none()

    def _names(self, namespace: Mapping[str, Any], function_globals: Mapping[str, Any] | None) -> _Names:
        user = {name: value for name, value in namespace.items() if name not in self.recipes}
        beside = self._interpreter.outputs() if self._interpreter is not None else {}
        return _Names({**user, **beside}, (namespace, function_globals or namespace))

    def _hold(self, names: _Names, stop: Callable[[], None]) -> tuple[Held, set[str]]:
        """What memory of Gpus holds, as far as it is behind names that led there before, or are new; and which do."""
        if not libraries.may_be_on_devices():
            return {}, set()
        likely = self._copies.perhaps_on_devices(names.every)
        with Watchdog(self._patience_s, stop).watching():
            save = OneSave(likely, names.main_globals, self._open(), stop, self._fingerprints, _never)
            try:
                held = save.hold(_LOOK_S)
            except NoRoomError as error:
                raise NotAsideError(str(error)) from error
        self._fingerprints = {**self._fingerprints, **save.fingerprints}
        return held, save.on_devices

    def _captured(self) -> tuple[bytes, list[MissingName]] | None:
        return self._interpreter.capture() if self._interpreter is not None else None

    def _settle(self) -> None:
        """End the copy that saves, if one does, and go on with what it has committed, unless that is dropped."""
        self._is_behind |= self._copies.end()
        drops = self.drops()
        if drops != self._drops_seen:
            self.close()
            self._drops_seen = drops
        if not self._is_behind:
            return
        committed = self._open()
        try:
            content, chunks = committed.read()
        except SavedStateDamagedError:  # it was to be the first one
            self.close()
            return
        committed.adopt(chunks)
        stands = {(chunk.digest, chunk.extent) for chunk in chunks}

        def standing(found: Iterable[Chunk]) -> bool:
            return all((chunk.digest, chunk.extent) in stands for chunk in found)

        # Of what the copy has pickled, this process does not know that it is unchanged.
        self._parts = {digest: part for digest, part in self._parts.items() if standing(part.stored.chunks())}
        self._last = [part for part in self._last if standing(part.stored.chunks())]
        self._fingerprints = {key: seen for key, seen in self._fingerprints.items() if standing(seen[1].chunks)}
        self._recurring_s = content.get("recurring_s", 0.0)
        self._is_behind = False  # not before all of this has gone well

    def _save(
        self,
        names: _Names,
        cell: str | None,
        captured: Callable[[], tuple[bytes, list[MissingName]] | None],
        budget_s: float | None,
        stop: Callable[[], None] | None,
        held: Held | None = None,
        left: Sequence[Part] = (),
    ) -> Manifest:
        committed = self._open()
        committed.begin()
        watchdog = Watchdog(self._patience_s, stop)
        check = deadline(budget_s)

        def tick() -> None:
            watchdog.progress()
            check()
            if stop is not None:
                stop()

        with watchdog.watching(), without_a_trace(), no_collections():
            is_fresh = self._interpreter.is_fresh if self._interpreter is not None else _never
            save = OneSave(names.every, names.main_globals, committed, tick, self._fingerprints, is_fresh, held)
            try:
                save.write(self._parts, self._last, left)
                save.keep_interpreter(captured())
            except OverBudgetError:
                self._recurring_s = save.recurring_s
                committed.arena.prepare(save.memory_bytes - committed.blobs.hashed_bytes)
                raise
        manifest = save.manifest(cell)
        if held is None:
            self._copies.noted(names.every, save, manifest)
        else:
            self._copies.refuse_losses(names.every, manifest, but_new=True)
        self._carried.forget({*names.main_globals[0], *(name.name for name in manifest.saved)})
        manifest = replace(manifest, carried=self._carried.names(), recomputed=tuple(self.recipes.items()))
        return self._commit(save, manifest, committed)

    def _open(self) -> Committed:
        self._committed = self._committed or Committed(Arena.new(self._room))
        return self._committed

    def _commit(self, save: OneSave, manifest: Manifest, committed: Committed) -> Manifest:
        if self.drops() != self._drops_seen:
            raise DroppedError("memory became short meanwhile")
        table = Table()
        content = {
            "manifest": manifest.to_json(),
            **save.to_index(table),
            "recurring_s": save.recurring_s,
            "carried": self._carried.to_index(table),
            "recipes": self.recipes,
        }
        committed.commit(content, table)
        self._parts, self._last, self._fingerprints = save.by_digest, save.parts, save.fingerprints
        self._to_look_at = save.groups, save.flat
        self._recurring_s = save.recurring_s
        committed.keep_only([*save.chunks(), *self._carried.chunks()])
        return manifest

    # -- restoring --------------------------------------------------------------------------------------------------
    @held()
    def restore(
        self, descriptors: Sequence[int], namespace: dict[str, Any], deaths: Mapping[str, int] | None = None
    ) -> RestoreReport:
        """Put the saved names into `namespace`, which becomes the globals of functions that were defined in cells.

        Names that cannot be restored are left out and reported; what was saved of them stays saved, see `try_again`.
        What is saved next goes into the same files; the descriptors themselves stay the caller's. Raises
        SavedStateDamagedError.

        Args:
            descriptors: of the files.
            namespace: the user's.
            deaths: how many processes died while they restored a component of these files, by its key.
        """
        committed = Committed(Arena.adopt(descriptors, self._room))
        try:
            content, chunks = committed.read()
        except BaseException:
            committed.close()
            raise
        self.close()
        self._committed, self._drops_seen = committed, self.drops()
        committed.adopt(chunks)
        self.recipes = dict(content["recipes"])
        watchdog = Watchdog(self._patience_s)
        with watchdog.watching():
            contents = Contents(committed.arena, chunks, watchdog.progress)
            self._carried = Carried.of_index(content, contents)
            return self._back_into(namespace).everything(content, contents, deaths or {}, watchdog)

    def try_again(self, namespace: dict[str, Any], *, asked: bool = False) -> RestoreReport:
        """Once more what could not be restored, as far as its names are not bound by now.

        `asked` for by the user: what ends processes is tried, too.
        """
        self._settle()
        self.touched.anything("what was missing may be back")
        self._carried.forget(namespace)
        watchdog = Watchdog(self._patience_s)
        with watchdog.watching():
            bringing = self._back_into(namespace)
            return bringing.what_is_due(watchdog.progress, lambda component: asked or not component.waits)

    def forget(self, names: Sequence[str]) -> None:
        """Of what could not be restored, nobody wants these back."""
        self._carried.forget(names)

    def _back_into(self, namespace: dict[str, Any]) -> BringingBack:
        return BringingBack(namespace, self._carried, self._open().arena, self._interpreter, self.on_component)


@dataclass(frozen=True, slots=True)
class _Names:
    """What is saved.

    Attributes:
        every: the user's names, and what lies beside them.
        main_globals: the user's namespace, and the globals of functions of cells.
    """

    every: Mapping[str, Any]
    main_globals: tuple[Mapping[str, Any], ...]


def _unheard(_: str | None) -> None:
    """Nobody wants to know."""


def _never(_: Component) -> bool:
    return False
