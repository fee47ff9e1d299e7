"""`nls wait-for-gpus`: holds a pod's start until nobody borrows its GPUs any more."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from nls_scheduler.cli.types import Subparsers

TIMEOUT_S: Final = 60.0
_MOST_S: Final = 86400.0
_AGAIN_S: Final = 0.1
_EPILOG = """It always ends with 0, unless its pod is deleted: once it runs, a pod is never kept from starting for good,
and not at all where no daemon answers. What it waited for, and why it no longer does, is on stderr.

example, the first of a pod's initContainers (docs/kubernetes.md):
  nls wait-for-gpus --timeout 60
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "wait-for-gpus",
        help="hold a pod's start until its GPUs are vacated",
        description="For an init container on Kubernetes: ends as soon as nobody borrows the pod's GPUs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument(
        "--timeout", type=seconds, default=TIMEOUT_S, metavar="SECONDS", help="start all the same after (%(default)g)"
    )
    parser.set_defaults(run=_run)


def seconds(text: str) -> float:
    """A time-out, for argparse."""
    with suppress(ValueError):
        if 0 <= (found := float(text)) <= _MOST_S:
            return found
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {_MOST_S:g}")


def _run(options: argparse.Namespace) -> int:
    # The first process of a container has no default for it: a pod that is deleted meanwhile would wait all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(exit_codes.TERMINATED))
    asyncio.run(_wait(options.socket, options.timeout))
    return 0


async def _wait(socket: Path | None, timeout_s: float) -> None:
    began = time.monotonic()
    told = ""
    while True:
        waited_s = time.monotonic() - began
        try:
            answer = await _asked(socket, gives_up=waited_s >= timeout_s)
        except DaemonUnreachable as error:
            if not told:
                return tell(f"This pod starts at once. {error}")
            # It said that somebody is still there, and that stays true while it restarts.
            answer = {"vacated": False, "reason": str(error)}
        except Problem as problem:
            return tell(f"This pod starts at once. {problem}")
        if answer["vacated"]:
            return tell(f"This pod's GPUs are its own after {waited_s:.1f} s.") if told else None
        if waited_s >= timeout_s:
            return tell(f"This pod starts after a wait of {waited_s:.0f} s, although: {answer['reason']}")
        if answer["reason"] != told:
            told = answer["reason"]
            tell(f"This pod's start is held: {told}")
        await asyncio.sleep(min(_AGAIN_S, max(0.0, timeout_s - waited_s)))


async def _asked(socket: Path | None, *, gives_up: bool) -> dict[str, Any]:
    """The daemon's answer; a daemon that does not know this pod yet has not said no."""
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.kubernetes_driver.identity import UNKNOWN_POD

    client = await DaemonClient.connect(socket, may_start=False)
    try:
        return await client.may_start(gives_up=gives_up)
    except Problem as problem:
        if problem.status == HTTPStatus.SERVICE_UNAVAILABLE or problem.title == UNKNOWN_POD:
            return {"vacated": False, "reason": str(problem)}
        raise
