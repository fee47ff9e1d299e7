"""Public notebooks, each played plain and on the GPU kernel, undisturbed and disturbed: `make corpus`.

What is listed in notebooks.toml is fetched at its commit into a cache; nothing of it is part of this project. Prints
one table, and ends with an error where a bar is missed: undisturbed, every cell shows what plain runs show (cells that
differ between plain runs say nothing); disturbed, nothing breaks or differs without a sentence that names the loss, and
at least 85 % of the notebooks show the same to their end.
"""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "fidelity"), str(HERE.parents[1] / "benchmarks")]

from machine import machine, report  # noqa: E402

from listed import LIST, Listed, NotFetched, Repository, fetched, repositories  # noqa: E402
from trial import KINDS, UNDISTURBED, Outcome, Trial, World  # noqa: E402
from verdicts import Verdict  # noqa: E402

SAME_SHARE = 0.85
SEED = 20261122
ROWS = (UNDISTURBED, *KINDS)
CACHE = Path(os.environ.get("NLS_CORPUS") or Path.home() / ".cache" / "nls-jupyter" / "corpus")


def chosen(options: argparse.Namespace) -> tuple[list[tuple[Listed, Path]], list[str]]:
    """Those to be played with their checkouts, and why others cannot be.

    In an order of the seed's: the first minutes show something of everything.
    """
    listed = [
        Listed(repository, path)
        for repository in repositories(LIST.read_text(encoding="utf-8"))
        for path in repository.notebooks
    ]
    listed = [notebook for notebook in listed if _matches(notebook, options.only)]
    random.Random(options.seed).shuffle(listed)
    listed = listed[: options.limit]
    checkouts: dict[Repository, Path] = {}
    unfetched = []
    for repository in dict.fromkeys(notebook.repository for notebook in listed):
        try:
            checkouts[repository] = fetched(repository, CACHE)
        except NotFetched as why:
            unfetched.append(f"{repository.name}: {why}")
    return [(it, checkouts[it.repository]) for it in listed if it.repository in checkouts], unfetched


def _matches(listed: Listed, only: list[str]) -> bool:
    return not only or any(fnmatch.fnmatch(listed.name, f"*{pattern}*") for pattern in only)


async def play(notebooks: list[tuple[Listed, Path]], options: argparse.Namespace) -> list[Outcome]:
    """Some side by side; a line for each as it ends."""
    began, todo, outcomes = time.monotonic(), list(reversed(notebooks)), list[Outcome]()
    with World(CACHE) as world:

        async def work() -> None:
            while todo:
                listed, checkout = todo.pop()
                trial = Trial(world, listed, checkout, options.seed, options.cell_timeout, options.every)
                start = time.monotonic()
                (outcome,) = await asyncio.gather(trial.run(), return_exceptions=True)
                if isinstance(outcome, BaseException):
                    outcome = Outcome(listed, unfit=f"it could not be played to its end: {outcome!r}")
                outcome.seconds = time.monotonic() - start
                outcomes.append(outcome)
                elapsed_s = time.monotonic() - began
                print(f"{elapsed_s:6.0f} s  {len(outcomes):3}/{len(notebooks)}  {line(outcome)}", flush=True)
                if options.report is not None:
                    write_report(options.report, options.seed, outcomes)

        async with asyncio.TaskGroup() as group:
            for _ in range(options.workers):
                group.create_task(work())
    return outcomes


def line(outcome: Outcome) -> str:
    """One notebook's."""
    if outcome.unfit:
        return f"{outcome.listed.name}: left out: {outcome.unfit}"
    said = [f"{row} {_in_short(outcome, row)}" for row in outcome.verdicts]
    return f"{outcome.listed.name} ({len(outcome.cells)} cells, {outcome.seconds:.0f} s): {'; '.join(said)}"


