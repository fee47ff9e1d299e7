"""`nls explain`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say, table
from nls_scheduler.cli.topics import topic_of_reason
from nls_scheduler.cli.workload import find
from nls_scheduler.units.sizes import format_amount

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.client.daemon_client import DaemonClient

_EPILOG = """examples:
  nls explain analysis.ipynb
  nls explain 3f9c --json | jq '.gpus[] | {gpu, why_not_home}'
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "explain",
        help="why a workload is where it is, what it waits for, and what would help",
        description="Shows the chain of decisions for one workload: its queue, where its request is counted, where it "
        "is to be, why not on each GPU, who is in front of it, and what would help.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="its name, its id, or the beginning of its id")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    told = ask(options.socket, lambda client: _asked(client, options.workload))
    say(json.dumps(told, indent=2) if options.json else render(told))
    return 0


async def _asked(client: DaemonClient, wanted: str) -> dict[str, Any]:
    return await client.explain(find((await client.status())["workloads"], wanted)["id"])


def render(told: dict[str, Any], columns: int | None = None) -> str:
    """The explanation as text for people; in so many `columns` a table that is wider is told line by line."""
    waits = "" if told["waiting_s"] is None else f", waiting for {told['waiting_s']:.0f} s"
    parts = [
        f"{told['name']} ({told['id']}) is {told['phase']}{waits}; priority {told['priority']}.",
        "\n".join(f"  {step}" for step in told["steps"]),
    ]
    if told["queue"] is not None:
        parts.append(_queue(told["queue"]))
    if told["gpus"]:
        parts.append(_gpus(told["gpus"], columns))
    if told["ahead"]:
        parts.append("In front of it: " + ", ".join(other["name"] for other in told["ahead"]) + ".")
    topic = topic_of_reason(told.get("reason_kind"))
    more = [] if topic is None else [f"More: nls help {topic}"]
    return "\n\n".join([*parts, *told["advice"], *more])


_WHYS = {"COUNTED THERE?": "why_not_home", "PLACED THERE?": "why_not_place", "ROOM NOW?": "why_not_now"}


def _gpus(gpus: list[dict[str, Any]], columns: int | None) -> str:
    wide = table([["GPU", *_WHYS], *([_label(gpu), *(gpu[why] or "yes" for why in _WHYS.values())] for gpu in gpus)])
    if columns is None or max(map(len, wide.splitlines())) <= columns:
        return wide
    answers = ([f"  {asked.capitalize()} {gpu[why] or 'yes'}" for asked, why in _WHYS.items()] for gpu in gpus)
    return "\n".join("\n".join([_label(gpu), *lines]) for gpu, lines in zip(gpus, answers, strict=True))


def _label(gpu: dict[str, Any]) -> str:
    marks = [word for word, is_it in (("home", gpu["is_home"]), ("here", gpu["is_current"])) if is_it]
    return f"{gpu['gpu']} ({', '.join(marks)})" if marks else str(gpu["gpu"])


def _queue(queue: dict[str, Any]) -> str:
    gone = (
        "" if queue["name"] == queue["counts_in"] else f" (there is no such queue: it counts in {queue['counts_in']})"
    )
    figures = ("quota", "limit", "fair_share", "used", "requested")
    rows = [
        [level["name"], level["pool"], *(format_amount(level[name]) for name in figures)] for level in queue["chain"]
    ]
    heading = ["QUEUE", "POOL", "QUOTA", "LIMIT", "FAIR SHARE", "USED", "REQUESTED"]
    return f"It is in the queue {queue['name']}{gone}; GPUs:\n{table([heading, *rows])}"
