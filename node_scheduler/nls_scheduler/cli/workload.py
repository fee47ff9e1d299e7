"""`nls suspend`, `nls resume` and `nls release`: what a user says about one workload."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.processes.proc import command_line
from nls_scheduler.units.clock import local_time
from nls_scheduler.wire.errors import Problem
from nls_scheduler.wire.protocol import clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.client.daemon_client import DaemonClient

LINE_LIMIT: Final = 80


@dataclass(frozen=True, slots=True)
class _Verb:
    """One of the commands."""

    name: str
    help: str
    description: str


_VERBS = (
    _Verb(
        "suspend",
        "take a notebook off its GPU until its next cell",
        "Saves what the notebook holds on its GPU, ends its GPU process and gives the GPU to others. The kernel lives; "
        "the next GPU cell brings everything back.",
    ),
    _Verb(
        "resume",
        "bring a suspended or failed workload back",
        "Brings a suspended notebook back as soon as there is room, or gives a failed workload another try.",
    ),
    _Verb(
        "release",
        "end a workload's use of its GPU",
        "Ends the workload's GPU process and its claim to a GPU. A notebook's kernel lives; a command ends.",
    ),
)


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    for verb in _VERBS:
        parser = subparsers.add_parser(
            verb.name,
            help=verb.help,
            description=verb.description,
            epilog=f"examples:\n  nls {verb.name} analysis.ipynb\n  nls {verb.name} 3f9c --json\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[common],
        )
        parser.add_argument("workload", metavar="WORKLOAD", help="its name, its id, or the beginning of its id")
        parser.add_argument("--json", action="store_true", help="answer for programs")
        parser.set_defaults(run=_run, verb=verb)


def _run(options: argparse.Namespace) -> int:
    workload, answer = ask(options.socket, lambda client: _act(client, options))
    if options.json:
        say(json.dumps(answer, indent=2))
    else:
        say(f"{workload['name']} ({workload['id']}) {done(options.verb.name, answer)}.")
    return 0


def done(verb: str, answer: Mapping[str, Any]) -> str:
    """What is said of a workload after `suspend`, `resume` or `release`; `answer`: the daemon's."""
    if verb == "suspend":
        return "is being suspended: its next GPU cell brings it back"
    if verb == "release":
        return "is being released"
    there = {"running": "runs", "starting": "starts"}.get(answer["phase"])
    return "comes back as soon as there is room" if there is None else f"{there} on {' and '.join(answer['gpus'])}"


async def _act(client: DaemonClient, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    workload = find((await client.status())["workloads"], options.workload)
    if options.verb.name == "release":
        await client.release(workload["id"])
        return workload, {"released": workload["id"]}
    act = client.suspend if options.verb.name == "suspend" else client.resume
    return workload, await act(workload["id"])


def find(workloads: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The workload of that id, that name, or whose id begins so: first one's own, as others' are not one's to act on.

    To root all are alike, so that nobody's name hides whose id begins so. Raises Problem for none and for several.
    """
    named = [workload for workload in workloads if workload["name"] == wanted]
    begun = [w for w in workloads if wanted and w["id"].startswith(wanted) and w not in named]
    ways = [[*named, *begun]]
    if os.geteuid() != 0:
        ways = [[w for w in way if w["own"]] for way in (named, begun)] + [named, begun]
    for matching in ([workload for workload in workloads if workload["id"] == wanted], *ways):
        if len(matching) > 1:
            listed = "; ".join(map(_told_apart, matching))
            raise Problem(409, "Ambiguous name", f"{wanted!r} is ambiguous, name one by its id: {listed}.")
        if matching:
            return matching[0]
    there = ", ".join(f"{workload['name']} ({workload['id']})" for workload in workloads) or "none at all"
    raise Problem(404, "No such workload", f"There is no workload {wanted!r}: there are {there}.")


def _told_apart(workload: Mapping[str, Any]) -> str:
    """What tells it from others of its name: its id, where it is and since when, and what runs."""
    where = f" on {', '.join(workload['gpus'])}" if workload["gpus"] else ""
    since = f" since {local_time(workload['since'])}" if workload["since"] else ""
    line = None if workload["pid"] is None else command_line(WorkloadId(workload["id"]), workload["pid"])
    runs = f": {clean_text(line)[:LINE_LIMIT]}" if line else ""
    return f"{workload['id']} ({workload['name']}, {workload['phase']}{where}{since}{runs})"
