"""What is left of a notebook's GPU variables when its kernel ends: files on the user's volume, or a line of names.

The line goes where the kernel's own log goes, since nobody looks at the notebook any more. Everything here runs in the
loop's thread, the files in another.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TextIO, TypeVar

from nls_jupyter.between.errors import GpuUnavailable
from nls_jupyter.saved_state import read_manifest
from nls_jupyter.saved_state.on_volume import KeptFiles, notebooks
from nls_jupyter.saved_state.volume_files import KeptStateError, refuse_unusable
from nls_jupyter.supervisor import notices
from nls_jupyter.supervisor.completed import gone
from nls_jupyter.supervisor.kept_state import SavedState
from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.orders import CANNOT_SAVE
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.saved_state.kept import Begun, Kept
    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.notices import NoticeLog
    from nls_jupyter.supervisor.place import Place

_Value = TypeVar("_Value")
_ENDING = "the notebook's kernel is told to end"
_RESTORE = "restore"
_MOST_NAMED = 20
_LOOK_AGAIN_S = 1.0
_STAYS = "It stays there, and is set aside once this kernel keeps something"
NO_FOLDER = "c.GpuMagics.kept_folder or NLS_KEPT_FOLDER names a folder that keeps those of notebooks"


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of the variables of a kernel that ends.

    Attributes:
        all_kept: nothing is lost that could have been kept.
        sentence: for the log.
        lost: what the node's history says of it, if a folder was to keep them; `None`: nothing is lost.
    """

    all_kept: bool
    sentence: str
    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Why, names of variables, and cells that are not in what is kept."""

    reason: str
    missing: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


class Lasting:
    """One notebook's.

    Args:
        files: where the variables are kept; `None` where the user wants nothing kept.
        keeper: has what is saved.
        place: is told when something runs in the GPU process.
        log: for the user.
        save: saves what the process has now.
    """

    def __init__(
        self,
        files: KeptFiles | None,
        keeper: Keeper,
        place: Place,
        log: NoticeLog,
        save: Callable[[], Awaitable[SavedState]],
    ) -> None:
        self._files = files
        self._keeper = keeper
        self._place = place
        self._log = log
        self._save = save
        self._keeping: asyncio.Task[Ended] | None = None
        self._named = ""
        self._told: Lost | None = None
        self._taken: set[str] = set()
        self._announced: dict[str, str] = {}
        self._interrupted: str | None = None
        self._volume: int | None = None

    # The end

    @property
    def keeps(self) -> bool:
        """Whether what the notebook has goes to a later kernel."""
        return self._files is not None

    async def keep(self, grace_s: float) -> Ended:
        """Keep what the notebook has, or name it in the log; once more is nothing where nothing has changed.

        Args:
            grace_s: how long a cell that runs may take to put things in order.
        """
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.get_running_loop().create_task(self._keep_and_tell(grace_s))
        return await asyncio.shield(self._keeping)

    async def _keep_and_tell(self, grace_s: float) -> Ended:
        """What is lost stands in the node's history as well: nobody may ever look at this log."""
        note = await self._noted()
        ended, orders = await self._keep(grace_s), self._place.orders
        if ended.lost is not None and ended.lost != self._told and orders is not None:
            self._told = ended.lost
            await orders.tell_lost(ended.lost.reason, ended.lost.missing, ended.lost.cells)
        if note is not None and self._files is not None:
            with suppress(KeptStateError):
                await _aside(partial(self._files.end, note))
        return ended

    async def _noted(self) -> TextIO | None:
        """Who is in a hurry kills this kernel in the middle: then the next one tells what was not kept."""
        keeper = self._keeper
        saved = [] if keeper.saved is None else [name.name for name in keeper.saved.manifest.variables]
        names = sorted({*saved, *keeper.lineage.made_in(keeper.completed.unsaved)})
        if self._files is None or not names:
            return None
        files = self._files
        with suppress(KeptStateError):  # what is kept meets the same, and that is told
            return await _aside(lambda: files.begin(names, keeper.last_cell))
        return None

    async def _keep(self, grace_s: float) -> Ended:
        if self._files is None:
            return self._name_all()
        why = await self._save_last(grace_s)
        saved = self._keeper.saved
        if saved is None or not (saved.manifest.variables or saved.manifest.missing):
            return Ended(why is None, "nothing to keep" if why is None else _said(why), self._lost(why, None))
        _tell(f"This kernel is told to end, and writes {_listed(saved.manifest)} to {self._files.folder}.")
        are, them = _number(saved.manifest.variables)
        replaced = await self._replaced(self._files)
        try:
            kept = await self._written(self._files, saved)
        except KeptStateError as error:
            stands = await self._stands(self._files)
            sentence = f"{_listed(saved.manifest)} {are} lost with the kernel: {error}.{stands}"
            names = [name.name for name in saved.manifest.variables]
            return Ended(all_kept=False, sentence=_said(sentence), lost=self._lost(str(error), saved.manifest, names))
        behind = gone(self._keeper.completed.unsaved, saved.manifest.cell) or why
        more = f" {behind}" if behind else ""
        if self._volume not in (None, await _aside(self._files.volume)):
            more += f" {self._files.folder} is on another volume than when this kernel began: is something not mounted?"
        sentence = f"{_listed(saved.manifest)} {are} kept {kept.as_of}; %gpu restore brings {them} back.{more}"
        lost = self._lost(why, saved.manifest)
        if replaced is not None and replaced.content != kept.content:
            others = tuple(name.name for name in replaced.variables)
            gone_too = f"what was kept on {replaced.at}, which no kernel has brought back, is replaced"
            sentence = f"{sentence} {gone_too[0].upper()}{gone_too[1:]}: {_some(others)}."
            lost = replace(lost, missing=(*lost.missing, *others)) if lost is not None else Lost(gone_too, others)
        return Ended(not behind, _said(sentence), lost)

    async def _replaced(self, files: KeptFiles) -> Kept | None:
        """What has no place beside the earlier one that stays, as nobody has brought back either."""
        try:
            there = await _aside(lambda: (files.look(), files.look(earlier=True)))
        except KeptStateError:
            return None  # it is set aside
        kept, earlier = (None if one is None or one.content in self._taken else one for one in there)
        return None if earlier is None else kept

    def _lost(self, why: str | None, manifest: Manifest | None, unwritten: Sequence[str] = ()) -> Lost | None:
        """What is not in the files. `why`: something could not be saved before, or the `unwritten` not be written."""
        unsaved = [] if manifest is None else [name.name for name in manifest.missing]
        missing, cells = (*unwritten, *unsaved), tuple(self._keeper.completed.unsaved)
        if why is None and not missing and not cells:
            return None
        because = why or ("it ran after what is kept" if cells else "it cannot be saved")
        return Lost(f"{_ENDING}: {because}", missing, cells)

    def _name_all(self) -> Ended:
        """Once: there is nothing else to be done."""
        saved, unsaved = self._keeper.saved, self._keeper.lineage.made_in(self._keeper.completed.unsaved)
        lost = [_listed(saved.manifest)] if saved is not None and saved.manifest.variables else []
        lost += [f"what was not saved yet ({_some(unsaved)})"] if unsaved else []
        if not lost:
            return Ended(all_kept=True, sentence="")
        sentence = f"This kernel ends, and with it {' and '.join(lost)}. {NO_FOLDER}."
        if self._named != sentence:
            _tell(sentence)
        self._named = sentence
        return Ended(all_kept=False, sentence=sentence)

    async def _written(self, files: KeptFiles, saved: SavedState) -> Kept:
        manifest = saved.manifest
        made_in = {name.name: cell for name in manifest.missing if (cell := self._keeper.lineage.maker(name.name))}
        copies = [os.dup(descriptor) for descriptor in saved.descriptors]  # a later save closes its own
        try:
            interrupted = manifest.cell is not None and manifest.cell == self._interrupted
            kept = await _aside(lambda: files.write(copies, manifest, made_in, self._taken, interrupted=interrupted))
            self._taken.add(kept.content)
            return kept
        finally:
            for copy in copies:
                os.close(copy)

    async def _stands(self, files: KeptFiles) -> str:
        try:
            kept = await _aside(files.look)
        except KeptStateError:
            return ""
        return "" if kept is None else f" What was kept on {kept.at} stands."

    async def _save_last(self, grace_s: float) -> str | None:
        """What ran since the last save; a cell that runs is interrupted for that. Returns why it could not be."""
        keeper = self._keeper
        try:
            async with asyncio.timeout(grace_s):
                if await keeper.reclaim(_ENDING, grace_s):
                    await keeper.cell_over()
                    self._interrupted = keeper.last_cell
            if keeper.suspending:
                await keeper.suspend()
            elif keeper.still_usable():
                await self._save()
        except TimeoutError:
            return f"The cell that runs did not end within {grace_s:g} s."
        except (GpuUnavailable, GpuProcessDied, *CANNOT_SAVE) as error:
            return f"What ran last could not be saved: {error}"
        return None

    # The next kernel

    async def announce(self) -> None:
        """Tell the user of what an earlier kernel has left, and where nothing can be kept, before that is needed."""
        if self._files is None:
            return
        files = self._files
        self._volume = await _aside(files.volume)
        try:
            await _aside(lambda: refuse_unusable(files.folder))
        except KeptStateError as error:
            self._log.add(f"Nothing of this notebook can be kept beyond its kernel: {error}.", important=True)
        try:
            while (begun := await _aside(files.begun)) is not None and begun.goes_on:  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(_LOOK_AGAIN_S)
            kept, earlier = await _aside(lambda: (files.look(), files.look(earlier=True)))
        except KeptStateError as error:
            self._log.add(
                f"What an earlier kernel kept of this notebook is not used: {error}. {_STAYS}.", important=True
            )
            return
        if begun is not None:
            self._log.add(_not_kept(begun, kept or earlier), important=True)
        for one, how in ((kept, "%gpu restore"), (earlier, "%gpu restore earlier")):
            if one is not None and one.content not in self._taken:
                interrupted, (_, them) = f", {one.as_of}" * one.interrupted, _number(one.variables)
                told_of = (
                    f"{told(one)} kept by an earlier kernel of this notebook on {one.at}{interrupted}: "
                    f"{how} brings {them} back."
                )
                if one is kept and earlier is not None and earlier.content not in self._taken:
                    told_of += (
                        " What this kernel keeps takes their place, unless they or the earlier ones are back by then."
                    )
                self._announced[one.content] = told_of
                self._log.add(told_of, important=True)
        if begun is not None:
            orders = await self._place.until_asked()
            await orders.tell_lost(f"an earlier kernel ended on {begun.at} before it had kept them", begun.names, ())
            with suppress(KeptStateError):
                await _aside(files.clear)

    def _take(self, kept: Kept) -> None:
        """It is in what this kernel has: no cell needs to be told of it any more."""
        self._taken.add(kept.content)
        self._log.read(self._announced.pop(kept.content, ""))

    async def restore(self, notebook: str | None, *, earlier: bool = False) -> str:
        """Bring back what an earlier kernel has left, of this notebook or another one. Returns what came of it.

        `earlier`: see `KeptFiles.look`. Raises GpuUnavailable.
        """
        files = self._own_files(notebook)
        keeper = self._keeper
        if keeper.executing:
            raise GpuUnavailable("a cell runs; %gpu restore works when it is over.")
        if not keeper.still_usable() and (keeper.process is not None or keeper.saved is not None):
            raise GpuUnavailable("the GPU process is away, and has variables already; run a GPU cell, then restore.")
        try:
            kept, descriptors = await _aside(lambda: files.load(earlier=earlier))
        except KeptStateError as error:
            raise GpuUnavailable(f"nothing was restored: {error}.") from None
        saved = SavedState(tuple(descriptors), read_manifest(descriptors))
        keeper.lineage.remember({name: f"{cell} of {kept.at}" for name, cell in kept.made_in.items()})
        if keeper.process is None:
            keeper.hold(saved.descriptors, saved.manifest)
            self._take(kept)
            keeper.coming_back.awaited = True
            return f"{told(kept)} kept on {kept.at}, {kept.as_of}: back with the next GPU cell."
        try:
            return await self._taken_in(saved, kept)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    async def _taken_in(self, saved: SavedState, kept: Kept) -> str:
        keeper, orders = self._keeper, self._place.orders
        await keeper.saves.give_way()
        here = () if keeper.saved is None else keeper.saved.manifest.variables
        if orders is not None:
            await orders.tell_cell_started(_RESTORE)  # nobody suspends it meanwhile
        try:
            restored = await keeper.coming_back.take_in(keeper.there, saved)
            self._take(kept)
            await self._save()
        except (GpuProcessDied, *CANNOT_SAVE) as error:
            raise GpuUnavailable(f"it was not restored: {error}.") from None
        finally:
            if orders is not None:
                await orders.tell_cell_finished(_RESTORE)
        replaced = [name.name for name in here if name.name in set(restored.names)]
        instead = f"; in place of those that were here: {', '.join(replaced)}" if replaced else ""
        return f"{kept.as_of[0].upper()}{kept.as_of[1:]} on {kept.at}: {notices.kept(restored)}{instead}."

    async def drop(self, notebook: str | None) -> str:
        """Remove it. Returns what came of it. Raises GpuUnavailable."""
        files = self._own_files(notebook)
        try:
            there = await _aside(files.drop)
        except KeptStateError as error:
            raise GpuUnavailable(f"{error}.") from None
        if self._files is not None and files.notebook == self._files.notebook:
            while self._announced:
                self._log.read(self._announced.popitem()[1])
        return f"What was kept of {files.notebook} is removed." if there else f"Nothing is kept of {files.notebook}."

    async def list(self) -> str:
        """What is kept of any notebook. Raises GpuUnavailable."""
        files = self._own_files(None)
        try:
            found, unread = await _aside(lambda: notebooks(files.folder))
        except KeptStateError as error:
            raise GpuUnavailable(f"{error}.") from None
        lines = [
            f"  {one.kept.at}  {one.kept.notebook}{' (earlier)' * one.earlier}  "
            f"{told(one.kept) if one.damage is None else f'damaged: {one.damage}'}"
            for one in found
        ]
        lines += [f"  not read: {why}" for why in unread]
        return "\n".join([f"Kept in {files.folder}:", *lines]) if lines else f"Nothing is kept in {files.folder}."

    def _own_files(self, notebook: str | None) -> KeptFiles:
        if self._files is None:
            raise GpuUnavailable(f"no variables are kept beyond the kernel: {NO_FOLDER}.")
        return self._files if notebook is None else KeptFiles(self._files.folder, notebook)


