"""1,000 daemons' watches on one API server: from a pod's change to the decision that it leads to.

    python benchmarks/kubernetes_watches.py [watches] [pods]

All of it runs on this machine, the stand-in for the server too: the figures bound the driver from above. The peer in
the same run is the same server followed by one watch alone.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kubernetes"))

from kubernetes.aio import client

from fake_api_server import FakeApiServer
from nls_scheduler import events as ev
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from nls_scheduler.kubernetes_driver.reflector import Pace, Reflector
from nls_scheduler.kubernetes_driver.view import Sources, look
from nls_scheduler.model import GpuUuid
from nls_scheduler.simulator import GIB, SimulatedNode
from nls_scheduler.state_machine import step
from objects import PODS, pod, reservation, shared_pod


class Agent:
    """One node: its pods, and the time of its last decision."""

    def __init__(self, api: KubernetesApi, name: str) -> None:
        self.name = name
        self.node = SimulatedNode.of(8, 80 * GIB)
        self.decided_at = asyncio.Event()
        self.at = 0.0
        self.pods: Reflector[PodRecord] = Reflector(
            api, PODS, {"fieldSelector": f"spec.nodeName={name}"}, self._convert, self._changed, pace=Pace(spread_s=0.0)
        )

    @staticmethod
    def _convert(written: Any) -> PodRecord | None:
        return pod_record(written, "/run/nls")

    def _changed(self) -> None:
        capacities = {uuid: gpu.memory_total_bytes for uuid, gpu in self.node.state.gpus.items()}
        view = look(Sources(self.name, self.pods.records, capacities=capacities))
        self.node.state, _ = step(self.node.state, ev.GpusClaimed(0.0, view.claims))
        self.at = time.perf_counter()
        self.decided_at.set()


async def measure(server: FakeApiServer, watches: int, pods: int) -> list[float]:
    configuration = client.Configuration(host=server.url)
    configuration.connection_pool_maxsize = 0  # no cap
    api = KubernetesApi(client.ApiClient(configuration))
    agents = [Agent(api, f"node-{n}") for n in range(watches)]
    tasks = [asyncio.create_task(agent.pods.run()) for agent in agents]
    while not all(agent.pods.age_s == 0.0 for agent in agents):
        await asyncio.sleep(0.05)
    latencies = []
    for number in range(pods):
        agent = agents[number * 7919 % watches]
        agent.decided_at.clear()
        written = shared_pod(f"pod-{watches}-{number}", "0.5", f"g{number}", node=agent.name)
        began = time.perf_counter()
        await asyncio.to_thread(server.put, PODS, written)
        await agent.decided_at.wait()
        latencies.append(max(0.0, agent.at - began))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await api.close()
    return latencies


def decision_s(pods: int) -> float:
    """One look and one step with that many pods on the node."""
    records = {}
    for number in range(pods):
        for written in (reservation(f"g{number}", f"GPU-{number % 8}"), shared_pod(f"p{number}", "0.1", f"g{number}")):
            record = pod_record(written, "/run/nls")
            if record is not None:
                records[record.uid] = record
    node = SimulatedNode.of(8, 80 * GIB)
    sources = Sources("node-a", records, capacities=dict.fromkeys(map(GpuUuid, node.state.gpus), 80 * GIB))
    began = time.perf_counter()
    step(node.state, ev.GpusClaimed(0.0, look(sources).claims))
    return time.perf_counter() - began


def main() -> None:
    watches, pods = (int(a) for a in (*sys.argv[1:], "1000", "200")[:2])
    with FakeApiServer() as server:
        server.put(PODS, pod("first"))
        alone = asyncio.run(measure(server, 1, pods))
        many = asyncio.run(measure(server, watches, pods))
    print(f"{'watches':>8} {'p50 ms':>8} {'p99 ms':>8}")
    for name, found in ((1, alone), (watches, many)):
        p99 = statistics.quantiles(found, n=100)[98]
        print(f"{name:>8} {statistics.median(found) * 1000:>8.2f} {p99 * 1000:>8.2f}")
    print(f"ratio of the medians: {statistics.median(many) / statistics.median(alone):.1f}")
    print(f"look and step with 100 pods on the node: {decision_s(100) * 1000:.2f} ms")


if __name__ == "__main__":
    main()
