"""`nls doctor`."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from nls_scheduler.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.cli.types import Subparsers
    from nls_scheduler.doctor import Finding

_EPILOG = """examples:
  nls doctor
  nls doctor --json | jq '.[] | select(.level != "ok")'

exit codes: 0 nothing stands in the way (there may be warnings), 1 something does
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
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.doctor import examine

    findings = examine(options.socket, os.environ)
    say(json.dumps([finding.as_dict() for finding in findings], indent=2) if options.json else render(findings))
    return int(any(finding.level == "error" for finding in findings))


def render(findings: Sequence[Finding]) -> str:
    """The findings as text for people."""
    marks = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}
    lines = []
    for finding in findings:
        lines.append(f"{marks[finding.level]}  {finding.check}: {finding.text}")
        if finding.advice is not None:
            lines.append(f"         -> {finding.advice}")
    return "\n".join(lines)
