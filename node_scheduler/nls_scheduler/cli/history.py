"""`nls history`."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say, shortened, table
from nls_scheduler.units.clock import local
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from datetime import date

    from nls_scheduler.cli.types import Subparsers

_EPILOG = """examples:
  nls history
  nls history --json | jq '.[] | select(.event == "moved")'
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "history",
        help="what happened, why, and how long it took",
        description="Shows what has happened on this node, oldest first, as far back as the journal goes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    entries = ask(options.socket, lambda client: client.history())
    say(json.dumps(entries, indent=2) if options.json else render(entries))
    return 0


def render(entries: list[dict[str, Any]], today: date | None = None) -> str:
    """The entries as text for people, with the time of this place's clocks."""
    if not entries:
        return "Nothing has happened yet."
    times = [local(entry["time"]) for entry in entries]
    written = _written({time.date() for time in times}, today or datetime.now().astimezone().date())
    told = [time.strftime(written) for time in times]
    rows = [_row(entry, at) for entry, at in zip(entries, told, strict=True)]
    return table([["TIME", "WORKLOAD", "EVENT", "SECONDS", "GPU MEMORY", "WHY"], *rows])


def _written(days: set[date], today: date) -> str:
    """How times are written: of today the time is enough, and of this year no year is needed."""
    if days == {today}:
        return "%H:%M:%S"
    return "%m-%d %H:%M:%S" if {day.year for day in days} == {today.year} else "%Y-%m-%d %H:%M:%S"


def _row(entry: dict[str, Any], at: str) -> list[str]:
    places = [place for place in (entry["from"], entry["to"]) if place]
    event = entry["event"] + (f" {' -> '.join(places)}" if places else "")
    seconds = "" if entry["seconds"] is None else f"{entry['seconds']:.1f}"
    kept = "" if entry["bytes"] is None else format_bytes(entry["bytes"])
    if missing := entry.get("missing"):
        kept = f"{kept} without {', '.join(missing)}".strip()
    if lost := entry.get("lost_cells"):
        kept = f"{kept} without cells {', '.join(lost)}".strip()
    return [at, shortened(entry["name"]), event, seconds, kept, entry["reason"]]
