"""How often notebooks are moved so that others are admitted: crowded nodes by the bound on how many move for one.

On 8 Gpus of 80 GiB with 56 notebooks, as `step_latency.py` has them, notebooks come and go, compute and hold more and
less. Per act of such a history: how many GPU processes were suspended; and on average how many notebooks were running,
waiting for a home and suspended, and how much of the 640 GiB was promised to somebody. The same seeds for each bound;
virtual time, so that it is the same on every machine.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from machine import machine, report
from step_latency import act, submit

from nls_scheduler.core import simulator
from nls_scheduler.core.model.commands import SuspendProcess
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.simulator import GIB, SimulatedNode

GPUS, WORKLOADS = 8, 56
BOUNDS = (0, 1, Policy().max_moved_for_one, 16, 1000)
"""Others that leave their Gpus for one at most; the last one is none."""


def lived_through(bound: int, seed: int, acts: int) -> Counter[str]:
    """Suspends, and workloads by their phases, summed over `acts`."""
    chance, seen = random.Random(seed), Counter[str]()
    node = SimulatedNode.of(GPUS, 80 * GIB, Policy(max_moved_for_one=bound))
    for _ in range(WORKLOADS):
        submit(node, chance)
        node.settle()
    told = len(node.history)
    for _ in range(acts):
        act(node, chance)
        seen.update(workload.phase.value for workload in node.state.workloads.values())
        seen["promised_gib"] += sum(w.spec.request_bytes for w in node.state.workloads.values() if w.home) // GIB
    seen["suspends"] = sum(isinstance(c, SuspendProcess) for _, given in node.history[told:] for c in given)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--acts", type=int, default=400, help="of each history")
    options = parser.parse_args()
    simulator.check = lambda *_: None
    found = {}
    for bound in BOUNDS:
        seen = Counter[str]()
        for seed in range(1, options.seeds + 1):
            seen.update(lived_through(bound, seed, options.acts))
        means = {name: round(seen[name] / (options.seeds * options.acts), 3) for name in seen}
        found[str(bound)] = {
            name: means[name] for name in ("suspends", "running", "queued", "suspended", "promised_gib")
        }
    report("moves", {"seeds": options.seeds, "acts_each": options.acts, "by_bound": found}, machine())


if __name__ == "__main__":
    main()
