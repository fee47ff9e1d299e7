"""What a page may ask for and order: each handler parses, checks who may, calls, and renders."""

from __future__ import annotations

import tornado.web
from jupyter_server.auth.decorator import authorized

from nls_jupyter_server.gpu_handler import GpuHandler


class StatusHandler(GpuHandler):
    """`GET nls/api/status`: what the WebSocket's snapshot has."""

    @tornado.web.authenticated
    @authorized("read")
    async def get(self) -> None:
        """The node, or why nothing is known of it."""
        self.answer(await self.orders.state())


class WorkloadHandler(GpuHandler):
    """`PATCH` and `DELETE nls/api/workloads/{id}`."""

    @tornado.web.authenticated
    @authorized("write")
    async def patch(self, workload_id: str) -> None:
        """Ask for another request or limit."""
        fields = self.fields()
        await self.require_own(workload_id)
        self.answer(await self.orders.change(workload_id, fields))

    @tornado.web.authenticated
    @authorized("write")
    async def delete(self, workload_id: str) -> None:
        """Give the Gpu back."""
        await self.require_own(workload_id)
        await self.orders.release(workload_id)
        self.answer({"released": workload_id}, 202)


class ActionHandler(GpuHandler):
    """`POST nls/api/workloads/{id}/suspend` and `/resume`."""

    @tornado.web.authenticated
    @authorized("write")
    async def post(self, workload_id: str, action: str) -> None:
        """What was asked for is under way when this answers, not done."""
        await self.require_own(workload_id)
        self.answer(await self.orders.act(workload_id, action), 202)


class GpuReturnHandler(GpuHandler):
    """`POST nls/api/gpus/{uuid}/return`: an administrator's word that a Gpu is well again."""

    @tornado.web.authenticated
    @authorized("execute")
    async def post(self, gpu: str) -> None:
        """Its entry of the daemon's status."""
        self.answer(await self.orders.return_gpu(gpu))
