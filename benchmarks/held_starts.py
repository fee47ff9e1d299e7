"""A pod gets a GPU that a notebook borrows: is the notebook still there when the pod's container starts?

    python benchmarks/held_starts.py [--starts 100]

Real notebooks and a real daemon; the API server and the kubelet stand in. In each round the kubelet gives the borrowed
GPU to a pod of which nobody has known, the worst there is: in a cluster with KAI a BindRequest is earlier. Without a
barrier the pod's container starts at that moment; with it, when `nls wait-for-gpus` has ended, a process in the pod's
cgroup. The judge looks at the borrower's GPU process in /proc and asks no daemon. GPU memory is simulated, and so is
the time that a save takes: so many seconds for a GiB as benchmarks/saved_state.py has measured for a cold save. That is
mostly sleep, so that the rounds are made in several clusters side by side.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "kubernetes"))

from machine import machine, report

from cluster_bench import ClusterBench
from daemon_process import nls_environment
from objects import PODS, pod
from waiting import wait_until

if TYPE_CHECKING:
    from notebooks import Book

# It borrows again as soon as it can, and has time to save all that it has: the start is held for as long as that takes.
SETTINGS = ("reclaim_deadline_s=60", "cool_down_s=0.2", "min_residency_s=0.2", "residency_per_move=0.1")
FAST = tuple(word for setting in (*SETTINGS, "max_moves_per_hour=1000000") for word in ("--set", setting))
CLUSTERS = {1: 1, 4: 2, 16: 5}
"""How many clusters make the rounds of each size in GiB."""
SAVE_S_PER_GIB = 0.541
STATE = """
import time

class State:
    def __init__(self, seconds):
        self.seconds, self.turns = seconds, 0

    def __getstate__(self):
        time.sleep(self.seconds)
        return dict(vars(self))

state = State({seconds})
"""
INIT_CONTAINER = """
import subprocess, sys
sys.stdin.readline()
sys.exit(subprocess.call([sys.executable, "-m", "nls_scheduler", "wait-for-gpus"]))
"""
LOOK_S = 0.002


class Starts:
    """Two notebooks at home on GPU 0, one of which borrows GPU 1."""

    def __init__(self, cluster: ClusterBench, gib: int) -> None:
        self.cluster = cluster
        cluster.reserve("g0", 0)
        self.books: list[Book] = []
        for name in ("alice", "bob"):
            uid = cluster.book(name)
            self.books.append(cluster.jupyter.open(f"{name}.ipynb"))
            cluster.cgroups.move(self.books[-1].pid(), uid)
            self.books[-1].gpu(STATE.format(seconds=gib * SAVE_S_PER_GIB))

    def borrower(self) -> Book | None:
        """Who is on GPU 1 between two cells."""
        entries = [(book, book.entry()) for book in self.books]
        there = [book for book, e in entries if e["current"] == [self.cluster.gpus[1]] and e["phase"] == "running"]
        return there[0] if there else None

    def one(self, number: int) -> dict[str, float]:
        """One start: how late it is without the barrier and with it, and what it waits beyond what it must."""
        book = wait_until(self.borrower, 60)
        book.gpu("state.turns += 1")
        borrower = book.entry()["pid"]
        name = f"train-{number}"
        written = pod(name, gpus=1, scheduler="default-scheduler", phase="Pending")
        with subprocess.Popen(
            [sys.executable, "-c", INIT_CONTAINER],
            env=nls_environment(NLS_SOCKET=str(self.cluster.daemon.socket)),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as waiting:
            assert waiting.stdin is not None
            self.cluster.kubelet.allocations = {f"default/{name}": [self.cluster.gpus[1]]}
            self.cluster.cgroups.move(waiting.pid, self.cluster.put(written))
            began = time.monotonic()
            waiting.stdin.write(b"go\n")
            waiting.stdin.flush()
            ended = left = None
            while ended is None or left is None:
                if ended is None and waiting.poll() is not None:
                    ended = time.monotonic()
                if left is None and not lives(borrower):
                    left = time.monotonic()
                time.sleep(LOOK_S)
        self.cluster.kubelet.allocations = {}
        self.cluster.api.delete(PODS, written)
        return {"without_s": left - began, "with_s": max(0.0, left - ended), "longer_s": max(0.0, ended - left)}


def lives(pid: int) -> bool:
    """Whether that GPU process holds memory; one that has ended and is not collected holds none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def rounds_of(gib: int, starts: int) -> list[dict[str, float]]:
    """The rounds of one cluster."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="nls-b-"))
        with Path(__file__).open() as one_by_one:
            fcntl.flock(one_by_one, fcntl.LOCK_EX)
            cluster = stack.enter_context(ClusterBench(Path(name), "2x16GiB", *FAST, notebooks=True))
            bench = Starts(cluster, gib)
        rounds = []
        for number in range(starts):
            rounds.append(bench.one(number))
            sys.stderr.write(f"{gib} GiB, start {number}: {json.dumps(rounds[-1])}\n")
        assert cluster.metric("nls_kubernetes_starts_anyway_total") == 0, "a start was not held to its end"
    return rounds


def figures_of(gib: int, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The figures of one size."""
    without, late, longer = ([each[key] for each in rounds] for key in ("without_s", "with_s", "longer_s"))
    return {
        "starts": len(rounds),
        "save_s": round(gib * SAVE_S_PER_GIB, 2),
        "lateness_without_it": distribution(without),
        "lateness_with_it": distribution(late),
        "late_starts_with_it": sum(each > 0 for each in late),
        "held_longer_than_needed": distribution(longer),
    }


def distribution(seconds: list[float]) -> dict[str, float]:
    """Of one figure."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    figures = {"least_s": min(seconds), "p50_s": cuts[49], "p99_s": cuts[98], "most_s": max(seconds)}
    return {name: round(value, 2) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--gib", type=int, help="this size alone")
    options = parser.parse_args()
    if options.gib is not None:
        sys.stdout.write(json.dumps(rounds_of(options.gib, options.starts)))
        return
    where, load = machine(), os.getloadavg()[0]
    running = {
        gib: [begun(gib, options.starts // clusters) for _ in range(clusters)] for gib, clusters in CLUSTERS.items()
    }
    figures: dict[str, Any] = {"load_before": round(load, 1)}
    for gib, processes in running.items():
        rounds = [each for process in processes for each in json.loads(process.communicate()[0])]
        figures[f"{gib}_gib"] = figures_of(gib, rounds)
    # Without seven other clusters on the machine: what a start is held for nothing.
    alone = begun(1, max(2, options.starts // 5))
    figures["1_gib_alone"] = figures_of(1, json.loads(alone.communicate()[0]))
    report("held_starts", figures, where)


def begun(gib: int, starts: int) -> subprocess.Popen[str]:
    """One cluster's rounds, in a process of their own."""
    command = [sys.executable, __file__, "--starts", str(starts), "--gib", str(gib)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
