"""What a page can order, carried to the daemon in the name of this server's user."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nls_jupyter_server.page_state import is_own, unreachable
from nls_scheduler.wire.errors import DaemonUnreachable, Problem, unknown_workload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nls_jupyter_server.page_state import State
    from nls_jupyter_server.status_feed import StatusFeed
    from nls_scheduler.client.daemon_client import DaemonClient


class Orders:
    """Handlers call it; the daemon decides once more whether it may be. Raises Problem and DaemonUnreachable."""

    def __init__(self, feed: StatusFeed) -> None:
        self._feed = feed

    async def state(self) -> State:
        """The node as pages show it; without a daemon, why."""
        try:
            return await self._feed.refreshed()
        except (DaemonUnreachable, Problem) as error:
            return unreachable(str(error))

    async def is_own(self, workload_id: str) -> bool:
        """Whether it belongs to this server's user. Asked of the daemon: a state that pages show may be old."""
        client = await self._feed.client()
        with self._feed.understood():
            status = await client.status()
            entry = next((w for w in status["workloads"] if w["id"] == workload_id), None)
        if entry is None:
            raise unknown_workload(workload_id[:100])
        return is_own(entry, os.geteuid())

    async def change(self, workload_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Another request or limit; the workload's entry of the daemon's status."""
        async with self._client() as client:
            return await client.patch(quote(workload_id, safe=""), **fields)

    async def act(self, workload_id: str, action: str) -> dict[str, Any]:
        """Suspend or resume; the workload's entry of the daemon's status."""
        async with self._client() as client:
            return await (client.suspend if action == "suspend" else client.resume)(quote(workload_id, safe=""))

    async def release(self, workload_id: str) -> None:
        """Give the Gpu back."""
        async with self._client() as client:
            await client.release(quote(workload_id, safe=""))

    async def return_gpu(self, gpu: str) -> dict[str, Any]:
        """The Gpu is well again; its entry of the daemon's status."""
        async with self._client() as client:
            return await client.return_gpu(gpu)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[DaemonClient]:
        client = await self._feed.client()
        try:
            yield client
        finally:
            self._feed.nudge()