def _in_short(outcome: Outcome, row: str) -> str:
    counts = outcome.counts(row)
    marks = {Verdict.VARIES: "varying", Verdict.NAMED: "NAMED", Verdict.UNNAMED: "UNNAMED"}
    return ", ".join(f"{counts[verdict]} {mark}" for verdict, mark in marks.items() if counts[verdict]) or "same"


def table(outcomes: list[Outcome]) -> dict[str, dict[str, int]]:
    """Figures by row."""
    rows = {}
    for row in ROWS:
        here = [outcome for outcome in outcomes if row in outcome.verdicts]
        cells: Counter[Verdict] = Counter()
        for outcome in here:
            cells.update(outcome.counts(row))
        rows[row] = {
            "notebooks": len(here),
            "the same to the end": sum(outcome.same(row) for outcome in here),
            "orders refused": sum("refused" in what for outcome in here for what in outcome.runs[row].done),
            "cells": cells.total(),
            **{verdict.value: cells[verdict] for verdict in Verdict},
        }
    return rows


def as_text(rows: dict[str, dict[str, int]]) -> str:
    """The table for people."""
    heads = list(rows[UNDISTURBED])
    lines = [f"{'':12}" + "".join(f"  {head}" for head in heads)]
    for row, figures in rows.items():
        lines.append(f"{row:12}" + "".join(f"  {figures[head]:>{len(head)}}" for head in heads))
    return "\n".join(lines)


def missed(outcomes: list[Outcome]) -> list[str]:
    """The bars that are missed, as sentences."""
    sentences = [f"left out: {o.listed.name}: {o.unfit}" for o in outcomes if o.unfit]
    disturbed = []
    for outcome in outcomes:
        for row in outcome.verdicts:
            counts = outcome.counts(row)
            if row == UNDISTURBED and not outcome.same(row):
                sentences.append(f"undisturbed, {outcome.listed.name} shows what plain kernels do not show")
            elif counts[Verdict.UNNAMED]:
                sentences.append(f"{row}: {outcome.listed.name} differs, and no sentence says why")
            if row != UNDISTURBED:
                disturbed.append(outcome.same(row))
    if disturbed and sum(disturbed) < SAME_SHARE * len(disturbed):
        sentences.append(f"{sum(disturbed)} of {len(disturbed)} disturbed runs show the same to the end")
    return sentences


def write_report(path: Path, seed: int, outcomes: list[Outcome]) -> None:
    """Everything that differs, with both outputs."""
    content = {"seed": seed, "table": table(outcomes), "notebooks": [outcome.as_json() for outcome in outcomes]}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], help="names that contain this, as in a shell; repeatable"
    )
    parser.add_argument("--limit", type=int, help="so many of them, as the seed draws them")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="which cells are disturbed, and how (default: %(default)s)"
    )
    parser.add_argument(
        "--every", action="store_true", help="all three disturbances for each notebook, not the drawn one"
    )
    parser.add_argument("--workers", type=int, default=2, help="notebooks side by side (default: %(default)s)")
    parser.add_argument("--cell-timeout", type=float, default=120.0, metavar="S", help="(default: %(default)s)")
    parser.add_argument("--report", type=Path, help="a JSON file for the cells that differ, with both outputs")
    return parser.parse_args(arguments)


def main() -> int:
    """Exit code 0: no bar is missed."""
    options = options_of()
    notebooks, unfetched = chosen(options)
    for why in unfetched:
        print(f"not fetched: {why}", file=sys.stderr)
    if not notebooks or (unfetched and os.environ.get("CI") == "true"):
        print("nothing was played", file=sys.stderr)
        return 1
    began = time.monotonic()
    outcomes = asyncio.run(play(notebooks, options))
    figures: dict[str, Any] = {"seed": options.seed, "minutes": round((time.monotonic() - began) / 60, 1)}
    figures |= {"repositories": len({o.listed.repository.name for o in outcomes}), "rows": table(outcomes)}
    report("corpus", figures, machine())
    print(as_text(figures["rows"]))
    sentences = missed(outcomes)
    print("\n".join(sentences) if sentences else "No bar is missed.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
