"""The planner against an exact solver (OR-Tools CP-SAT) on 500 random crowds of up to 8 Gpus and 24 workloads.

Every step is checked by the invariants. Beside the planner's answers stand the solver's: who is admitted, how large the
smallest share of burst can be once everybody has settled, and how few bytes have to move for one more guarantee. Moves
for burst have no price here (no cool-down, `min_gain` 0.001), as the solver knows none.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report

from nls_scheduler.core.invariants import InvariantError

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from crowd_trial import live_through
from exact_plan import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crowd_trial import Outcome

CROWDS = 500
NEAR = 0.98
UNDECIDED = "the solver had no proof within its limit"
BOUNDS = {"disagreements_part": 0.005, "share_mean": 0.99, "share_within_2_percent": 0.95, "bytes_ratio": 1.1}
"""At most that many admissions decided otherwise, and that many bytes; at least that much of the best share."""


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    decisions = sum(o.decisions for o in outcomes)
    otherwise = sum(len(o.disagreements) for o in outcomes)
    ratios = sorted(o.share_ratio for o in outcomes)
    both = [(o.moved, o.fewest_moved) for o in outcomes if o.moved is not None and o.fewest_moved is not None]
    moved, fewest = sum(m for m, _ in both), sum(f for _, f in both)
    return {
        "crowds": len(outcomes),
        "admissions": decisions,
        "decided_otherwise": otherwise,
        "disagreements_part": round(otherwise / decisions, 5),
        "share_mean": round(sum(ratios) / len(ratios), 4),
        "share_within_2_percent": round(sum(r >= NEAR for r in ratios) / len(ratios), 4),
        "share_worst": round(ratios[0], 3),
        "crowds_with_a_choice": sum(0.0 < o.best_share < 1.0 for o in outcomes),
        "gib_moved": moved,
        "gib_fewest": fewest,
        "bytes_ratio": round(moved / fewest, 3) if fewest else None,
        "bounds": BOUNDS,
        "worst_shares": [
            {"crowd": o.number, "share": round(o.share, 4), "best": round(o.best_share, 4)}
            for o in sorted(outcomes, key=lambda o: o.share_ratio)[:10]
        ],
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """By number of Gpus: who was admitted otherwise, the mean part of the best share, GiB moved and the fewest."""
    lines = ["Gpus  crowds  workloads  otherwise  share   GiB  fewest"]
    for gpus in sorted({o.gpus for o in outcomes}):
        some = [o for o in outcomes if o.gpus == gpus]
        share = sum(o.share_ratio for o in some) / len(some)
        both = [o for o in some if o.moved is not None and o.fewest_moved is not None]
        people, otherwise = sum(o.workloads for o in some), sum(len(o.disagreements) for o in some)
        moved, fewest = sum(o.moved or 0 for o in both), sum(o.fewest_moved or 0 for o in both)
        lines.append(f"{gpus:4}  {len(some):6}  {people:9}  {otherwise:9}  {share:.3f}  {moved:4}  {fewest:6}")
    return "\n".join(lines)


def _decided(number: int) -> Outcome | str:
    """What came of the crowd; a sentence: why nothing did."""
    try:
        return live_through(number)
    except UndecidedError:
        return UNDECIDED
    except AssertionError as error:
        what = "unsafe" if isinstance(error, InvariantError) else "unsettled"
        return f"{what}: crowd {number}: {str(error)[:200]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crowds", type=int, default=CROWDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.crowds)
    with ProcessPoolExecutor(options.jobs) as pool:
        answers = dict(zip(numbers, pool.map(_decided, numbers), strict=True))
    outcomes = [outcome for outcome in answers.values() if not isinstance(outcome, str)]
    print(table(outcomes), file=sys.stderr)
    undecided = [number for number, outcome in answers.items() if outcome == UNDECIDED]
    failed = [outcome for outcome in answers.values() if isinstance(outcome, str) and outcome != UNDECIDED]
    wrong = {what: [f for f in failed if f.startswith(what)] for what in ("unsafe", "unsettled")}
    report("optimal", {**wrong, "undecided_by_the_solver": undecided, **figures(outcomes)}, machine())


if __name__ == "__main__":
    main()
