"""What came back of the saved state into the process that is there, and what of it is tried again."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from nls_jupyter.saved_state import WAITS
from nls_jupyter.supervisor.kept_state import Deaths, Restored
from nls_jupyter.supervisor.launch import GpuProcessDied, LaunchFailed
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.kept_state import SavedState
    from nls_jupyter.supervisor.pending import Message

# What could not be restored is tried again after this many times what the last try took.
_PAUSE_PER_TRY = 20.0


class ComingBack:
    """For one process after another. Everything here runs in the loop's thread.

    Args:
        maker: which cell made a name, if that is known.
        ended_on_purpose: whether the process that is there is being ended: it did not die of what it restored.

    Attributes:
        not_back: why each name that is saved could not be restored, until it is.
        awaited: its user has asked for what is to come back, and reads then what did.
    """

    def __init__(self, maker: Callable[[str], str | None], ended_on_purpose: Callable[[], bool]) -> None:
        self._maker = maker
        self._ended_on_purpose = ended_on_purpose
        self._losses_told: SavedState | None = None
        self._try_again_at = 0.0
        self._asked_for = False
        self._deaths = Deaths()
        self.not_back: dict[str, str] = {}
        self.awaited = False

    async def restore(self, process: GpuProcess, saved: SavedState | None) -> Message:
        """All of it into a new process. Returns what came of it; see `GpuProcess.restore`.

        Raises:
            LaunchFailed: there is no room for it on this GPU; it is complete as before.
            GpuProcessDied, RequestFailed, OSError: see `GpuProcess.restore`.
        """
        if saved is None:
            return {"restored": [], "missing": [], "carried": [], "changed": []}
        with self._counting_deaths(process):
            report = await process.restore(saved.descriptors, deaths=self._deaths.counts)
        _refuse_out_of_memory(report)
        self._try_again_at = 0.0
        return report

    async def take_in(self, process: GpuProcess, saved: SavedState) -> Restored:
        """Beside what the process has, what an earlier kernel saved. Raises RequestFailed, GpuProcessDied, OSError."""
        began = monotonic_s()
        with self._counting_deaths(process):
            report = await process.restore(saved.descriptors)
        return self.told(saved, report, monotonic_s() - began)

    def told(self, saved: SavedState | None, report: Message, seconds: float, gone: Sequence[str] = ()) -> Restored:
        """What there is to tell of a report, from now on the last one.

        Args:
            saved: what was restored.
            report: what came of it.
            seconds: how long it took, from the launch on.
            gone: labels of completed cells that are not in it.
        """
        self._note(report)
        manifest = saved.manifest if saved else None
        # What could not be saved is gone with the first process that comes back without it, and told then.
        untold: Manifest | None = None if self._losses_told is saved else manifest
        lost, changed = ((), ()) if untold is None else (untold.missing, untold.changed)
        self._losses_told = saved
        awaited, self.awaited = self.awaited, False
        missing = [*report["missing"], *map(asdict, lost)]
        for name in missing:
            name["cell"] = self._maker(name["name"])
        return Restored(
            names=report["restored"],
            missing=[name for name in missing if name["name"] not in self.not_back],
            memory_bytes=manifest.memory_bytes if manifest else 0,
            cell=manifest.cell if manifest else None,
            seconds=seconds,
            not_back=[name for name in missing if name["name"] in self.not_back],
            changed=[*report["changed"], *map(asdict, changed)],
            gone=gone,
            awaited=awaited,
        )

    @property
    def due(self) -> bool:
        """Whether what is not back is to be tried again now: at most a twentieth of the time goes there."""
        wanted = self._asked_for or any(why != WAITS for why in self.not_back.values())
        return wanted and bool(self.not_back) and monotonic_s() >= self._try_again_at

    async def ask_again(self) -> None:
        """The user wants back what could not be restored, whatever it does to the process."""
        self._asked_for, self._try_again_at = True, 0.0

    def name_error(self, evalue: str) -> None:
        """A cell has failed with NameError: what it wanted is tried again before the next one, however soon that is."""
        if any(f"'{name}'" in evalue for name in self.not_back):
            self._try_again_at = 0.0

    async def try_again(self, process: GpuProcess) -> Message:
        """Once more what is not back. Returns as `restore`. Raises RequestFailed, GpuProcessDied."""
        began = monotonic_s()
        asked, self._asked_for = self._asked_for, False
        try:
            with self._counting_deaths(process):
                report = await process.try_again(asked=asked)
        finally:
            now = monotonic_s()
            self._try_again_at = now + _PAUSE_PER_TRY * (now - began)
        self._note(report)
        return report

    def saved_anew(self, manifest: Manifest) -> None:
        """There is another saved state, which says itself what is not back; the deaths were of the one before."""
        self._deaths.forget()
        self.not_back = {name.name: name.not_back or "" for name in manifest.carried}

    def begin_anew(self) -> None:
        """Nothing is waited for any more."""
        self.not_back, self.awaited = {}, False

    def _note(self, report: Message) -> None:
        lost = {lost["name"]: lost["reason"] for lost in report["missing"]}
        self.not_back = {name: lost[name] for name in report["carried"]}

    @contextlib.contextmanager
    def _counting_deaths(self, process: GpuProcess) -> Iterator[None]:
        """Of what is brought back meanwhile."""
        try:
            yield
        except GpuProcessDied:
            if not self._ended_on_purpose():
                self._deaths.note(process.restored_last)
            raise


def _refuse_out_of_memory(report: Message) -> None:
    """A state that only lacked room keeps everything and is restored again where there is more."""
    for missing in report["missing"]:
        if missing["lacks_memory"]:
            raise LaunchFailed(f"no room for {missing['name']} on this GPU: {missing['reason']}")
