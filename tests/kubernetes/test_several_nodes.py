"""Three nodes, three daemons and one API server: each looks after its own node, and nobody leads."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from api_servers import SERVERS
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.driver import ClusterSettings, KubernetesCluster
from objects import BIND_REQUESTS, NODE, NODES, PODS, bind_request, node, reservation, shared_pod
from test_driver import ONE, PACE, ZERO, NodeOfTests, do, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from api_servers import ApiServer

NAMES = (NODE, "node-b", "node-c")


@asynccontextmanager
async def on_each_node(server: ApiServer, directory: Path) -> AsyncIterator[dict[str, NodeOfTests]]:
    kubeconfig = str(server.kubeconfig(directory))
    hosts = {name: NodeOfTests() for name in NAMES}
    async with AsyncExitStack() as stack:
        for name, host in hosts.items():
            settings = ClusterSettings(name, "/run/nls", directory / f"{name}.sock", pace=PACE)
            host.cluster = cluster = KubernetesCluster(settings, lambda: KubernetesApi.connect(kubeconfig))
            await cluster.start(host)
            stack.push_async_callback(cluster.close)
            cluster.stepped()
        await until(lambda: all(host.cluster and host.cluster.not_ready is None for host in hosts.values()))
        yield hosts


def test_each_daemon_knows_its_own_node_and_a_pod_that_moves_is_known_where_it_is(tmp_path: Path) -> None:
    """What a notebook keeps over that is on its volume: its new pod is another one, with a home of its own."""
    book: dict[str, Any] = {"managed": True}

    async def story(server: ApiServer, hosts: dict[str, NodeOfTests]) -> None:
        def homes(name: str) -> dict[str, tuple[str, ...]]:
            cluster = hosts[name].cluster
            assert cluster is not None
            assert cluster._view is not None
            return dict(cluster._view.homes)

        first = await do(lambda: server.put(PODS, shared_pod("book", "0.5", "g0", **book)))
        await do(lambda: server.put(PODS, shared_pod("train", "0.5", "g1", node="node-b")))
        await until(lambda: homes(NODE) == {first["metadata"]["uid"]: (ZERO,)})
        await until(lambda: (ONE,) in hosts["node-b"].owners().values())
        assert [hosts[name].owners() for name in (NODE, "node-c")] == [{}, {}]

        await do(lambda: server.delete(PODS, first))
        await do(lambda: server.put(PODS, reservation("g2", ONE, node="node-c")))
        moved = await do(lambda: server.put(PODS, shared_pod("book", "0.5", "g2", node="node-c", **book)))
        assert moved["metadata"]["uid"] != first["metadata"]["uid"]
        await until(lambda: homes("node-c") == {moved["metadata"]["uid"]: (ONE,)})
        await until(lambda: homes(NODE) == {})
        assert homes("node-b") == {}

        await do(lambda: server.put(BIND_REQUESTS, bind_request("big", count=1, node="node-c")))
        await until(lambda: any(owner.devices_to_come for owner in hosts["node-c"].state.claims.owners))
        assert all(not any(o.devices_to_come for o in hosts[name].state.claims.owners) for name in NAMES[:2])

    async def main() -> None:
        async with on_each_node(server, tmp_path) as hosts:
            await story(server, hosts)

    with SERVERS.new() as server:
        for name in NAMES:
            written = node({"nvidia.com/gpu.memory": "16384"})
            written["metadata"] |= {"name": name, "uid": f"0-{name}"}
            server.put(NODES, written)
        server.put(PODS, reservation("g0", ZERO))
        server.put(PODS, reservation("g1", ONE, node="node-b"))
        asyncio.run(main())
