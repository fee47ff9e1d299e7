"""A daemon is killed while a pod gets the GPU that a notebook borrows: how long until the owner has it.

    python benchmarks/cluster_restarts.py [--rounds 40]

Real notebooks and a real daemon; the API server and the kubelet stand in. Each round kills the daemon (SIGKILL), gives
the borrowed GPU away while nobody looks, and starts the daemon again at once; the clock runs from the kill until the
driver shows the GPU free. In turn the owner is a pod with a share of KAI's, which only the API server knows, and a pod
to which the kubelet has given a whole device. Then what 1,000 nodes ask of an API server when
all of them start at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kubernetes"))

from machine import machine, report

from cluster_bench import ClusterBench
from fake_api_server import FakeApiServer
from objects import PODS, pod, shared_pod
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from notebooks import Book

FAST = (
    "--set",
    "max_moves_per_hour=1000",
    "--set",
    "cool_down_s=0.2",
    "--set",
    "min_residency_s=0.2",
    "--set",
    "poll_interval_s=0.1",
)
SPREAD_S = 3.0
"""Of the BindRequests alone: production's 30 s would only make the rounds longer."""
REQUESTS_PER_SECOND = 830.0
"""Lists and watches that a real kube-apiserver 1.36 took on two cores, with etcd and all agents beside it."""


class Rounds:
    """Two notebooks at home on GPU 0, one of which borrows GPU 1."""

    def __init__(self, cluster: ClusterBench, directory: Path) -> None:
        self.cluster = cluster
        _as_a_pod(cluster, directory)
        cluster.reserve("g0", 0)
        self.books: list[Book] = []
        self.cpu_s: list[float] = []
        for name in ("alice", "bob"):
            uid = cluster.book(name)
            book = cluster.jupyter.open(f"{name}.ipynb")
            cluster.cgroups.move(book.pid(), uid)
            book.gpu("kept = list(range(10))")
            self.books.append(book)

    def spread(self) -> None:
        """Somebody borrows GPU 1 again."""

        def both() -> bool:
            entries = [book.entry(phase="running", executing=False) for book in self.books]
            return {gpu for entry in entries for gpu in entry["current"]} == set(self.cluster.gpus)

        wait_until(both, 60)

    def one(self, number: int) -> float:
        """Seconds from the kill to a free GPU 1."""
        self.spread()
        daemon = self.cluster.daemon
        began = time.monotonic()
        daemon.kill()
        end = self._of_kai(number) if number % 2 == 0 else self._of_the_kubelet(number)
        with daemon.log_path.open("ab") as log:
            command = daemon._command  # noqa: SLF001 - `start` would wait, and with it the clock
            daemon.process = subprocess.Popen(command, env=daemon.environment, stdout=log, stderr=log)
        wait_until(self._free, 60)
        seconds = time.monotonic() - began
        self.cpu_s.append(cpu_s(daemon.process.pid))
        end()
        return seconds

    def _of_kai(self, number: int) -> Callable[[], None]:
        reserved = self.cluster.reserve(f"g-{number}", 1)
        train = shared_pod(f"train-{number}", "0.5", f"g-{number}")
        self.cluster.put(train)

        def end() -> None:
            for written in (train, reserved):
                self.cluster.api.delete(PODS, written)

        return end

    def _of_the_kubelet(self, number: int) -> Callable[[], None]:
        train = pod(f"train-{number}", gpus=1, scheduler="default-scheduler")
        self.cluster.put(train)
        self.cluster.kubelet.allocations = {f"default/train-{number}": [self.cluster.gpus[1]]}

        def end() -> None:
            self.cluster.kubelet.allocations = {}
            self.cluster.api.delete(PODS, train)

        return end

    def _free(self) -> bool:
        try:
            _, status = self.cluster.daemon.request("GET", "/v1/status")
        except OSError:
            return False
        gpu, borrowers = status["gpus"][1:2], [w for w in status["workloads"] if self.cluster.gpus[1] in w["current"]]
        return bool(gpu) and gpu[0]["memory_used_bytes"] == 0 and not borrowers


def _as_a_pod(cluster: ClusterBench, directory: Path) -> None:
    """The next daemon reaches the API server by a service account, as one in a pod does: over TLS, by three files."""
    account, hidden = directory / "account", directory / "hidden"
    account.mkdir()
    hidden.mkdir()
    # Nobody but Kubernetes may write where it mounts them.
    lines = ["import pathlib", "from nls_scheduler.kubernetes_driver import access"]
    lines.append(f"access.SERVICE_ACCOUNT = pathlib.Path({str(account)!r})")
    (hidden / "sitecustomize.py").write_text("\n".join(lines))
    assert isinstance(cluster.api, FakeApiServer)
    daemon = cluster.daemon
    daemon.environment.update(cluster.api.service_account(account))
    daemon.environment["PYTHONPATH"] = os.pathsep.join([str(hidden), daemon.environment["PYTHONPATH"]])
    at = daemon._command.index("--kubeconfig")  # noqa: SLF001 - it is started again with another command
    del daemon._command[at : at + 2]  # noqa: SLF001


def cpu_s(pid: int) -> float:
    """Of the daemon until now: what its start takes of a processor, however busy the machine is."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def distribution(seconds: list[float]) -> dict[str, float]:
    """Of one kind of owner, or of all."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    figures = {"p50_s": cuts[49], "p90_s": cuts[89], "p99_s": cuts[98], "most_s": max(seconds)}
    return {name: round(value, 2) for name, value in figures.items()}


def all_at_once(nodes: int, spread_s: float = 30.0, *, collections: int = 4) -> dict[str, float]:
    """What an API server is asked when so many daemons start in the same second: a list and a watch of each collection.

    Those of a node's own objects (pods, the node, its ResourceSlices, the policy) at once; of the BindRequests, spread.
    """
    own, spread = 2 * collections * nodes, 2 * nodes
    return {
        "nodes": nodes,
        "own_requests": own,
        "own_answered_after_s": round(own / REQUESTS_PER_SECOND, 1),
        "spread_requests_per_second": round(spread / spread_s, 1),
        "measured_requests_per_second": REQUESTS_PER_SECOND,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    where, load = machine(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="nls-b-") as name:
        directory = Path(name)
        arguments = (*FAST, "--first-list-within", str(SPREAD_S))
        with ClusterBench(directory, "2x16GiB", *arguments, notebooks=True) as cluster:
            rounds = Rounds(cluster, directory)
            seconds = []
            for number in range(options.rounds):
                seconds.append(rounds.one(number))
                print(f"round {number}: {seconds[-1]:.2f} s", file=sys.stderr)
            rounds.spread()
    figures: dict[str, Any] = {
        "rounds": len(seconds),
        "load_before": round(load, 1),
        "all": distribution(seconds),
        "known_to_the_api_server": distribution(seconds[::2]),
        "known_to_the_kubelet": distribution(seconds[1::2]),
        "daemon_cpu_s": round(statistics.median(rounds.cpu_s), 2),
        "seconds": [round(each, 2) for each in seconds],
        "thousand_nodes": all_at_once(1000),
    }
    print(json.dumps(figures["all"]), file=sys.stderr)
    report("cluster_restarts", figures, where)


if __name__ == "__main__":
    main()
