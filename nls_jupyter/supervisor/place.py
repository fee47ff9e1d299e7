"""This notebook's place at the node's daemon: how it gets a workload there, gives it back, and loses it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.errors import GpuError, GpuUnavailable
from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.orders import CANNOT_SAVE, Orders
from nls_jupyter.supervisor.saving import was_stopped
from nls_jupyter.supervisor.tasks import Tasks
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nls_jupyter.supervisor.changes import Changes
    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.notices import Departure, NoticeLog
    from nls_scheduler.client.daemon_client import DaemonClient

_log = logging.getLogger(__name__)

# The daemon notes the end of a process at once; a restart goes on after this in any case.
_EXIT_NOTED_WITHIN_S = 5.0
# A suspend that has not begun by then waits for something else; once it has, it takes as long as the save does.
_BEGINS_WITHIN_S = 60.0


class Place:
    """One notebook's way to a GPU. Everything runs in the loop's thread.

    Attributes:
        orders: the workload, and what is done for it; `None` while the notebook has none.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[DaemonClient]],
        defaults: Callable[[], Mapping[str, Any]],
        keeper: Keeper,
        log: NoticeLog,
        changes: Changes,
        on_stands: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_stands` is called when the running cell begins to stand still."""
        self._on_stands = on_stands
        self._connect = connect
        self._defaults = defaults
        self._keeper = keeper
        self._log = log
        self._changes = changes
        self._client: DaemonClient | None = None
        self._before: Mapping[str, Any] | None = None
        self._departure: Departure | None = None
        # A new workload is asked for only after the process of a lost one has ended.
        self._asking = asyncio.Lock()
        self._tasks = Tasks(self._failed)
        self.orders: Orders | None = None

    @property
    def workload_id(self) -> str | None:
        """The daemon's name for the workload; `None` without one."""
        return None if self.orders is None else self.orders.id

    async def client(self) -> DaemonClient:
        """The node's daemon: the one that knows this notebook, else whichever is found. Raises DaemonUnreachable."""
        if self._client is None or self.orders is None:
            # A daemon that nobody needed may have ended since, and another one may be started.
            self._client = await self._connect()
        elif self.orders is not None:
            self.orders.hurry()
        return self._client

    async def request(self, wanted: Mapping[str, Any]) -> None:
        """Ask for a GPU, or for something else than before. Raises Problem and DaemonUnreachable.

        Without `wanted`, a notebook that has lost its place asks for what it had.
        """
        if self.orders is None:
            await self.client()  # one that is away is waited for as long as anybody waits here
        # Cancelled in the middle, it would leave a workload that nobody looks after.
        await asyncio.shield(self._tasks.spawn(self._request(wanted)))

    async def release(self) -> bool:
        """Give the GPU back; what was saved stays. False: there was nothing to give back.

        Raises:
            GpuUnavailable: the variables could not be saved, or the cell stands still; nothing was given back.
            DaemonUnreachable: the process has ended, but the daemon does not know.
        """
        orders = self.orders
        if orders is None:
            return False
        self._let_stand()
        try:
            await asyncio.shield(self._tasks.spawn(self._release(orders)))
        except asyncio.CancelledError:
            self._keeper.give_up_suspend()  # a save that takes too long is given up, and nothing is released
            raise
        return True

    async def restart(self) -> None:
        """A new, empty GPU process in place of this one; what was saved is dropped. Raises as `request`."""
        if self.orders is None and self._keeper.process is None and self._keeper.saved is None:
            raise GpuUnavailable("there is no GPU process to restart; %gpu request asks for a GPU.")
        self._let_stand()
        await asyncio.shield(self._tasks.spawn(self._restart()))

    def _let_stand(self) -> None:
        """What the GPU driver holds is not ended. Raises GpuUnavailable."""
        if self._keeper.held_by_driver:
            raise GpuUnavailable(
                "the running cell stands still, and to end what the GPU driver holds could hang the node: interrupt "
                "the cell, which ends when it has gone on."
            )

    async def rest(self) -> None:
        """Off the Gpu until the next cell, for one whose process ends anyway; returns at once. Raises as `suspend`."""
        orders = self._own_orders("suspend")
        await orders.caught_up()
        await (await self.client()).suspend(orders.id)

    async def suspend(self) -> None:
        """Off the Gpu until the next cell or a resume; returns when the process has ended.

        Raises:
            GpuUnavailable: there is no workload, its variables could not be saved, or no suspend began in time.
            Problem, DaemonUnreachable: the daemon refuses, or there is none.
        """
        orders, keeper = self._own_orders("suspend"), self._keeper
        orders.why_not_suspended = None
        await self.rest()

        def decided() -> bool:
            return keeper.process is None or orders.why_not_suspended is not None

        await self._changes.until(lambda: decided() or keeper.suspending, _BEGINS_WITHIN_S)
        if not decided() and not keeper.suspending:
            raise GpuUnavailable(f"not suspended within {_BEGINS_WITHIN_S:g} s: {orders.view['reason']}.")
        await self._changes.until(
            lambda: decided() or not (keeper.suspending or orders.view["phase"] == "suspending"), math.inf
        )
        if keeper.process is not None:
            await self.resume()  # or the daemon would try it again and again
            why_not = orders.why_not_suspended or orders.view["reason"]
            raise GpuUnavailable(f"the variables could not be saved, so this notebook keeps its GPU: {why_not}.")
        # Whoever asks the daemon next is told the same as whoever reads this.
        await self._changes.until(lambda: orders.view["phase"] != "suspending", _EXIT_NOTED_WITHIN_S)

    async def resume(self) -> None:
        """Back onto a Gpu as soon as there is one. Raises as `suspend`; does not wait."""
        orders = self._own_orders("resume")
        await orders.caught_up()
        await (await self.client()).resume(orders.id)

    async def keep(self, keep_s: float | None) -> Mapping[str, Any]:
        """Not suspended for being idle for so many seconds from now; `None`: no longer kept. Raises as `suspend`.

        Returns the workload's new status entry.
        """
        orders = self._own_orders("keep")
        return await (await self.client()).patch(orders.id, keep_s=keep_s)

    def _own_orders(self, what: str) -> Orders:
        if self.orders is None:
            raise GpuUnavailable(f"this notebook has no GPU; there is nothing to {what}. %gpu request asks for one.")
        return self.orders

    async def until_asked(self) -> Orders:
        """Until this notebook has asked for a GPU."""
        await self._changes.until(lambda: self.orders is not None, math.inf)
        assert self.orders is not None  # noqa: S101 - nothing ran in between
        return self.orders

    async def close(self) -> None:
        """The kernel ends: its daemon knows that by itself."""
        if self.orders is not None:
            self.orders.over = True
        self._tasks.cancel()
        await self._tasks.until_over()

    async def _request(self, wanted: Mapping[str, Any]) -> None:
        async with self._asking:
            if self.orders is not None and await self._respecify(self.orders, wanted):
                return
            client = await self.client()
            view = await client.submit(kind="notebook", **{**self._defaults(), **self._as_before(wanted), **wanted})
            self.orders = Orders(
                client, view, self._keeper, self._log, self._changes.announce, self._departure, self._on_stands
            )
            self._departure = None
            self._tasks.spawn(self._follow(self.orders))
            self._changes.announce()

    async def _respecify(self, orders: Orders, wanted: Mapping[str, Any]) -> bool:
        """False: the daemon no longer knows the workload."""
        client = await self.client()
        try:
            view = await client.patch(orders.id, **wanted)
            if view["phase"] == "failed":
                await client.resume(orders.id)
        except Problem as problem:
            if problem.status != 404:
                raise
            await self._lose(orders, str(problem))
            return False
        return True

    def _as_before(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the last workload asked for, as far as it was not about sizes that are given anew."""
        before = self._before
        if before is None:
            return {}
        same = {"name": before["name"], "priority": before["priority"], "gpus": before["gpu_count"]}
        same |= {"queue": before["queue"]} if "queue" in before else {}
        if not {"request", "limit"} & wanted.keys():
            same |= {"request": f"{before['request_bytes']}B", "limit": f"{before['limit_bytes']}B"}
        return same

    async def _follow(self, orders: Orders) -> None:
        why = await orders.follow()
        async with self._asking:
            await self._lose(orders, why)

    async def _lose(self, orders: Orders, why: str) -> None:
        """Nothing is guaranteed without the daemon's record: save, and ask again with the next cell."""
        if self.orders is not orders:
            return
        self._forget(orders)
        self._log.add(
            f"This notebook's place on the GPU has ended ({why.rstrip('.')}); the next GPU cell asks again.",
            important=True,
        )
        await orders.standing.until_let_go()
        await self._keeper.cell_over()
        with contextlib.suppress(GpuProcessDied, *CANNOT_SAVE):
            if self._keeper.still_usable():
                await self._keeper.suspend()
        await self._keeper.end("its place on the GPU has ended")
        await self._keeper.drop_standby()
        self._changes.announce()

    def _forget(self, orders: Orders) -> None:
        orders.over, self.orders, self._before, self._departure = True, None, orders.view, orders.departure

    async def _release(self, orders: Orders) -> None:
        client, process = await self.client(), self._keeper.process
        try:
            if self._keeper.still_usable():
                await self._keeper.suspend()
        except GpuProcessDied:
            _log.debug("The GPU process ended before it was released; what was saved before stands.")
        except CANNOT_SAVE as error:
            if was_stopped(error):
                raise GpuUnavailable("%gpu release was interrupted: this notebook keeps its GPU.") from None
            raise GpuUnavailable(
                f"the variables could not be saved, so the GPU was not released: {error}. "
                "%gpu restart gives the variables up; then %gpu release works."
            ) from None
        async with self._asking:  # until it is forgotten: an end that one asked for oneself is no loss
            try:
                await client.release(orders.id)
            except Problem as problem:
                if problem.status != 404:
                    raise
            finally:
                await self._keeper.end("released by you", lambda process: process.flush_files())
                await self._keeper.drop_standby()
                if process is not None:
                    await orders.tell_exit(process, "released by its user")
            self._forget(orders)
        self._log.add("GPU released by you; the saved variables come back with the next request.")
        self._changes.announce()

    async def _restart(self) -> None:
        self._keeper.begin_anew()
        process = await self._keeper.end("restarted by you", lambda process: process.leave())
        await self._keeper.drop_standby()  # a restart is how one gets rid of modules, too
        self._keeper.begin_anew()
        # What the next cell tells of the variables before is not the last word on them.
        told = bool(self._log.unread)
        self._log.add("GPU process restarted by you; it begins without variables.", important=told)
        orders, self._departure = self.orders, None
        if orders is not None:
            orders.forget_departure()
            if process is not None:
                await orders.tell_exit(process, "restarted by its user")
                pid = process.pid
                await self._changes.until(lambda: orders.view["pid"] != pid, _EXIT_NOTED_WITHIN_S)
            await (await self.client()).resume(orders.id)
        self._changes.announce()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, GpuError | Problem | DaemonUnreachable):
            self._log.add(str(error))  # whoever asked has read it, unless they left before
            return
        _log.error("The notebook's place at the daemon was lost.", exc_info=error)
        self._log.add(f"An internal error, please report it: {error!r}. %gpu restart begins again.", important=True)
