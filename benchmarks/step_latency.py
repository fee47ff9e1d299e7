"""How long one `step` takes: random but seeded histories on nodes of several sizes, invariants off.

Prints milliseconds (p50, p99, max) for each size, without queues and with departments that reclaim from each other;
with 16 Gpus and 112 workloads per kind of event; the cost of checking the invariants as a ratio; what a thousand
submissions cost that come at once and wait; sixteen halves at once on eight Gpus. With NLS_KEEP=1 it draws the growth.

A history is the same each time: it is lived through three times, each in a process of its own, and of each step the
fastest counts, as a shared machine only ever adds to it.

The same machine may be half as fast an hour later. So between the steps something is done that stays as it is from one
version to the next: `copy.deepcopy` of what a table of `PEERS` notebooks would be. What figures of two days have in
common is how many of those a step is worth (`p50_in_copies`, `p99_in_copies`).

How Python was built matters: one that was compiled without profile-guided optimisation, as pyenv does unless it is told
otherwise, takes an eighth longer than that of Debian (`/usr/bin/python3`, with PYTHONPATH=node_scheduler).
"""

from __future__ import annotations

import argparse
import copy
import gc
import os
import random
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from growth_plot import draw
from machine import machine, report

from nls_scheduler.core import simulator
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode

SEED = 7
# As many new objects the daemon lets come before it collects garbage (`daemon/http/server.py`).
MANY_OBJECTS = 10_000
FULL = (16, 112)
SIZES = ((1, 7), (2, 14), (4, 28), (8, 56), (16, 80), FULL, (16, 400))
BOUNDS_MS = {(8, 56): 2.0, (16, 80): 10.0, FULL: 20.0}
"""What p99 may be at most."""
MANY = 1000
RUNS = 3
PEERS = 56
TABLE = {
    f"notebook-{i}": {
        "name": f"notebook {i}",
        "bytes": [i, 2 * i],
        "gpus": (i % 8,),
        "home": {"gpu": i % 8, "at": i / 8},
    }
    for i in range(PEERS)
}


def departments(gpus: int) -> Policy:
    """Two with half of the Gpus each, projects in one of them."""
    half = {"default": gpus / 2}
    return Policy(
        queues=(
            Queue("a", quota=half),
            Queue("b", quota=half),
            Queue("b1", parent="b", quota={"default": gpus / 4}),
            Queue("b2", parent="b"),
        )
    )


def history(
    gpus: int,
    workloads: int,
    events: int,
    policy: Policy | None = None,
    seed: int = SEED,
    copies: list[float] | None = None,
) -> dict[str, list[float]]:
    """Seconds per step, by kind of event, once the node is full; `copies` gets those of the copies between them."""
    chance = random.Random(seed)
    times: dict[str, list[float]] = defaultdict(list)
    real_step = simulator.step

    def timed(state, event):
        began = time.perf_counter()
        result = real_step(state, event)
        times[type(event).__name__].append(time.perf_counter() - began)
        return result

    simulator.step = timed
    try:
        node = SimulatedNode.of(gpus, 80 * GIB, policy)
        for _ in range(workloads):
            submit(node, chance)
            node.settle()
        times.clear()
        gc.collect()
        gc.freeze()
        gc.disable()  # between steps, as in the daemon
        while sum(map(len, times.values())) < events:
            act(node, chance)
            if copies is not None:
                began = time.perf_counter()
                copy.deepcopy(TABLE)
                copies.append(time.perf_counter() - began)
            if gc.get_count()[0] > MANY_OBJECTS:
                gc.collect()
    finally:
        simulator.step = real_step
        gc.enable()
        gc.unfreeze()
    return times


def unchecked(
    gpus: int, workloads: int, events: int, policy: Policy | None
) -> tuple[dict[str, list[float]], list[float]]:
    """`history` without the invariants, and the copies between its steps."""
    simulator.check = lambda *_: None
    copies: list[float] = []
    return history(gpus, workloads, events, policy, copies=copies), copies


def fastest(
    gpus: int, workloads: int, events: int, policy: Policy | None = None
) -> tuple[dict[str, list[float]], list[float]]:
    """The fastest of `RUNS` times for each step of one history, invariants off, and for each copy."""
    runs = []
    for _ in range(RUNS):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            runs.append(process.submit(unchecked, gpus, workloads, events, policy).result())
    steps = [steps for steps, _ in runs]
    times = {kind: [min(one) for one in zip(*(run[kind] for run in steps), strict=True)] for kind in steps[0]}
    return times, [min(one) for one in zip(*(copies for _, copies in runs), strict=True)]


