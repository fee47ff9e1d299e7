"""`nls migrate`: move a workload to another GPU."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say
from nls_scheduler.cli.workload import find

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.client.daemon_client import DaemonClient


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "migrate",
        help="move a workload to another GPU",
        description="Moves a notebook with its variables to another GPU, at the end of its cell if one runs. A command "
        "of `nls run --on-evict requeue` starts again there. Refused where it does not fit beside what is guaranteed; "
        "a later move for somebody's burst may take it elsewhere again.",
        epilog="examples:\n  nls migrate analysis.ipynb --to 1\n  nls migrate 3f9c --to GPU-5f1a... --json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="its name, its id, or the beginning of its id")
    parser.add_argument("--to", required=True, metavar="GPU", help="index or UUID of the GPU")
    parser.add_argument("--json", action="store_true", help="answer for programs")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    workload, answer = ask(options.socket, lambda client: _migrate(client, options))
    if options.json:
        say(json.dumps(answer, indent=2))
    else:
        when = "at the end of its cell" if answer["yields"] and answer["executing"] else "now"
        say(f"{workload['name']} ({workload['id']}) moves to GPU {options.to} {when}.")
    return 0


async def _migrate(client: DaemonClient, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    workload = find((await client.status())["workloads"], options.workload)
    return workload, await client.migrate(workload["id"], options.to)
