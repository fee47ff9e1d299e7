"""How often a workload is moved on a busy day: in virtual time, with the real planner and without its invariants.

The day is generated (seeded): notebooks that come, think, run cells and grow, and commands that need whole Gpus. With
NLS_TRACES naming a folder with openb_pod_list_default.csv, arrivals (sped up to one day), lengths and sizes of that
trace are used instead. Each day is run with the bound on moves for burst alone and without it, as its peer.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report

from nls_scheduler.core import simulator
from nls_scheduler.core.model.commands import StopProcess, SuspendProcess
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId

SEED = 20261121
DAY_S = 86400.0
GPU_BYTES = 80 * GIB
TRACE = "openb_pod_list_default.csv"


@dataclass(frozen=True)
class Demand:
    """One workload: when it comes, how long it stays, its guaranteed part of a Gpu, and what it is."""

    at: float
    stays_s: float
    request: float
    kind: Kind


@dataclass
class Day:
    """A node on one day, and what its workloads lived through."""

    node: SimulatedNode
    chance: random.Random
    hours: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)
    worst: Counter[WorkloadId] = field(default_factory=Counter)
    seen: int = 0

    def advance(self, at: float) -> None:
        """Everything until `at`: timers, orders, and what they free."""
        node = self.node
        present = sum(w.present for w in node.state.workloads.values())
        self.hours += present * max(0.0, at - node.now) / 3600
        node.advance(max(0.0, at - node.now))
        self._count()

    def _count(self) -> None:
        for _, commands in self.node.history[self.seen :]:
            for command in commands:
                if isinstance(command, SuspendProcess):
                    burst = command.reason.kind is Reason.MORE_ROOM
                    self.happened["moves for burst alone" if burst else "other suspends"] += 1
                    self.worst[command.workload] += burst
                elif isinstance(command, StopProcess):
                    self.happened["stops"] += 1
        self.node.history.clear()
        self.seen = 0


def generated(chance: random.Random, workloads: int) -> list[Demand]:
    """Notebooks for some hours each, and one command in five; more by day than by night."""
    demands = []
    for _ in range(workloads):
        at = min(DAY_S - 1, max(0.0, chance.gauss(DAY_S / 2, DAY_S / 5)))
        if chance.random() < 0.2:
            demands.append(Demand(at, chance.uniform(300, 7200), chance.choice([0.5, 1.0]), Kind.COMMAND))
        else:
            demands.append(Demand(at, chance.uniform(1800, 6 * 3600), chance.choice([0.1, 0.25, 0.5]), Kind.NOTEBOOK))
    return demands


def traced(file: Path, chance: random.Random, workloads: int) -> list[Demand]:
    """Pods with one Gpu or a part of one, drawn from the trace; a part is a notebook's, a whole one a command's."""
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["num_gpu"] == "1" and row["deletion_time"]]
    rows = sorted(chance.sample(rows, min(workloads, len(rows))), key=lambda row: float(row["creation_time"]))
    first, last = float(rows[0]["creation_time"]), float(rows[-1]["creation_time"])
    speed = max(1.0, (last - first) / DAY_S)
    demands = []
    for row in rows:
        request = max(0.05, int(row["gpu_milli"]) / 1000)
        # Lengths stay as they are, or nobody would be there for long enough to be moved.
        length = max(60.0, min(DAY_S / 4, float(row["deletion_time"]) - float(row["creation_time"])))
        kind = Kind.COMMAND if request >= 1.0 else Kind.NOTEBOOK
        demands.append(Demand((float(row["creation_time"]) - first) / speed, length, request, kind))
    return demands


def run(demands: list[Demand], gpus: int, policy: Policy) -> dict[str, Any]:
    """The day with this policy: moves per hour that a workload was on a Gpu, and the most that one of them had."""
    chance = random.Random(SEED)
    day = Day(SimulatedNode.of(gpus, GPU_BYTES, policy), chance)
    queue: list[tuple[float, int, str, Any]] = []
    for number, demand in enumerate(demands):
        heapq.heappush(queue, (demand.at, number, "comes", demand))
    number = len(demands)
    while queue and queue[0][0] < DAY_S:
        at, _, what, about = heapq.heappop(queue)
        day.advance(at)
        for later_s, next_, next_about in _happens(day, what, about):
            number += 1
            heapq.heappush(queue, (at + later_s, number, next_, next_about))
    moves = day.happened["moves for burst alone"]
    return {
        "workload_hours": round(day.hours, 1),
        "moves_for_burst_per_workload_hour": round(moves / day.hours, 3),
        "suspends_per_workload_hour": round((moves + day.happened["other suspends"]) / day.hours, 3),
        "most_moves_of_one_workload": max(day.worst.values(), default=0),
        **dict(day.happened),
    }


def _happens(day: Day, what: str, about: Any) -> list[tuple[float, str, Any]]:
    """Do it, and say what follows after how many seconds."""
    node, chance = day.node, day.chance
    if what == "comes":
        size = int(about.request * GPU_BYTES)
        command = about.kind is Kind.COMMAND
        workload = node.submit(
            kind=about.kind, request_bytes=size, limit_bytes=size if command else GPU_BYTES, requeue=command
        )
        node.settle()
        return [(about.stays_s, "goes", workload), *([] if command else [(1.0, "cell", workload)])]
    if about not in node.state.workloads:
        return []
    if what == "goes":
        node.release(about)
        node.settle()
        return []
    if what == "ends":
        if node.workloads[about].executing:
            node.finish_cell(about)
        return [(chance.expovariate(1 / 240), "cell", about)]
    node.start_cell(about)
    node.settle()
    record = node.state.workloads.get(about)
    if record is not None and record.phase is Phase.RUNNING and chance.random() < 0.3:
        allowance = node.state.plan[about].allowance_bytes
        held = int(allowance * chance.uniform(0.1, 0.9))
        free = GPU_BYTES - sum(p.held_bytes for p in node.processes if record.current[0] in p.gpus)
        held = min(held, free + record.used_bytes(record.current[0]))
        if held > GIB:
            node.hold(about, int(held * 0.8), int(held * 0.2))
    return [(chance.expovariate(1 / 60), "ends", about)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--workloads", type=int, default=40)
    options = parser.parse_args()
    simulator.check = lambda *_: None
    chance = random.Random(SEED)
    traces = os.environ.get("NLS_TRACES")
    demands = (
        traced(Path(traces) / TRACE, chance, options.workloads) if traces else generated(chance, options.workloads)
    )
    bounded, free = run(demands, options.gpus, Policy()), run(demands, options.gpus, Policy(max_moves_per_hour=10**6))
    report(
        "thrash",
        {
            "day": f"{TRACE}, sped up" if traces else "generated",
            "gpus": options.gpus,
            "workloads": len(demands),
            "bound_per_hour": Policy().max_moves_per_hour,
            "bounded": bounded,
            "unbounded": free,
        },
        machine(),
    )


if __name__ == "__main__":
    main()