def submit(node: SimulatedNode, chance: random.Random) -> None:
    """A notebook of a tenth to a half of a Gpu that may burst to a whole one; one in ten is a command."""
    request = chance.randint(8, 40) * GIB
    queue = {"queue": chance.choice(["a", "a", "b1", "b2"])} if node.state.policy.queues else {}
    if chance.random() < 0.1:
        node.submit(kind=Kind.COMMAND, request_bytes=request, limit_bytes=request, **queue)
    else:
        node.submit(request_bytes=request, limit_bytes=80 * GIB, **queue)


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


def crowd(policy: Policy | None, between_s: float) -> float:
    """Seconds for `MANY` submissions to a full node, `between_s` of its own time after one another.

    At one moment all are as old, and their ids say who is before whom: most newcomers are not the last in line.
    """
    node = SimulatedNode.of(8, 80 * GIB, policy)
    queue = {"queue": "a"} if policy is not None else {}
    began = time.perf_counter()
    for _ in range(MANY):
        node.now += between_s
        node.submit(kind=Kind.COMMAND, request_bytes=40 * GIB, limit_bytes=40 * GIB, **queue)
    return time.perf_counter() - began


def sixteen_halves() -> dict[str, object]:
    """Halves that come one after another before any has started: milliseconds for all, and how they are placed."""
    placed, spent_s = Counter[int](), 0.0
    node = SimulatedNode.of(8, 80 * GIB)
    for _ in range(16):
        began = time.perf_counter()
        node.submit(request_bytes=40 * GIB, limit_bytes=80 * GIB)
        spent_s += time.perf_counter() - began
    node.settle()
    for workload in node.state.workloads.values():
        placed.update(node.state.gpus[uuid].index for uuid in workload.current)
    commands = sum(type(c).__name__ != "SetTimer" for _, given in node.history for c in given)
    return {
        "milliseconds_for_all": round(1000 * spent_s, 1),
        "on_each_gpu": [placed[index] for index in range(8)],
        "commands": commands,
    }


def milliseconds(values: list[float], share: float) -> float:
    return round(1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))], 3)


def figures(times: dict[str, list[float]], copies: list[float]) -> dict[str, float]:
    everything = [t for kind in times.values() for t in kind]
    found = {f"{name}_ms": milliseconds(everything, at) for name, at in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
    copy_ms = milliseconds(copies, 0.5)
    in_copies = {f"{name}_in_copies": round(found[f"{name}_ms"] / copy_ms, 2) for name in ("p50", "p99")}
    return {**found, "copy_ms": copy_ms, **in_copies}


def of_size(gpus: int, workloads: int, events: int) -> tuple[dict[str, object], dict[str, float]]:
    """What a step takes at one size, without queues and with; and of each kind of event the p99, without."""
    times, copies = fastest(gpus, workloads, events)
    found: dict[str, object] = {
        "gpus": gpus,
        "workloads": workloads,
        **figures(times, copies),
        "with_queues": figures(*fastest(gpus, workloads, events, departments(gpus))),
        "p99_bound_ms": BOUNDS_MS.get((gpus, workloads)),
    }
    return found, {kind: milliseconds(t, 0.99) for kind, t in sorted(times.items())}


def with_invariants_ratio(gpus: int, workloads: int, events: int) -> float:
    """How much longer a history takes whose every step is checked."""
    history(gpus, workloads, events)  # what is remembered from it makes the two below alike
    checked = time.perf_counter()
    history(gpus, workloads, events)
    checked = time.perf_counter() - checked
    simulator.check = lambda *_: None
    plain = time.perf_counter()
    history(gpus, workloads, events)
    return round(checked / (time.perf_counter() - plain), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--gpus", type=int, choices=[gpus for gpus, _ in SIZES[:4]], help="this size alone, in seconds")
    options = parser.parse_args()
    if options.gpus is not None:
        size = next(size for size in SIZES if size[0] == options.gpus)
        report("step_latency_of_one_size", of_size(*size, options.events)[0], machine())
        return
    ratio = with_invariants_ratio(*FULL, options.events // 10)
    growth = [of_size(*size, options.events) for size in SIZES]
    if os.environ.get("NLS_KEEP") == "1":
        draw([found for found, _ in growth])
    report(
        "step_latency",
        {
            "steps_each": options.events,
            "growth": [found for found, _ in growth],
            "with_invariants_ratio": ratio,
            "by_event_p99_ms": growth[SIZES.index(FULL)][1],
            "sixteen_halves": sixteen_halves(),
            "seconds_for_1000_submissions": {
                name: {
                    "without_queues": round(crowd(None, between_s), 2),
                    "with_queues": round(crowd(departments(8), between_s), 2),
                }
                for name, between_s in (("one_after_another", 0.001), ("at_one_moment", 0.0))
            },
        },
        machine(),
    )


if __name__ == "__main__":
    main()
