"""Runs one notebook's cells in its GPU process, and waits for one where there is none.

Everything here runs in the loop's thread (`loop_thread`); `notebook.cells` is the side of cells, `orders` the daemon's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.errors import GpuError, GpuEvicted, GpuProcessDied, GpuUnavailable, GpuUsageError
from nls_jupyter.supervisor import notices
from nls_jupyter.supervisor.calls import Call
from nls_jupyter.supervisor.changes import Changes
from nls_jupyter.supervisor.keeper import EndedInCell, Keeper
from nls_jupyter.supervisor.kept_code import KeptCode
from nls_jupyter.supervisor.lasting import Lasting
from nls_jupyter.supervisor.launch import GpuProcessDied as ProcessDied
from nls_jupyter.supervisor.orders import CANNOT_SAVE
from nls_jupyter.supervisor.pending import RequestFailed, accepted
from nls_jupyter.supervisor.place import Place
from nls_jupyter.supervisor.standby import Standby, StandbySettings
from nls_jupyter.supervisor.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from nls_jupyter.saved_state.on_volume import KeptFiles
    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.kept_state import SavedState
    from nls_jupyter.supervisor.launch import ExitStatus
    from nls_jupyter.supervisor.pending import Message
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.client.patience import Patience

_log = logging.getLogger(__name__)

# A cell that follows one after which the GPU was to be given back waits this long for the daemon's word.
_YIELD_ANSWER_S = 2.0
# How often the live line of a waiting cell is written again, and how short a wait shows none.
_LIVE_LINE_S = 0.5
_SHORT_WAIT_S = 1.0
_NO_ANSWER = "the node's daemon does not answer"
# So long it may take in any case, as a daemon may have to be started first.
_ANSWER_S = 3.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell for the GPU process.

    Attributes:
        code: its source.
        label: how the user knows it, such as `[5]`.
        msg_id: identifies its outputs, from `OutputRelay.follow`.
        wait: whether it may wait for a GPU at all.
        wait_timeout_s: how long it may wait for one; `None`: as long as it takes.
        on_stdin: gets each request for input, and those of `wire.OWN_REQUESTS`.
        on_wait: gets the live line while it waits, then `None` once.
        on_notices: shows what happened since the last cell, before this one's outputs.
        caught_up: returns once all is shown that was to be shown before.
        on_sent: called when it is being sent, perhaps more than once.
        on_reply: gets the execute reply, a moment before `run` returns it.
        options: more of `GpuProcess.execute`'s.
        call: what the thread waits for that handed it over.
    """

    code: str
    label: str
    msg_id: str
    wait: bool
    wait_timeout_s: float | None
    on_stdin: Callable[[Message], Awaitable[None] | None]
    on_wait: Callable[[str | None], None]
    on_notices: Callable[[Sequence[notices.Notice]], Awaitable[None]]
    caught_up: Callable[[], Awaitable[None]]
    on_sent: Callable[[], None]
    on_reply: Callable[[Message], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    call: Call = field(default_factory=Call)


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
    ) -> None:
        self._patience = patience
        self._changes = Changes()
        self._asked_to_yield = False
        self.log = notices.NoticeLog()
        self.keeper = Keeper(directory, forward, self._ended_by_itself, self._saved)
        if standby is not None:
            self.keeper.standby = Standby(standby, directory, forward, lambda: self.keeper.executing, self.log)
            self.keeper.standby.on_save_point = self.keeper.take_save_point
        self._kept_code = KeptCode(self.log)
        self.keeper.on_new = self._kept_code.run_in
        self.keeper.on_notice = self.log.add_once
        self.place = Place(connect, defaults, self.keeper, self.log, self._changes, self._show_standing)
        self._running: Cell | None = None
        self._tasks = Tasks(lambda error: _log.error("The line of a standing cell failed.", exc_info=error))
        self.lasting = Lasting(kept_files, self.keeper, self.place, self.log, self.save)

    @property
    def workload_id(self) -> str | None:
        """The daemon's name for this notebook's workload; `None` without one."""
        return None if self.place.orders is None else self.place.orders.id

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
            raise GpuUnavailable(f"the variables could not be saved: {error}.") from None
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
        await self._wait(cell, lambda: not self.keeper.executing, _busy_line)
        while True:
            await self._send(cell)
            assert call.work is not None  # noqa: S101 - `_send` raises, or has sent it
            self._running = cell
            try:
                return await asyncio.shield(call.work)
            except EndedInCell as ended:
                if ended.begun:
                    raise self._why_it_died(ended) from None
                call.work = None  # the process died before it read the cell, which waits again

    async def _send(self, cell: Cell) -> None:
        call = cell.call
        await self._ask_for_gpu(cell)
        try:
            await self._until_ready(cell)
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

    async def run_quietly(self, cell: Cell) -> Message:
        """Run what is no cell of the user's: it brings no GPU process back, and its end saves nothing.

        Before there was a GPU process, it is kept for that one and answered at once, unless it asks for values.

        Raises:
            GpuUnavailable: there is no GPU process now.
            GpuProcessDied: it ended in the middle.
        """
        call = cell.call
        call.begin()
        await self.keeper.cell_over()
        process = self.keeper.process
        if process is None or not self.keeper.still_usable():
            if not cell.options.get("user_expressions") and self._kept_code.take(cell.code):
                return {"content": {"status": "ok", "user_expressions": {}, "payload": []}}
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
        await self.keeper.end("the kernel ends")
        await self.keeper.freezer.close()
        self.keeper.drop_saved()

    # Waiting

    async def _ask_for_gpu(self, cell: Cell) -> None:
        patience_s = None if cell.wait_timeout_s is None else max(cell.wait_timeout_s, _ANSWER_S)
        try:
            async with asyncio.timeout(patience_s):
                if self.place.orders is None:
                    await self._request(cell)
        except TimeoutError:
            raise _not_in_time(cell, _NO_ANSWER) from None
        if self.place.orders is not None:
            await self.place.orders.tell_cell_started()

    async def _request(self, cell: Cell) -> None:
        """Ask for a GPU, with a live line while the daemon is away."""
        asking = asyncio.ensure_future(self.place.request({}))
        asking.add_done_callback(lambda _: self._changes.announce())
        try:
            await self._wait(cell, asking.done, self._away_line)
            await asking
        finally:
            asking.cancel()

    def _away_line(self, waited_s: float) -> str | None:
        sentence = None if self._patience is None else self._patience.sentence
        return None if sentence is None else f"{sentence} ({waited_s:.0f} s)"

    async def _until_ready(self, cell: Cell) -> None:
        """Until the GPU process takes cells, and the user has read what happened since the last one."""
        await self._settle_yield()
        while True:
            if not self.keeper.still_usable():
                await self._wait_for_gpu(cell)
            elif self.keeper.saves.active:
                await self._wait(cell, lambda: not self.keeper.saves.active, _saving_line)
            elif self.keeper.executing:
                await self._wait(cell, lambda: not self.keeper.executing, _busy_line)
                await self._ask_for_gpu(cell)  # the end of that cell was told as if none waited
            elif self.keeper.tries_again:
                await self._try_again(cell)
            elif unread := self.log.take_unread():
                try:
                    await cell.on_notices(unread)
                except asyncio.CancelledError:
                    self.log.put_back(unread)
                    raise
            elif self.keeper.saves.waiting:
                await self.keeper.saves.give_way()
            else:
                return

    async def _try_again(self, cell: Cell) -> None:
        """What could not be restored, before the cell that may need it."""
        trying = asyncio.get_running_loop().create_task(self.keeper.try_again())
        trying.add_done_callback(lambda _: self._changes.announce())
        await self._wait(cell, trying.done, _restoring_line)
        try:
            told = notices.came_later(trying.result())
        except (RequestFailed, ProcessDied) as error:
            self.log.add(f"What could not be restored was tried again in vain: {error}.")
        else:
            if told is not None:
                self.log.add(told, important=True)

    async def _settle_yield(self) -> None:
        """After a cell at whose end the GPU was to be given back, the next one waits for the daemon's word."""
        orders = self.place.orders
        if self._asked_to_yield and orders is not None and orders.connected:
            await self._changes.until(lambda: not self.keeper.usable or not orders.view["yields"], _YIELD_ANSWER_S)
        self._asked_to_yield = False

    async def _wait_for_gpu(self, cell: Cell) -> None:
        if not cell.wait:
            await self._refuse_to_wait()
        await self._ask_for_gpu(cell)  # it may have gone, suspended by its user as well, since this cell was told of
        deadline = math.inf if cell.wait_timeout_s is None else time.monotonic() + cell.wait_timeout_s

        def done() -> bool:
            orders = self.place.orders
            if self.keeper.usable or orders is None:
                return True
            if orders.view["phase"] == "failed":
                raise GpuUnavailable(
                    f"{orders.view['reason']}. %gpu request tries again with the saved variables, %gpu restart "
                    "without them."
                )
            # Who has the GPU already only waits for the process.
            if time.monotonic() >= deadline and orders.view["phase"] != "starting":
                raise _not_in_time(cell, orders.view["reason"] if orders.connected else _NO_ANSWER)
            return False

        await self._wait(cell, done, self._waiting_line, until=deadline)
        if self.place.orders is None:
            await self._ask_for_gpu(cell)

    async def _refuse_to_wait(self) -> None:
        """`--no-wait`: go on only if a process is on its way already."""
        status = await (await self.place.client()).status()
        own = next((w for w in status["workloads"] if w["id"] == self.workload_id), None)
        if own is None or own["phase"] not in ("starting", "running"):
            reason = own["reason"] if own else "this notebook's place on the GPU has just ended"
            raise GpuUnavailable(
                f"no GPU is free now: {reason}. The cell did not run; without --no-wait it waits for a GPU."
            )

    async def _wait(
        self, cell: Cell, done: Callable[[], bool], line: Callable[[float], str | None], until: float = math.inf
    ) -> None:
        """Until `done()`, with a live line below the cell; looks again at the time `until` (time.monotonic) as well."""
        began, shown = time.monotonic(), False
        try:
            while not done():
                left_s = until - time.monotonic()
                await self._changes.until(done, min(_LIVE_LINE_S, left_s) if left_s > 0 else _LIVE_LINE_S)
                waited_s = time.monotonic() - began
                text = line(waited_s) if waited_s >= _SHORT_WAIT_S and not done() else None
                if text is not None:
                    cell.on_wait(text)
                    shown = True
        finally:
            if shown:
                cell.on_wait(None)
        if shown:
            # What a cell of auto mode puts out takes no way through its thread: a line cleared later takes that along.
            await cell.caught_up()

    def _show_standing(self) -> None:
        """The running cell begins to stand still: whoever waits for it reads that."""
        cell = self._running
        if cell is not None and cell.call.left_alone:
            self._tasks.spawn(self._stand(cell))

    async def _stand(self, cell: Cell) -> None:
        orders = self.place.orders
        while orders is not None and (stands := orders.standing.stands) is not None and cell.call.left_alone:
            cell.on_wait(notices.standing_line(stands.since, stands.for_whom, stands.gpu, time.time()))
            await self._changes.until(lambda: orders.standing.stands is None, _LIVE_LINE_S)
        cell.on_wait(None)

    def _waiting_line(self, waited_s: float) -> str | None:
        orders = self.place.orders
        return None if orders is None else notices.waiting_line(orders.view, waited_s, connected=orders.connected)

    # What happens

    async def _cell_over(self, label: str) -> None:
        orders = self.place.orders
        self._asked_to_yield = orders is not None and orders.view["yields"]
        if orders is not None:
            self.keeper.save_soon(
                label, self._saved, lambda reason: self._not_saved(label, reason), self._changes.announce
            )
            await orders.tell_cell_finished()
        self._changes.announce()

    async def _saved(self, saved: SavedState) -> None:
        keeper = self.keeper
        if keeper.standby is not None and keeper.process is not None and not keeper.executing:
            keeper.standby.consider(keeper.process.modules)
        if self.place.orders is not None:
            await self.place.orders.tell_saved(saved)

    def _not_saved(self, label: str, reason: str) -> None:
        saved = self.keeper.saved
        stands = f"those of cell {saved.manifest.cell} stand" if saved else "nothing was saved before"
        self.log.add(f"The variables could not be saved after cell {label}: {reason}; {stands}.", important=True)

    async def _ended_by_itself(self, process: GpuProcess, status: ExitStatus) -> None:
        self.log.add(f"The GPU process {status.describe()}.")
        if self.place.orders is not None:
            await self.place.orders.ended_by_itself(process, status)
        self._changes.announce()

    def _why_it_died(self, ended: EndedInCell) -> GpuError:
        comes_back = "The kernel and its variables live; the GPU process comes back "
        if self.keeper.saved is None:
            comes_back += "without variables, as none were saved before."
        else:
            manifest = self.keeper.saved.manifest
            comes_back += f"with the {notices.count(len(manifest.variables), 'variable')} of cell {manifest.cell}."
        if ended.ordered is not None:
            evicted = GpuEvicted(
                f"the GPU was taken back in the middle of this cell: {ended.ordered}. {comes_back} Run the cell again."
            )
            evicted.what = f"the GPU was taken back: {ended.ordered}"
            return evicted
        died = GpuProcessDied(f"{ended}, in the middle of this cell. {comes_back}")
        died.what = str(ended)
        return died


def _not_in_time(cell: Cell, reason: str) -> GpuUnavailable:
    return GpuUnavailable(f"no GPU within {cell.wait_timeout_s:g} s: {reason}. The cell did not run.")


def _saving_line(waited_s: float) -> str:
    return f"the variables of the cell before are being saved … ({waited_s:.0f} s); Ctrl-C gives this save up"


def _restoring_line(waited_s: float) -> str:
    return f"what could not be restored before is tried again … ({waited_s:.0f} s); Ctrl-C goes on without it"


def _busy_line(waited_s: float) -> str:
    return f"the cell before still runs in the GPU process ({waited_s:.0f} s so far); %gpu restart ends it"
