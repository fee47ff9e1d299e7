"""Runs one notebook's cells in its GPU process.

Everything here runs in the loop's thread (`loop_thread`); `notebook.cells` is the side of cells, `orders` the daemon's,
and `waiting` has what comes before a cell.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.errors import GpuError, GpuEvicted, GpuProcessDied, GpuUnavailable, GpuUsageError
from nls_jupyter.supervisor import notices
from nls_jupyter.supervisor.changes import Changes
from nls_jupyter.supervisor.keeper import EndedInCell, Keeper
from nls_jupyter.supervisor.kept_code import KeptCode
from nls_jupyter.supervisor.lasting import Lasting
from nls_jupyter.supervisor.launch import GpuProcessDied as ProcessDied
from nls_jupyter.supervisor.orders import CANNOT_SAVE
from nls_jupyter.supervisor.pending import RequestFailed, accepted
from nls_jupyter.supervisor.place import Place
from nls_jupyter.supervisor.saving import why_not
from nls_jupyter.supervisor.standby import Standby
from nls_jupyter.supervisor.tasks import Tasks
from nls_jupyter.supervisor.waiting import Waiting
from nls_scheduler.processes.proc import is_stopped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.saved_state.on_volume import KeptFiles
    from nls_jupyter.supervisor.ahead import Ahead
    from nls_jupyter.supervisor.calls import Call, Cell
    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.kept_state import SavedState
    from nls_jupyter.supervisor.launch import ExitStatus
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.standby_settings import StandbySettings
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.client.patience import Patience

_log = logging.getLogger(__name__)


class Supervisor:
    """One notebook's GPU, from its first request to the end of the kernel.

    Attributes:
        keeper: its GPU process and what it saved.
        place: its workload at the daemon.
        lasting: what outlives the kernel.
        log: what happened, for the user.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[DaemonClient]],
        forward: Callable[[Message], None],
        directory: Callable[[], Path],
        defaults: Callable[[], Mapping[str, Any]],
        standby: StandbySettings | None = None,
        patience: Patience | None = None,
        kept_files: KeptFiles | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self._changes = Changes()
        self.log = notices.NoticeLog()
        self.keeper = Keeper(directory, forward, self._ended_by_itself, self._saved)
        self.keeper.ahead = ahead
        if standby is not None:
            self.keeper.standby = Standby(standby, directory, forward, lambda: self.keeper.executing, self.log)
            self.keeper.standby.on_save_point = self.keeper.take_save_point
        self._kept_code = KeptCode(self.log)
        self.keeper.on_new = self._kept_code.run_in
        self.keeper.on_notice = self.log.add_once
        self.place = Place(connect, defaults, self.keeper, self.log, self._changes, self._show_standing)
        self._waiting = Waiting(self.keeper, self.place, self._changes, self.log, patience)
        self._running: Cell | None = None
        self.why_not_saved: str | None = None
        """Why the last save failed."""
        self._without_room: frozenset[str] = frozenset()
        self._tasks = Tasks(lambda error: _log.error("The line of a standing cell failed.", exc_info=error))
        self.lasting = Lasting(kept_files, self.keeper, self.place, self.log, self.save)

    @property
    def workload_id(self) -> str | None:
        """The daemon's name for this notebook's workload; `None` without one."""
        return self.place.workload_id

    @property
    def view(self) -> Mapping[str, Any] | None:
        """Its status entry, as last received."""
        return None if self.place.orders is None else self.place.orders.view

    async def settle(self) -> None:
        """Until what the last cell left is saved."""
        await self.keeper.saves.until_over()

    async def save(self) -> SavedState:
        """Save now, whatever was saved before. Raises GpuUnavailable; then the state saved before stands."""
        await self.keeper.saves.give_way()
        if not self.keeper.still_usable():
            raise GpuUnavailable("there is no GPU process to save; the variables saved before stand.")
        try:
            saved = await self.keeper.save(self.keeper.last_cell)
        except (ProcessDied, *CANNOT_SAVE) as error:
            self.why_not_saved = why_not(error)
            raise GpuUnavailable(f"the variables could not be saved: {self.why_not_saved}.") from None
        await self._saved(saved)
        return saved

    async def recompute(self, recipe: tuple[str, str] | None) -> Mapping[str, str]:
        """Have a name computed again instead of saved, or saved again (empty expression). Returns all recipes.

        Raises GpuUnavailable without a GPU process, and GpuUsageError for what is no expression.
        """
        await self.keeper.saves.give_way()
        process = self.keeper.process
        if process is None or not self.keeper.still_usable() or self.keeper.executing:
            raise GpuUnavailable("there is no idle GPU process to keep the recipe; run a GPU cell first.")
        name, expression = recipe or ("", "")
        try:
            answer = accepted(
                await process.request("nls_recipe_request", {"name": name, "expression": expression}, timeout_s=10.0)
            )
        except RequestFailed as error:
            raise GpuUsageError(f"{error.evalue}.") from None
        except (ProcessDied, TimeoutError) as error:
            raise GpuUnavailable(f"the GPU process did not take the recipe: {error}.") from None
        if recipe is not None:
            await self.save()
        recipes: Mapping[str, str] = answer["recipes"]
        return recipes

    async def forget(self, names: Sequence[str]) -> None:
        """Give up what is saved of names that could not be restored. Raises GpuUnavailable without a GPU process."""
        await self.keeper.saves.give_way()
        process = self.keeper.process
        if process is None or not self.keeper.still_usable() or self.keeper.executing:
            raise GpuUnavailable("there is no idle GPU process that keeps them; run a GPU cell first.")
        try:
            await process.forget(names)
        except (RequestFailed, ProcessDied, TimeoutError) as error:
            raise GpuUnavailable(f"the GPU process did not forget them: {error}.") from None
        await self.save()

    async def run(self, cell: Cell) -> Message:
        """Run a cell: waits for the GPU process, returns the execute reply.

        Raises:
            GpuUnavailable: no GPU now (`wait` is off), not in time, or given up for good.
            GpuProcessDied, GpuEvicted: the process ended in the middle of the cell.
            Problem, DaemonUnreachable: the daemon refuses, or there is none.
        """
        call = cell.call
        call.begin()
        await self._waiting.until_free(cell)
        while True:
            await self._send(cell)
            assert call.work is not None  # noqa: S101 - `_send` raises, or has sent it
            self._running = cell
            try:
                return await asyncio.shield(call.work)
            except EndedInCell as ended:
                if ended.begun:
                    raise await self._why_it_died(ended) from None
                call.work = None  # the process died before it read the cell, which waits again

    async def _send(self, cell: Cell) -> None:
        call = cell.call
        await self._waiting.ask_for_gpu(cell)
        try:
            await self._waiting.until_ready(cell)
            call.work = self.keeper.begin(
                cell.code,
                lambda: self._cell_over(cell.label),
                cell.on_sent,
                cell.on_reply,
                msg_id=cell.msg_id,
                on_stdin=cell.on_stdin,
                cell=cell.label,
                **cell.options,
            )
        finally:
            if call.work is None and self.place.orders is not None:
                await asyncio.shield(self.place.orders.tell_cell_finished())

    async def keep_quiet(self, code: str) -> bool:
        """Keep what is no cell of the user's for GPU processes to come; see `KeptCode.take`."""
        return not self.keeper.still_usable() and self._kept_code.take(code)

    async def run_quietly(self, cell: Cell) -> Message:
        """Run what is no cell of the user's: it brings no GPU process back, and its end saves nothing.

        Raises:
            GpuUnavailable: there is no GPU process now.
            GpuProcessDied: it ended in the middle.
        """
        call = cell.call
        call.begin()
        await self.keeper.cell_over()
        process = self.keeper.process
        if process is None or not self.keeper.still_usable():
            raise GpuUnavailable(
                "this notebook's GPU process is not there now, and a silent request or one that is not stored does not "
                "bring it back; the next cell does."
            )
        work = process.execute(cell.code, msg_id=cell.msg_id, on_stdin=cell.on_stdin, **cell.options)
        call.work = asyncio.get_running_loop().create_task(work)
        try:
            return await asyncio.shield(call.work)
        except ProcessDied as died:
            raise GpuProcessDied(f"the GPU process {died.status.describe()}, in the middle of a request.") from None

    def interrupt(self, call: Call) -> int:
        """Ctrl-C: ends the wait of the cell at once, and the save that it waits for; a running cell gets SIGINT.

        A cell that does not react is given up with the third Ctrl-C: it goes on in the GPU process, and the cells
        behind it wait for it. Returns how many times the running cell was interrupted.
        """
        return call.interrupt(self.keeper)

    def why_unheard(self, call: Call) -> str | None:
        """Why the only Ctrl-C so far has not ended the cell, and what helps; `None`: it has, or it stands still."""
        process, orders = self.keeper.process, self.place.orders
        if process is None or not call.unheard or (orders is not None and orders.standing.stands is not None):
            return None
        if is_stopped(process.pid):
            return (
                f"the GPU process is stopped: `kill -CONT {process.pid}` has it go on, and a second Ctrl-C then "
                "interrupts it. A third one leaves the cell alone."
            )
        return "the cell goes on: a second Ctrl-C interrupts it again, and a third leaves it alone in the GPU process."

    def answer_stdin(self, value: str) -> None:
        """The user's answer to the last input request."""
        if self.keeper.process is not None:
            self.keeper.process.answer_stdin(value)

    def answer_own(self, content: Mapping[str, Any]) -> None:
        """The answer to the GPU process's last request of our own."""
        if self.keeper.process is not None:
            self.keeper.process.answer_own(content)

    async def close(self) -> None:
        """The kernel ends: so does the GPU process."""
        await self.place.close()
        await self.keeper.drop_standby()
        await self.keeper.end(
            "the kernel ends", lambda process: process.flush_files() if self.lasting.keeps else process.leave()
        )
        await self.keeper.freezer.close()
        self.keeper.drop_saved()
        self.why_not_saved = None

    def _show_standing(self) -> None:
        """The running cell begins to stand still: whoever waits for it reads that."""
        cell = self._running
        if cell is not None and cell.call.left_alone:
            self._tasks.spawn(self._waiting.while_it_stands(cell))

    # What happens

    async def _cell_over(self, label: str) -> None:
        orders = self.place.orders
        self._waiting.asked_to_yield = orders is not None and orders.view["yields"]
        if orders is not None:
            self.keeper.save_soon(
                label, self._saved, lambda reason: self._not_saved(label, reason), self._changes.announce
            )
            await orders.tell_cell_finished()
        self._changes.announce()

    async def _saved(self, saved: SavedState) -> None:
        self.why_not_saved = None
        keeper = self.keeper
        self._tell_of_what_has_no_room(saved.manifest)
        if keeper.standby is not None and keeper.process is not None and not keeper.executing:
            keeper.standby.consider(keeper.process.modules, keeper.process.environment)
        if self.place.orders is not None:
            await self.place.orders.tell_saved(saved)

    def _tell_of_what_has_no_room(self, manifest: Manifest) -> None:
        """Once of each name: its process takes it along, if it dies."""
        names = frozenset(name.name for name in manifest.without_room)
        if names - self._without_room:
            self.log.add(
                f"There is no room to save {notices.without_room(manifest)}: free some, or they are lost with the GPU "
                "process, should that die.",
                important=True,
            )
        self._without_room = names

    def _not_saved(self, label: str, reason: str) -> None:
        self.why_not_saved = reason
        saved = self.keeper.saved
        stands = f"those of cell {saved.manifest.cell} stand" if saved else "nothing was saved before"
        self.log.add(f"The variables could not be saved after cell {label}: {reason}; {stands}.", important=True)

    async def _ended_by_itself(self, process: GpuProcess, status: ExitStatus) -> None:
        self.log.add(f"The GPU process {status.describe()}.")
        if self.place.orders is not None:
            await self.place.orders.ended_by_itself(process, status)
        self._changes.announce()

    async def _why_it_died(self, ended: EndedInCell) -> GpuError:
        comes_back = "The kernel and its variables live; the GPU process comes back "
        if self.keeper.saved is None:
            comes_back += "without variables, as none were saved before."
        else:
            manifest = self.keeper.saved.manifest
            comes_back += f"with the {notices.count(len(manifest.variables), 'variable')} of cell {manifest.cell}."
        orders, ordered = self.place.orders, ended.ordered
        if ordered is None and orders is not None:
            ordered = await orders.stop_behind(ended.status)
        if ordered is not None:
            evicted = GpuEvicted(
                f"the GPU was taken back in the middle of this cell: {ordered}. {comes_back} Run the cell again."
            )
            evicted.what = f"the GPU was taken back: {ordered}"
            return evicted
        died = GpuProcessDied(f"{ended}, in the middle of this cell. {comes_back}")
        died.what = str(ended)
        return died
