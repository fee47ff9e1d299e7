"""One notebook in one kernel, cell by cell, as a user runs it; in some runs its GPU process is disturbed on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from normalise import Normaliser
from outputs import HIDDEN, Collected, Shown
from verdicts import Told, died, lost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from daemon_process import DaemonProcess

READY_WITHIN_S = 120.0
DONE_WITHIN_S = 30.0
# A user who was told again and again to run a cell again gives up.
MOST_TRIES = 4
LAST_CELLS = "the kernel is gone"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that happens to the GPU process.

    Attributes:
        kind: suspend, SIGKILL or move.
        place: of the cell.
        within: which part of that cell's time in a plain kernel passes before; `None`: its reply has just come.
    """

    kind: str
    place: int
    within: float | None = None


@dataclass(slots=True)
class Run:
    """What one run of a notebook came to.

    Attributes:
        shown: each cell, as the document shows it at the end.
        seconds: each cell's, of its first run.
        told: what the user could read.
        repeats: places of cells that were run again, by the place after which they were, in this order.
        done: what was done to the GPU process, and what came of that.
        log: what `%gpu log` tells at the end.
    """

    shown: list[Shown] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    repeats: dict[int, list[int]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    log: str = ""

    @property
    def again(self) -> set[int]:
        """Places of cells that were run again."""
        return {place for places in self.repeats.values() for place in places}


class KernelGone(Exception):  # noqa: N818 - says what happened
    """The notebook's kernel ended."""


class Kernel:
    """One kernel in a notebook's folder. Use as an async context manager."""

    def __init__(self, name: str, specs: Path, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        manager = KernelSpecManager(kernel_dirs=[str(specs)])
        self._manager = AsyncKernelManager(kernel_name=name, kernel_spec_manager=manager)
        self._folder, self._environment, self._log_path = folder, dict(environment), log
        self._cleaner = Normaliser(str(folder), HIDDEN)
        self._client: Any = None

    async def __aenter__(self) -> Kernel:
        self._log = self._log_path.open("ab")
        await self._manager.start_kernel(
            env=self._environment, cwd=str(self._folder), stdout=self._log, stderr=self._log
        )
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=READY_WITHIN_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.stop_channels()
        with contextlib.suppress(RuntimeError, ProcessLookupError):
            await self._manager.shutdown_kernel(now=not await self._manager.is_alive())
        await self._manager._async_cleanup_resources()
        self._manager.context.destroy(linger=0)
        self._log.close()

    async def run(self, code: str, timeout_s: float) -> tuple[Shown, int | None]:
        """A cell, and its number. Raises KernelGone, TimeoutError."""
        collected = Collected()
        options = {"allow_stdin": False, "stop_on_error": False, "output_hook": collected.take}
        asking = self._client.execute_interactive(code, timeout=timeout_s, **options)
        cell = asyncio.ensure_future(asking)
        try:
            while not (await asyncio.wait([cell], timeout=1.0))[0]:
                if not await self._manager.is_alive():
                    raise KernelGone
            reply = cell.result()
        finally:
            cell.cancel()
            await asyncio.gather(cell, return_exceptions=True)
        return collected.shown(self._cleaner), reply["content"].get("execution_count")


class Player:
    """Runs the cells of one notebook; `play` once."""

    def __init__(
        self,
        kernel: Kernel,
        cells: Sequence[str],
        timeout_s: float,
        disturbances: Sequence[Disturbance] = (),
        node: Node | None = None,
        plain_seconds: Sequence[float] = (),
        repeats: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self._kernel, self._cells, self._timeout_s = kernel, cells, timeout_s
        self._disturbances, self._node, self._plain_seconds = disturbances, node, plain_seconds
        self._labels: dict[int, int] = {}
        self._repeats = repeats or {}
        self.run = Run()

    async def play(self) -> Run:
        """All cells, one after another; a user who is told that a cell is not in the state runs that one again."""
        run = self.run
        try:
            for place in range(len(self._cells)):
                began = time.monotonic()
                shown = await self._disturbed(place)
                run.seconds.append(time.monotonic() - began)
                run.shown.append(shown)
                await self._again(place, self._repeats.get(place, ()))
                await self._mend(place)
            if self._node is not None:
                run.log = (await self._kernel.run("%gpu log", self._timeout_s))[0].stdout
        except KernelGone:
            self._give_up("KernelGone", LAST_CELLS)
        except TimeoutError:
            self._give_up("CellTimeout", f"not over within {self._timeout_s:g} s")
        return run

    def _give_up(self, ename: str, evalue: str) -> None:
        missing = len(self._cells) - len(self.run.shown)
        self.run.shown += [Shown(error=(ename, evalue))] * missing
        self.run.seconds += [0.0] * (len(self._cells) - len(self.run.seconds))

    async def _cell(self, place: int) -> Shown:
        shown, label = await self._kernel.run(self._cells[place], self._timeout_s)
        if label is not None:
            self._labels[label] = place
        texts = [*shown.said, *([shown.error[1]] if died(shown) and shown.error else [])]
        self.run.told += [Told(place, text) for text in texts]
        return shown

    async def _mend(self, place: int) -> None:
        """What was lost is run again, then the cell that ran without it."""
        run = self.run
        for _ in range(MOST_TRIES):
            shown = run.shown[place]
            places = self._to_run_again(shown, place)
            if not places and not died(shown):
                return
            await self._again(place, [*places, place])

    async def _again(self, place: int, places: Sequence[int]) -> None:
        for earlier in places:
            self.run.repeats.setdefault(place, []).append(earlier)
            self.run.shown[earlier] = await self._cell(earlier)

    def _to_run_again(self, shown: Shown, place: int) -> list[int]:
        losses = [lost(text) for text in shown.said]
        if any(loss.everything for loss in losses):
            return list(range(place))
        labels = {label for loss in losses for label in loss.labels}
        return sorted({self._labels[label] for label in labels if label in self._labels} - {place})

    async def _disturbed(self, place: int) -> Shown:
        """A cell, with whatever is to happen in it or just after it."""
        here = [d for d in self._disturbances if d.place == place]
        within = [self._within(d) for d in here if d.within is not None]
        happening = [asyncio.ensure_future(what) for what in within]
        try:
            shown = await self._cell(place)
        finally:
            await asyncio.gather(*happening)
        for disturbance in here:
            if disturbance.within is None:
                await self._happen(disturbance)
        return shown

    async def _within(self, disturbance: Disturbance) -> None:
        await asyncio.sleep((disturbance.within or 0.0) * self._plain_seconds[disturbance.place])
        await self._happen(disturbance)

    async def _happen(self, disturbance: Disturbance) -> None:
        assert self._node is not None
        came = await self._node.disturb(disturbance.kind)
        self.run.done.append(f"cell {disturbance.place}{'' if disturbance.within is None else ' (in it)'}: {came}")


class Node:
    """What can be done to one notebook's GPU process from outside."""

    def __init__(self, daemon: DaemonProcess, name: str) -> None:
        self._daemon, self._name = daemon, name

    async def disturb(self, kind: str) -> str:
        """Do it. Returns what came of it."""
        return await asyncio.to_thread({"suspend": self._suspend, "move": self._move, "SIGKILL": self._kill}[kind])

    def _suspend(self) -> str:
        return self._order("suspend")

    def _move(self) -> str:
        entry = self._daemon.workload(self._name)
        gpus = [gpu["uuid"] for gpu in self._daemon.status()["gpus"]]
        others = [uuid for uuid in gpus if entry is not None and uuid not in entry["current"]]
        return self._order("migrate", "--to", others[0])

    def _order(self, word: str, *more: str) -> str:
        answer = self._daemon.nls(word, self._name, *more, timeout_s=DONE_WITHIN_S * 4)
        said = (answer.stdout + answer.stderr).strip()
        return f"{word}: {said}" if answer.returncode == 0 else f"{word} refused ({answer.returncode}): {said}"

    def _kill(self) -> str:
        entry = self._daemon.workload(self._name)
        pid = entry["pid"] if entry is not None else None
        if pid is None:
            return "SIGKILL refused: there is no GPU process"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return f"SIGKILL to {pid}"
