"""The server extension: puts the feed, the orders and the routes together; loaded by every Jupyter Server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from jupyter_server.extension.application import ExtensionApp
from traitlets import Type

from nls_jupyter_server.announcements import Announcements
from nls_jupyter_server.event_watch import EventWatch
from nls_jupyter_server.kernels import Kernels
from nls_jupyter_server.orders import Orders
from nls_jupyter_server.orphans import Orphanage
from nls_jupyter_server.renames import Renames
from nls_jupyter_server.routes import ROUTES
from nls_jupyter_server.status_feed import StatusFeed

if TYPE_CHECKING:
    from jupyter_events import EventLogger

LOOK_EVERY_S: Final = 2.0
LOOK_UNASKED_EVERY_S: Final = 30.0
"""Where no daemon was ever met there are no GPU processes, unless by one that only kernels know."""


class NlsExtension(ExtensionApp):
    """While no page looks it only listens for events; without a daemon or a GPU it says so to whoever asks."""

    name = "nls_jupyter"
    app_name = "nls-jupyter"
    load_other_extensions = True
    status_feed_class = Type(StatusFeed, help="What follows the daemon.").tag(config=True)
    classes = [StatusFeed]  # noqa: RUF012 - traitlets reads it from the class

    _watch: asyncio.Task[None] | None = None

    def initialize_settings(self) -> None:
        """Called by Jupyter Server before the handlers are."""
        server = self.serverapp
        if server is None:
            raise RuntimeError("The extension was initialized without its server: load it with `jupyter server`.")
        self.kernels = Kernels(server.kernel_manager, server.session_manager)
        self.orphanage = Orphanage()
        self.feed = self.status_feed_class(self.kernels, lambda: self.orphanage.supervisors, parent=self)
        self.renames = Renames(self.kernels, self.feed.client)
        announcements = Announcements(cast("EventLogger", server.event_logger))
        self.events = EventWatch(self.feed.client, announcements.announce, self.log)
        self.settings.update({"nls_status_feed": self.feed, "nls_orders": Orders(self.feed)})

    def initialize_handlers(self) -> None:
        """Called by Jupyter Server."""
        self.handlers.extend(ROUTES)

    async def _start_jupyter_server_extension(self, serverapp: object) -> None:
        """Called by Jupyter Server once its loop runs."""
        del serverapp
        self._watch = asyncio.get_running_loop().create_task(self._look_after_kernels())
        self.events.start()

    async def stop_extension(self) -> None:
        """Called by Jupyter Server at its end."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self.events.close()
        await self.feed.close()

    async def _look_after_kernels(self) -> None:
        while True:
            await self._until_the_next_look()
            try:
                await self._look_at_kernels()
            except Exception:
                self.log.exception("A look for kernels with GPU workloads failed, please report it; another follows.")

    async def _look_at_kernels(self) -> None:
        found = await asyncio.to_thread(self.orphanage.look, self.kernels.by_pid().keys())
        for workload, pid in found.items():
            self.log.info("GPU workload %s belongs to kernel process %d.", workload, pid)
        for workload in await asyncio.to_thread(self.orphanage.end_orphans):
            self.log.warning("The kernel of GPU workload %s has ended; so has its GPU process now.", workload)
        await self.renames.look(self.orphanage.supervisors)

    async def _until_the_next_look(self) -> None:
        if self.events.met.is_set():
            await asyncio.sleep(LOOK_EVERY_S)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_UNASKED_EVERY_S):
                await self.events.met.wait()
