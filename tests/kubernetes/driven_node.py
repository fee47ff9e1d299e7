"""The driver in one process with a simulated node, for tests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from api_servers import SERVERS
from fake_api_server import FakeApiServer
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.driver import ClusterSettings, KubernetesCluster
from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.units.clock import awake_s
from nls_scheduler.views.metrics import Metrics
from objects import BIND_REQUESTS, NODE, NODES, PODS, POLICY, node
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from api_servers import ApiServer
    from nls_scheduler.core.model.state import NodeState

ZERO, ONE = GpuUuid("GPU-0"), GpuUuid("GPU-1")
PACE = Pace(spread_s=0.0, watch_s=1.0, slack_s=0.5, least_s=0.01, most_s=0.1, absent_s=0.05, refused_s=0.05)


class NodeOfTests:
    """A `cluster.Host` whose workloads are submitted by hand."""

    def __init__(self, recovered_at: float | None = None) -> None:
        self.state: NodeState = SimulatedNode.of(2, 16 * GIB).state
        self.metrics = Metrics(lambda: self.state)
        self.refused_configuration: str | None = None
        self.recovered_at = recovered_at
        self.used: Mapping[str, Any] = {}
        self.cluster: KubernetesCluster | None = None

    def apply_or_tell(self, event: ev.Event) -> None:
        self.state, _ = step(self.state, event)
        if self.cluster is not None:
            self.cluster.stepped()

    def use(self, values: Mapping[str, Any]) -> None:
        self.used = values

    def submit(self, tenant: str, request_gib: int, *home: GpuUuid) -> None:
        spec = WorkloadSpec(tenant, Kind.NOTEBOOK, 1000, request_gib * GIB, 16 * GIB, tenant=tenant)
        self.apply_or_tell(ev.WorkloadSubmitted(awake_s(), WorkloadId(tenant), spec, given_home=home))

    def owners(self) -> dict[str, tuple[str, ...]]:
        return {owner.id: owner.gpus for owner in self.state.claims.owners}


@asynccontextmanager
async def driven(
    server: ApiServer, directory: Path, host: NodeOfTests, pace: Pace, more: Mapping[str, Any]
) -> AsyncIterator[KubernetesCluster]:
    kubeconfig = str(server.kubeconfig(directory))
    settings = ClusterSettings(NODE, "/run/nls", directory / "kubelet.sock", POLICY, pace, **more)
    cluster = KubernetesCluster(settings, lambda: KubernetesApi.connect(kubeconfig))
    await cluster.start(host)
    host.cluster = cluster
    cluster.stepped()
    try:
        yield cluster
    finally:
        await cluster.close()


def run(
    directory: Path,
    story: Callable[[ApiServer, KubernetesCluster, NodeOfTests], Awaitable[None]],
    *,
    before: Callable[[ApiServer], None] = lambda server: None,
    recovered_at: float | None = None,
    pace: Pace = PACE,
    **settings: Any,
) -> None:
    async def main() -> None:
        host = NodeOfTests(recovered_at)
        async with driven(server, directory, host, pace, settings) as cluster:
            await story(server, cluster, host)

    with SERVERS.new() as server:
        server.put(NODES, node({"nvidia.com/gpu.memory": "16384"}))
        try:
            before(server)
            asyncio.run(main())
        finally:
            server.permit(BIND_REQUESTS)
            server.permit(NODES)


def fail(server: ApiServer) -> None:
    """Whoever asks the server for anything is told that it has failed."""
    assert isinstance(server, FakeApiServer)
    server.faults.refused = dict.fromkeys((PODS, NODES, BIND_REQUESTS), 500)


async def do(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


async def until(condition: Callable[[], object]) -> None:
    async def so() -> bool:
        return bool(condition())

    await eventually(so)
