"""Keeps one GPU process at a time and what it saved, for one notebook. Knows nothing of the daemon.

Everything here runs in the loop's thread. The kernel never unpickles saved state: it holds the memory file that the
GPU process wrote, so that the state outlives that process and ends with this kernel, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.channel import GpuProcess
from nls_jupyter.launch import GpuProcessDied, LaunchFailed
from nls_jupyter.pending import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from nls_jupyter.launch import ExitStatus
    from nls_jupyter.pending import Message
    from nls_jupyter.saved_state import Manifest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SavedState:
    """What the GPU process saved last: a memory file that this kernel owns, and the list of what is in it."""

    descriptor: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back into a new process.

    Attributes:
        names: restored variables.
        missing: objects with `name, type_name, reason`.
        memory_bytes: size of the saved state.
        cell: the cell after which it was saved.
        seconds: the whole way, from the launch on.
    """

    names: Sequence[str]
    missing: Sequence[Mapping[str, Any]]
    memory_bytes: int
    cell: str | None
    seconds: float


class Keeper:
    """The GPU process that is there now, if one is, and the saved state that stands.

    Attributes:
        usable: whether cells can be sent to `process`.
        executing: whether one runs.
        saved: the saved state; `None` when nothing was saved.
        ordered_end: why the process was ended on purpose; `None` for an end of its own.
    """

    def __init__(
        self,
        directory: Callable[[], Path],
        forward: Callable[[Message], None],
        on_own_end: Callable[[GpuProcess, ExitStatus], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._forward = forward
        self._on_own_end = on_own_end
        self._saving: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._allowance_bytes: int | None = None
        self.process: GpuProcess | None = None
        self.usable = False
        self.executing = False
        self.saved: SavedState | None = None
        self.ordered_end: str | None = None

    async def launch(self, environment: Mapping[str, str | None], arguments: Sequence[str] = ()) -> GpuProcess:
        """Start a process; it is not usable before `bring_back`. Raises LaunchFailed."""
        self.ordered_end = None
        self._allowance_bytes = None
        self.process = await GpuProcess.launch(
            environment=environment, directory=self._directory(), forward=self._forward, arguments=arguments
        )
        return self.process

    async def bring_back(self, process: GpuProcess, allowance_bytes: int | None) -> Restored:
        """Until `process` answers, follows its allowance and has the saved variables again.

        Raises:
            LaunchFailed, GpuProcessDied: it ended before.
            RequestFailed: the saved state could not be restored; it stands.
        """
        began = time.monotonic()
        await process.ready()
        await self.follow_allowance(allowance_bytes)
        restored: Message = {"restored": [], "missing": []}
        if self.saved is not None:
            restored = await process.restore(self.saved.descriptor)
            _refuse_out_of_memory(restored)
        self.usable = True
        self._following = asyncio.get_running_loop().create_task(self._follow_end(process))
        manifest = self.saved.manifest if self.saved else None
        return Restored(
            names=restored["restored"],
            missing=[*restored["missing"], *_missing(manifest)],
            memory_bytes=manifest.memory_bytes if manifest else 0,
            cell=manifest.cell if manifest else None,
            seconds=time.monotonic() - began,
        )

    async def follow_allowance(self, allowance_bytes: int | None) -> None:
        """Tell the process how much it may hold, unless it knows."""
        if self.process is None or not allowance_bytes or allowance_bytes == self._allowance_bytes:
            return
        self._allowance_bytes = allowance_bytes
        with contextlib.suppress(GpuProcessDied, TimeoutError):
            await self.process.follow_allowance(allowance_bytes)

    async def execute(self, code: str, **options: Any) -> Message:
        """Run a cell in the usable process, after what is still being saved. Raises GpuProcessDied."""
        process = self.process
        if process is None or not self.usable:
            raise RuntimeError("a cell was sent while no GPU process is usable")
        self.executing = True
        try:
            return await process.execute(code, **options)
        finally:
            self.executing = False

    def save_soon(self, cell: str, then: Callable[[SavedState], Awaitable[None]]) -> None:
        """Save behind the cell's reply; the next cell runs after it, as the process answers in order."""
        if self.usable and self.process is not None:
            self._saving = asyncio.get_running_loop().create_task(self._save_quietly(self.process, cell, then))

    async def save(self, cell: str | None) -> SavedState:
        """Save now. Raises RequestFailed or GpuProcessDied; then the state saved before stands."""
        if self.process is None:
            raise RuntimeError("there is no GPU process to save")
        descriptor, manifest = await self.process.save(cell=cell)
        self.drop_saved()
        self.saved = SavedState(descriptor, manifest)
        return self.saved

    async def suspend(self) -> SavedState:
        """Save everything, then end the process. Raises RequestFailed or GpuProcessDied: then nothing was given up."""
        self.usable = False
        try:
            if self._saving is not None:
                await asyncio.shield(self._saving)
            saved = await self.save(self.saved.manifest.cell if self.saved else None)
        except BaseException:
            self.usable = self.process is not None and not self.process.exited.done()
            raise
        await self.end("suspended")
        return saved

    async def end(self, reason: str) -> ExitStatus | None:
        """End the process, with all that it started, and wait until they are gone. Idempotent."""
        process, self.usable = self.process, False
        if process is None:
            return None
        self.ordered_end = self.ordered_end or reason
        process.kill()
        status = await asyncio.shield(process.exited)
        if self.process is process:
            self.process = None
        return status

    def drop_saved(self) -> None:
        """Forget what was saved; its memory is free at once."""
        if self.saved is not None:
            os.close(self.saved.descriptor)
            self.saved = None

    async def _save_quietly(
        self, process: GpuProcess, cell: str, then: Callable[[SavedState], Awaitable[None]]
    ) -> None:
        try:
            await then(await self.save(cell))
        except GpuProcessDied:
            _log.debug("The GPU process %d ended while it saved; the state saved before stands.", process.pid)
        except RequestFailed as error:
            _log.warning("The variables could not be saved after cell %s: %s", cell, error)

    async def _follow_end(self, process: GpuProcess) -> None:
        status = await asyncio.shield(process.exited)
        if self.process is process and self.ordered_end is None:
            self.process, self.usable = None, False
            await self._on_own_end(process, status)


def _missing(manifest: Manifest | None) -> list[Mapping[str, Any]]:
    """What was named when it was saved: it could not be kept."""
    if manifest is None:
        return []
    return [{"name": m.name, "type_name": m.type_name, "reason": m.reason} for m in manifest.missing]


def _refuse_out_of_memory(restored: Message) -> None:
    """A state that only lacked room keeps everything and is restored again where there is more."""
    for missing in restored["missing"]:
        if "OutOfMemory" in missing["reason"]:
            raise LaunchFailed(f"no room for {missing['name']} on this GPU: {missing['reason']}")
