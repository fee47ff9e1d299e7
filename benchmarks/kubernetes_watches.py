"""1,000 nodes' watches from one process: what they cost, how soon a change is there, and how soon it is decided on.

    python benchmarks/kubernetes_watches.py [--watches 1000] [--changes 400] [--without-notebooks]
    KUBEBUILDER_ASSETS=DIR python benchmarks/kubernetes_watches.py    # the same against a real API server

The agents are in a process of their own; the API server that stands in is in this one. The peer in the same run is one
watch alone. Then real notebooks in a stand-in of a cluster: from KAI's BindRequest until the Gpu is free, for 1 and
4 GiB of variables on it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kubernetes"))

from machine import machine, report

from api_servers import REAL, SERVERS
from cluster_bench import ClusterBench
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.kubernetes_driver import access
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from nls_scheduler.kubernetes_driver.reflector import Reflector
from nls_scheduler.kubernetes_driver.view import Sources, look
from objects import BIND_REQUESTS, PODS, reservation, shared_pod
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

    from api_servers import ApiServer

Moments = dict[str, tuple[float, float]]
PODS_OF_A_FULL_NODE = 100


class Agent:
    """One node: follows its pods, and notes when each came and when it was decided on."""

    def __init__(self, api: KubernetesApi, name: str, moments: Moments) -> None:
        self._name = name
        self._moments = moments
        self._state = SimulatedNode.of(8, 80 * GIB).state
        self._capacities = {uuid: gpu.memory_total_bytes for uuid, gpu in self._state.gpus.items()}
        selector = {"fieldSelector": f"spec.nodeName={name}"}
        self.pods: Reflector[PodRecord] = Reflector(
            api, PODS, selector, self._convert, self._changed, pace=Pace(spread_s=1.0)
        )

    @staticmethod
    def _convert(written: Mapping[str, Any]) -> PodRecord | None:
        return pod_record(written, "/run/nls")

    def _changed(self) -> None:
        came_at = time.monotonic()
        view = look(Sources(self._name, self.pods.records, capacities=self._capacities))
        self._state, _ = step(self._state, ev.GpusClaimed(0.0, view.claims))
        decided_at = time.monotonic()
        for pod in self.pods.records.values():
            self._moments.setdefault(pod.name, (came_at, decided_at))


def follow(kubeconfig: str, nodes: list[str], pipe: Connection) -> None:
    """The agents' process: says when all watches stand, then on a word from the pipe what they saw and what it cost."""

    async def main() -> None:
        api = KubernetesApi(await access.find(kubeconfig), most_connections=0)
        moments: Moments = {}
        before_bytes = rss_bytes()
        agents = [Agent(api, name, moments) for name in nodes]
        tasks = [asyncio.create_task(agent.pods.run()) for agent in agents]
        while not all(agent.pods.age_s == 0.0 for agent in agents):
            await asyncio.sleep(0.02)
        pipe.send({"listed_cpu_s": cpu_s(), "each_kib": (rss_bytes() - before_bytes) / len(nodes) / 1024})
        began_s = cpu_s()
        await asyncio.to_thread(pipe.recv)
        pipe.send({"cpu_s": cpu_s() - began_s, "moments": moments, "relists": sum(a.pods.lists - 1 for a in agents)})
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.close()

    asyncio.run(main())