def told(kept: Kept) -> str:
    """How much is there: `3 variables (1.2 GiB)`."""
    return f"{notices.count(len(kept.variables), 'variable')} ({format_bytes(kept.size_bytes)})"


def _not_kept(begun: Begun, kept: Kept | None) -> str:
    return (
        f"An earlier kernel of this notebook ended on {begun.at} before it had kept {_some(begun.names)} as of cell "
        f"{begun.cell}: {'nothing is kept' if kept is None else 'what is kept is older'}. "
        "c.KernelManager.shutdown_wait_time gives kernels more time to end."
    )


def _listed(manifest: Manifest) -> str:
    names = [name.name for name in manifest.variables]
    what = f"{notices.count(len(names), 'GPU variable')} ({_some(names)}; {format_bytes(manifest.memory_bytes)})"
    lost = ", ".join(f"{name.name} ({name.reason})" for name in manifest.missing)
    return f"{what}, without what was not saved: {lost}" if lost else what


def _number(variables: Sequence[object]) -> tuple[str, str]:
    """Verb and pronoun."""
    return ("is", "it") if len(variables) == 1 else ("are", "them")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _tell(sentence: str) -> None:
    """Where the log of Jupyter's server, or of the pod, has it; on the notebook's page where that disk is full."""
    for stream in (sys.__stderr__, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                print(f"[nls-jupyter] {sentence}", file=stream, flush=True)
                return


def _said(sentence: str) -> str:
    _tell(sentence)
    return sentence


async def _aside(work: Callable[[], _Value]) -> _Value:
    """In another thread; where the interpreter ends already there are no new ones."""
    try:
        under_way = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await under_way
