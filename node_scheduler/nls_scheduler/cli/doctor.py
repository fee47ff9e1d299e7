"""`nls doctor`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say, tell
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.doctor import Finding

_EPILOG = """examples:
  nls doctor
  nls doctor --json | jq '.[] | select(.level != "ok")'
  nls doctor --bundle problem.zip      what to attach to a report, without anybody's names

exit codes: 0 nothing stands in the way (there may be warnings), 1 something does; with --bundle 0 once it is written
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "doctor",
        help="what stands in the way on this machine, and what to do about it",
        description="Looks at the daemon, its socket, the NVIDIA driver, libraries, shared memory and the kernel.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE.zip",
        help="write the findings, the last hour of the journal, the daemon's log, versions and settings into a file, "
        "with the names of users, workloads and folders replaced, and say what is in it",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.doctor import examine

    findings = examine(options.socket, os.environ)
    if options.bundle is not None:
        return _bundle(options, findings)
    say(json.dumps([finding.as_dict() for finding in findings], indent=2) if options.json else render(findings))
    return int(any(finding.level == "error" for finding in findings))


def _bundle(options: argparse.Namespace, findings: Sequence[Finding]) -> int:
    from nls_scheduler.bundle.contents import Parts
    from nls_scheduler.client.daemon_client import DaemonClient

    questions = {"status": DaemonClient.status, "history": DaemonClient.history}
    answers = {name: _answer(options.socket, question) for name, question in questions.items()}
    parts = Parts(_place(options.socket), options.state_dir, answers, [finding.as_dict() for finding in findings])
    try:
        if options.bundle.exists():
            tell(f"{options.bundle} is there already: name a new file.")
            return exit_codes.USAGE
        say(parts.write(options.bundle, os.environ))
    except OSError as error:
        tell(f"{options.bundle} cannot be written: {error.strerror or error}.")
        return exit_codes.CANNOT_WRITE
    tell(f"written to {options.bundle}")
    return 0


def _answer(socket: Path | None, question: Callable[[DaemonClient], Awaitable[Any]]) -> Any:
    try:
        return ask(socket, question)
    except (DaemonUnreachable, Problem) as error:
        return str(error)


def _place(named: Path | None) -> Path:
    """Where the daemon is, or was: the first place with anything of one."""
    from nls_scheduler.wire import locate

    variable = os.environ.get(locate.SOCKET_VARIABLE)
    if named or variable:
        return locate.checked(named or Path(str(variable)))
    try:
        return locate.find()
    except DaemonUnreachable:
        places = locate.default_places()
        return next((place for place in places if place.parent.exists()), places[-1])


def render(findings: Sequence[Finding]) -> str:
    """The findings as text for people."""
    marks = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}
    lines = []
    for finding in findings:
        lines.append(f"{marks[finding.level]}  {finding.check}: {finding.text}")
        if finding.advice is not None:
            lines.append(f"         -> {finding.advice}")
    return "\n".join(lines)
