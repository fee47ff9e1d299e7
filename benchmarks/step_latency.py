"""How long one `step` takes: a random but seeded history on 16 Gpus with 80 workloads, invariants off.

Prints milliseconds (p50, p99, max) per kind of event, and the cost of checking the invariants as a ratio.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict

from machine import machine, report

from nls_scheduler import simulator
from nls_scheduler.model import Kind
from nls_scheduler.simulator import GIB, SimulatedNode

SEED = 7


def history(gpus: int, workloads: int, events: int) -> dict[str, list[float]]:
    """Seconds per step, by kind of event, once the node is full."""
    chance = random.Random(SEED)
    times: dict[str, list[float]] = defaultdict(list)
    real_step = simulator.step

    def timed(state, event):
        began = time.perf_counter()
        result = real_step(state, event)
        times[type(event).__name__].append(time.perf_counter() - began)
        return result

    simulator.step = timed
    node = SimulatedNode.of(gpus, 80 * GIB)
    for _ in range(workloads):
        submit(node, chance)
        node.settle()
    times.clear()
    while sum(map(len, times.values())) < events:
        act(node, chance)
    simulator.step = real_step
    return times


def submit(node: SimulatedNode, chance: random.Random) -> None:
    """A notebook of a tenth to a half of a Gpu that may burst to a whole one; one in ten is a command."""
    request = chance.randint(8, 40) * GIB
    if chance.random() < 0.1:
        node.submit(kind=Kind.COMMAND, request_bytes=request, limit_bytes=request)
    else:
        node.submit(request_bytes=request, limit_bytes=80 * GIB)


def act(node: SimulatedNode, chance: random.Random) -> None:
    """Something happens, as on a busy node."""
    known = sorted(node.state.workloads)
    workload = chance.choice(known)
    draw = chance.random()
    if draw < 0.6 and node.workloads[workload].spec.kind is Kind.NOTEBOOK:
        (node.finish_cell if node.workloads[workload].executing else node.start_cell)(workload)
    elif draw < 0.8 and node.workloads[workload].process is not None:
        allowance = node.state.plan[workload].allowance_bytes
        node.hold(workload, chance.randint(1, max(1, allowance // GIB)) * GIB)
    elif draw < 0.9:
        node.release(workload)
        submit(node, chance)
    else:
        node.now += chance.random()
        node.sample()
    for command in list(node.pending):
        if command in node.pending:
            node.complete(command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--workloads", type=int, default=80)
    parser.add_argument("--events", type=int, default=4000)
    options = parser.parse_args()
    checked = time.perf_counter()
    history(options.gpus, options.workloads, options.events // 4)
    checked = time.perf_counter() - checked
    simulator.check = lambda *_: None
    unchecked = time.perf_counter()
    history(options.gpus, options.workloads, options.events // 4)
    unchecked = time.perf_counter() - unchecked
    times = history(options.gpus, options.workloads, options.events)
    everything = sorted(t for kind in times.values() for t in kind)

    def milliseconds(values: list[float], share: float) -> float:
        return round(1000 * values[min(len(values) - 1, int(share * len(values)))], 3)

    report(
        "step_latency",
        {
            "gpus": options.gpus,
            "workloads": options.workloads,
            "steps": len(everything),
            "p50_ms": milliseconds(everything, 0.5),
            "p99_ms": milliseconds(everything, 0.99),
            "max_ms": milliseconds(everything, 1.0),
            "with_invariants_ratio": round(checked / unchecked, 2),
            "by_event_p99_ms": {kind: milliseconds(sorted(t), 0.99) for kind, t in sorted(times.items())},
        },
        machine(),
    )


if __name__ == "__main__":
    main()