def watched(server: ApiServer, directory: Path, nodes: list[str], changes: int, prefix: str) -> dict[str, Any]:
    """Follow `nodes`, make changes one after another, and say how long each took to arrive and to be decided on."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    kubeconfig = str(server.kubeconfig(directory))
    process = multiprocessing.get_context("spawn").Process(target=follow, args=(kubeconfig, nodes, there))
    began = time.monotonic()
    process.start()
    start = here.recv()
    standing_s = time.monotonic() - began
    made, last = {}, None
    for number in range(changes):
        name = f"{prefix}-{number}"
        written = shared_pod(name, "0.01", f"g{number}", node=nodes[number * 7919 % len(nodes)])
        made[name] = time.monotonic()
        server.put(PODS, written)
        time.sleep(0.005)
        if last is not None:
            server.delete(PODS, last)  # the nodes stay as full as they were
        last = written
    time.sleep(1.0)
    here.send("enough")
    end = here.recv()
    process.join()
    seen: Moments = end["moments"]
    delivered = [max(0.0, seen[name][0] - at) for name, at in made.items()]
    decided = [max(0.0, seen[name][1] - at) for name, at in made.items()]
    return {
        "watches": len(nodes),
        "all_stand_after_s": round(standing_s, 2),
        "memory_each_kib": round(start["each_kib"], 1),
        "cpu_to_stand_s": round(start["listed_cpu_s"], 2),
        "cpu_per_change_ms": round(end["cpu_s"] / (2 * changes) * 1000, 3),
        "delivery_ms": spread_ms(delivered),
        "decision_ms": spread_ms(decided),
        "relists": end["relists"],
    }


def full_node(server: ApiServer, directory: Path, changes: int) -> dict[str, Any]:
    """The same for one node that has 100 pods already."""
    for number in range(PODS_OF_A_FULL_NODE // 2):
        for written in (
            reservation(f"f{number}", f"GPU-{number % 8}", node="full"),
            shared_pod(f"full-{number}", "0.01", f"f{number}", node="full"),
        ):
            server.put(PODS, written)
    return watched(server, directory, ["full"], changes, "more")


def vacated(directory: Path, gibibytes: int, rounds: int) -> dict[str, Any]:
    """From a BindRequest to a Gpu that is free, with that much on the notebook that borrows it."""
    fast = ("--set", "cool_down_s=0.2", "--set", "min_residency_s=0.2", "--set", "poll_interval_s=0.1")
    seconds = []
    with ClusterBench(directory, "2x40GiB", *fast, notebooks=True) as cluster:
        cluster.reserve("g0", 0)
        books = {}
        for name in ("alice", "bob"):
            uid = cluster.book(name, "0.4")
            books[name] = cluster.jupyter.open(f"{name}.ipynb")
            cluster.cgroups.move(books[name].pid(), uid)
            books[name].gpu(f"from nls_jupyter import xp\nkept = xp.ones({gibibytes} * 2**27)")

        def current() -> list[str]:
            entries = [book.entry(phase="running", executing=False) for book in books.values()]
            return sorted(gpu for entry in entries for gpu in entry["current"])

        def free() -> bool:
            """On evidence: what its driver shows."""
            gpus, workloads = (cluster.daemon.status()[part] for part in ("gpus", "workloads"))
            return gpus[1]["memory_used_bytes"] == 0 and all(gpus[1]["uuid"] not in w["current"] for w in workloads)

        for number in range(rounds):
            wait_until(lambda: current() == sorted(cluster.gpus), 120)
            wait_until(lambda: all(book.entry()["saved_bytes"] for book in books.values()), 120)
            began = time.monotonic()
            request = cluster.request("train", groups=["g-new"], portion="1.0")
            wait_until(free, 120)
            vacated_s = time.monotonic() - began
            wait_until(lambda: current() == [cluster.gpus[0]] * 2, 120)
            seconds.append({"vacated_s": vacated_s, "back_at_home_s": time.monotonic() - began})
            cluster.api.delete(BIND_REQUESTS, request)
            print(f"{gibibytes} GiB, round {number}: {seconds[-1]}", file=sys.stderr)
    names = ("vacated_s", "back_at_home_s")
    return {name: round(statistics.median(each[name] for each in seconds), 2) for name in names}


def spread_ms(seconds: list[float]) -> dict[str, float]:
    percentiles = statistics.quantiles(seconds, n=100)
    return {"p50": round(percentiles[49] * 1000, 2), "p99": round(percentiles[98] * 1000, 2)}


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-notebooks", action="store_true")
    options = parser.parse_args()
    where = machine()
    figures: dict[str, Any] = {}
    with SERVERS, tempfile.TemporaryDirectory(prefix="nls-b-") as name:
        directory = Path(name)
        with SERVERS.new() as server:
            figures["server"] = type(server).__name__
            figures["alone"] = watched(server, directory, ["alone"], options.changes, "alone")
            nodes = [f"node-{number}" for number in range(options.watches)]
            figures["many"] = watched(server, directory, nodes, options.changes, "many")
            figures["full_node"] = full_node(server, directory, options.changes)
        medians = [figures[name]["delivery_ms"]["p50"] for name in ("many", "alone")]
        figures["many_to_alone_ratio"] = round(medians[0] / medians[1], 2)
        if not options.without_notebooks:
            for gibibytes in (1, 4):
                place = directory / f"v{gibibytes}"
                place.mkdir()
                figures[f"vacate_{gibibytes}_gib"] = vacated(place, gibibytes, options.rounds)
    print(json.dumps(figures), file=sys.stderr)
    report("kubernetes_watches_real_server" if REAL else "kubernetes_watches", figures, where)


if __name__ == "__main__":
    main()
