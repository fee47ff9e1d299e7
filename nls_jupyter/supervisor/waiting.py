"""How a cell waits until its GPU process takes it, and what its user reads meanwhile.

Everything here runs in the loop's thread.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from nls_jupyter.between.errors import GpuUnavailable
from nls_jupyter.supervisor import notices
from nls_jupyter.supervisor.launch import GpuProcessDied as ProcessDied
from nls_jupyter.supervisor.pending import RequestFailed
from nls_scheduler.processes.proc import is_stopped
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter.supervisor.calls import Cell
    from nls_jupyter.supervisor.changes import Changes
    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.place import Place
    from nls_scheduler.client.patience import Patience

# A cell that follows one after which the GPU was to be given back waits this long for the daemon's word.
_YIELD_ANSWER_S = 2.0
# How often the live line of a waiting cell is written again, and how short a wait shows none.
_LIVE_LINE_S = 0.5
_SHORT_WAIT_S = 1.0
_NO_ANSWER = "the node's daemon does not answer"
# So long it may take in any case, as a daemon may have to be started first.
_ANSWER_S = 3.0


class Waiting:
    """One notebook's.

    Args:
        keeper: of its GPU process.
        place: its workload at the daemon.
        changes: announced to whoever waits.
        log: what its user has to read before a cell.
        patience: how long the daemon is waited for, and what is told meanwhile.

    Attributes:
        asked_to_yield: the GPU was to be given back at the end of the last cell.
    """

    def __init__(
        self, keeper: Keeper, place: Place, changes: Changes, log: notices.NoticeLog, patience: Patience | None
    ) -> None:
        self._keeper = keeper
        self._place = place
        self._changes = changes
        self._log = log
        self._patience = patience
        self.asked_to_yield = False

    async def until_free(self, cell: Cell) -> None:
        """Until no other cell runs."""
        await self._wait(cell, lambda: not self._keeper.executing, _busy_line)

    async def ask_for_gpu(self, cell: Cell) -> None:
        """Have the daemon know of the cell.

        Raises:
            GpuUnavailable: the daemon does not answer in time.
            Problem, DaemonUnreachable: see `Place.request`.
        """
        patience_s = None if cell.wait_timeout_s is None else max(cell.wait_timeout_s, _ANSWER_S)
        try:
            async with asyncio.timeout(patience_s):
                if self._place.orders is None:
                    await self._request(cell)
        except TimeoutError:
            raise _not_in_time(cell, _NO_ANSWER) from None
        if self._place.orders is not None:
            await self._place.orders.tell_cell_started()

    async def _request(self, cell: Cell) -> None:
        """Ask for a GPU, with a live line while the daemon is away."""
        asking = asyncio.ensure_future(self._place.request({}))
        asking.add_done_callback(lambda _: self._changes.announce())
        try:
            await self._wait(cell, asking.done, self._away_line)
            await asking
        finally:
            asking.cancel()

    def _away_line(self, waited_s: float) -> str | None:
        sentence = None if self._patience is None else self._patience.sentence
        return None if sentence is None else f"{sentence} ({waited_s:.0f} s)"

    async def until_ready(self, cell: Cell) -> None:
        """Until the GPU process takes cells, and the user has read what happened since the last one.

        Raises:
            GpuUnavailable: no GPU now (`wait` is off), not in time, or given up for good.
        """
        await self._settle_yield()
        while True:
            if not self._keeper.still_usable():
                await self._wait_for_gpu(cell)
            elif self._keeper.saves.active:
                await self._wait(cell, lambda: not self._keeper.saves.active, _saving_line)
            elif self._keeper.executing:
                await self.until_free(cell)
                await self.ask_for_gpu(cell)  # the end of that cell was told as if none waited
            elif self._keeper.coming_back.due:
                await self._try_again(cell)
            elif unread := self._log.take_unread():
                try:
                    await cell.on_notices(unread)
                except asyncio.CancelledError:
                    self._log.put_back(unread)
                    raise
            elif self._keeper.saves.waiting:
                await self._keeper.saves.give_way()
            else:
                return

    async def while_it_stands(self, cell: Cell) -> None:
        """Show the user of a running cell that it stands still, and for whom."""
        orders = self._place.orders
        while orders is not None and (stands := orders.standing.stands) is not None and cell.call.left_alone:
            cell.on_wait(notices.standing_line(stands.at, stands.for_whom, stands.gpu, stands.seconds))
            await self._changes.until(lambda: orders.standing.stands is None, _LIVE_LINE_S)
        cell.on_wait(None)

    async def _try_again(self, cell: Cell) -> None:
        """What could not be restored, before the cell that may need it."""
        trying = asyncio.get_running_loop().create_task(self._keeper.coming_back.try_again(self._keeper.there))
        trying.add_done_callback(lambda _: self._changes.announce())
        await self._wait(cell, trying.done, _restoring_line)
        try:
            told = notices.came_later(trying.result())
        except (RequestFailed, ProcessDied) as error:
            self._log.add(f"What could not be restored was tried again in vain: {error}.")
        else:
            if told is not None:
                self._log.add(told, important=True)

    async def _settle_yield(self) -> None:
        """After a cell at whose end the GPU was to be given back, the next one waits for the daemon's word."""
        orders = self._place.orders
        if self.asked_to_yield and orders is not None and orders.connected:
            await self._changes.until(lambda: not self._keeper.usable or not orders.view["yields"], _YIELD_ANSWER_S)
        self.asked_to_yield = False

    async def _wait_for_gpu(self, cell: Cell) -> None:
        if not cell.wait:
            await self._refuse_to_wait()
        await self.ask_for_gpu(cell)  # it may have gone, suspended by its user as well, since this cell was told of
        deadline = math.inf if cell.wait_timeout_s is None else monotonic_s() + cell.wait_timeout_s
        asked = self._place.orders

        def done() -> bool:
            orders = self._place.orders
            if self._keeper.usable or orders is None:
                return True
            if orders.view["phase"] == "failed":
                raise GpuUnavailable(
                    f"{orders.view['reason']}. %gpu request tries again with the saved variables, %gpu restart "
                    "without them."
                )
            # Who has the GPU already only waits for the process.
            if monotonic_s() >= deadline and orders.view["phase"] != "starting":
                raise _not_in_time(cell, orders.view["reason"] if orders.connected else _NO_ANSWER)
            return False

        await self._wait(cell, done, self._waiting_line, until=deadline)
        if self._place.orders is None:
            # In line nobody but who released it has ended it; whose process was to end is asked for again.
            if asked is not None and asked.given_up is not None and asked.view["position"] is not None:
                raise GpuUnavailable(
                    f"this notebook's place in the queue was given up while the cell waited: {asked.given_up}. "
                    "The cell did not run; the next one asks again."
                )
            await self.ask_for_gpu(cell)

    async def _refuse_to_wait(self) -> None:
        """`--no-wait`: go on only if a process is on its way already."""
        status = await (await self._place.client()).status()
        own = next((w for w in status["workloads"] if w["id"] == self._place.workload_id), None)
        if own is None or own["phase"] not in ("starting", "running"):
            reason = own["reason"] if own else "this notebook's place on the GPU has just ended"
            raise GpuUnavailable(
                f"no GPU is free now: {reason}. The cell did not run; without --no-wait it waits for a GPU."
            )

    async def _wait(
        self, cell: Cell, done: Callable[[], bool], line: Callable[[float], str | None], until: float = math.inf
    ) -> None:
        """Until `done()`, with a live line below the cell; looks again at the time `until` (monotonic_s) as well."""
        began, shown = monotonic_s(), False
        try:
            while not done():
                left_s = until - monotonic_s()
                await self._changes.until(done, min(_LIVE_LINE_S, left_s) if left_s > 0 else _LIVE_LINE_S)
                waited_s = monotonic_s() - began
                is_told = waited_s >= _SHORT_WAIT_S and not done()
                text = (self._line_of_stopped(waited_s) or line(waited_s)) if is_told else None
                if text is not None:
                    cell.on_wait(text)
                    shown = True
        finally:
            if shown:
                cell.on_wait(None)
        if shown:
            # What a cell of auto mode puts out takes no way through its thread: a line cleared later takes that along.
            await cell.caught_up()

    def _waiting_line(self, waited_s: float) -> str | None:
        orders = self._place.orders
        return None if orders is None else notices.waiting_line(orders.view, waited_s, connected=orders.connected)

    def _line_of_stopped(self, waited_s: float) -> str | None:
        """Nothing is waited for but somebody's word to a process that does nothing."""
        process, orders = self._keeper.process, self._place.orders
        stands = self._keeper.held_by_driver or (orders is not None and orders.standing.stands is not None)
        if process is None or stands or not is_stopped(process.pid):
            return None
        return f"the GPU process is stopped: `kill -CONT {process.pid}` has it go on ({waited_s:.0f} s so far)"


def _not_in_time(cell: Cell, reason: str) -> GpuUnavailable:
    return GpuUnavailable(f"no GPU within {cell.wait_timeout_s:g} s: {reason}. The cell did not run.")


def _saving_line(waited_s: float) -> str:
    return f"the variables of the cell before are being saved … ({waited_s:.0f} s); Ctrl-C gives this save up"


def _restoring_line(waited_s: float) -> str:
    return f"what could not be restored before is tried again … ({waited_s:.0f} s); Ctrl-C goes on without it"


def _busy_line(waited_s: float) -> str:
    return f"the cell before still runs in the GPU process ({waited_s:.0f} s so far); %gpu restart ends it"
