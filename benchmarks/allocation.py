"""How much of a cluster's GPUs is allocated when pods have asked for all of them: five ways to place them, and moves.

NLS_TRACES names a folder with the trace of `fragmentation/trace.py`. Beside each way, as published, stands the same
with what a scheduler on the nodes can add: pods with a part of a GPU move inside their node when one comes that fits
nowhere. Beside all stands what nobody can exceed. `docs/fragmentation.md` tells how to read it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from fragmentation.bound import all_fit_until, most_milli
from fragmentation.play import arrivals, play_both
from fragmentation.policies import POLICIES
from fragmentation.trace import MILLI, NODES, WORKLOADS, TraceError, is_published, load, pods_file
from machine import machine, report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fragmentation.play import Outcome
    from fragmentation.trace import Trace

PUBLISHED: Final = {
    "default": {"Random": 86.30, "DotProd": 90.62, "Packing": 91.78, "BestFit": 92.86, "FGD": 95.23},
    "gpushare40": {"Random": 84.86, "DotProd": 89.30, "Packing": 89.77, "BestFit": 91.44, "FGD": 93.96},
    "gpushare100": {"Random": 78.90, "DotProd": 81.98, "Packing": 82.13, "BestFit": 84.62, "FGD": 86.64},
}
"""Percent at 100 % of arrivals, mean of 10 seeds: `analysis_allo_discrete.csv` in the FGD simulator's repository."""
FIRST_SEED: Final = 42


def placed_once(outcomes: Sequence[Outcome], published: float | None) -> dict[str, Any]:
    """What a policy allocates, as the published figure says it."""
    percent = [outcome.percent for outcome in outcomes]
    mean = round(fmean(percent), 2)
    return {
        "percent": mean,
        "of_each_seed": [round(one, 2) for one in percent],
        "published": published,
        "difference": None if published is None else round(mean - published, 2),
    }


def with_moves(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same with moves, and what they cost in the mean of all seeds."""
    moves = [sum(outcome.moves_of.values()) for outcome in outcomes]
    return {
        "percent": round(fmean(outcome.percent for outcome in outcomes), 2),
        "of_each_seed": [round(outcome.percent, 2) for outcome in outcomes],
        "pods_that_got_room": round(fmean(outcome.made_room for outcome in outcomes), 1),
        "moves": round(fmean(moves), 1),
        "moved_gib": round(fmean(outcome.moved_bytes for outcome in outcomes) / 2**30, 1),
        "most_moves_of_a_pod": max(max(outcome.moves_of.values(), default=0) for outcome in outcomes),
    }


def bounds(trace: Trace, seeds: Sequence[int]) -> dict[str, Any]:
    """What no scheduler exceeds, and until when none can have placed everybody."""
    gpus = trace.capacity_milli // MILLI
    most = [100 * most_milli(arrivals(trace, seed), gpus) / trace.capacity_milli for seed in seeds]
    until = [100 * all_fit_until(list(arrivals(trace, seed)), gpus) / trace.capacity_milli for seed in seeds]
    return {"percent": round(fmean(most), 2), "all_fit_until_percent": round(fmean(until), 2)}


def compared(
    trace: Trace, policies: Sequence[str], seeds: Sequence[int], published: Mapping[str, float]
) -> dict[str, Any]:
    """All figures of one workload; the same arguments give the same."""
    figures: dict[str, Any] = {}
    for policy in policies:
        begun = time.monotonic()
        outcomes = [play_both(trace, policy, seed) for seed in seeds]
        once = placed_once([first for first, _ in outcomes], published.get(policy))
        moved = with_moves([second for _, second in outcomes])
        figures[policy] = {"placed_once": once, "with_moves": moved}
        print(
            f"  {policy}: {once['percent']}, with moves {moved['percent']} ({time.monotonic() - begun:.0f} s)",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return {"policies": figures, "nobody_exceeds": bounds(trace, seeds)}


def table(workloads: dict[str, Any]) -> str:
    """Percent of all GPUs."""
    lines = ["workload     policy    published   here  differs  with moves  moves    GiB  nobody exceeds"]
    for name, figures in workloads.items():
        most = figures["nobody_exceeds"]["percent"]
        for policy, found in figures["policies"].items():
            once, moved = found["placed_once"], found["with_moves"]
            published = "-" if once["published"] is None else f"{once['published']:.2f}"
            differs = "-" if once["difference"] is None else f"{once['difference']:+.2f}"
            lines.append(
                f"{name:12} {policy:9} {published:>9}  {once['percent']:5.2f}  {differs:>7}  {moved['percent']:10.2f}"
                f"  {moved['moves']:5.0f}  {moved['moved_gib']:5.0f}  {most:14.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", action="append", help=f"of {', '.join(WORKLOADS)}: these three if none is named")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="all of them if none is named")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    folder, seeds = os.environ.get("NLS_TRACES"), range(FIRST_SEED, FIRST_SEED + options.seeds)
    if folder is None:
        sys.exit(f"NLS_TRACES has to name the folder with the trace: {NODES} and {pods_file('*')}.")
    if not seeds:
        sys.exit(f"--seeds is {options.seeds}: at least 1 is needed.")
    begun, workloads = time.monotonic(), {}
    try:
        traces = {name: load(Path(folder), name) for name in options.workload or WORKLOADS}
    except TraceError as error:
        sys.exit(str(error))
    for name, trace in traces.items():
        print(name, file=sys.stderr)
        published = PUBLISHED.get(name, {}) if is_published(Path(folder), name) else {}
        workloads[name] = compared(trace, options.policy or list(POLICIES), seeds, published)
    print(table(workloads), file=sys.stderr)
    figures = {"seeds": list(seeds), "workloads": workloads}
    report("allocation", figures, {**machine(), "minutes": round((time.monotonic() - begun) / 60, 1)})


if __name__ == "__main__":
    main()
