"""`nls down`: ends the daemon."""

from __future__ import annotations

import argparse
import os
import select
import signal
from typing import TYPE_CHECKING, Final

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import say, tell
from nls_scheduler.processes import cgroups
from nls_scheduler.processes.proc import variable_of
from nls_scheduler.wire import locate
from nls_scheduler.wire.holder import holder_of

if TYPE_CHECKING:
    from pathlib import Path

    from nls_scheduler.cli.types import Subparsers

ENDS_WITHIN_S: Final = 20.0
_GO_ON: Final = "Notebooks, commands and their GPU processes go on without it, and the next daemon finds them again."


class Stays(Exception):  # noqa: N818 - says what happened
    """The daemon was not ended, and what helps."""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "down",
        help="end the daemon",
        description=f"Ends the daemon that serves this node, and returns when it has ended. {_GO_ON} "
        "One that systemd has started is ended by `systemctl stop`.",
        epilog="examples:\n  nls down\n  nls down --socket /tmp/mine/nls.sock\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    path = locate.find(options.socket)
    try:
        end_daemon(path)
    except Stays as error:
        tell(str(error))
        return exit_codes.NO_DAEMON
    say(f"The daemon at {path} has ended. {_GO_ON}")
    return 0


def end_daemon(path: Path) -> None:
    """Tell the daemon that serves `path` to end, and wait until it has. Raises Stays.

    Who holds the socket's lock is the daemon; who listens at it may be systemd.
    """
    holder = holder_of(path)
    if holder is None:
        raise Stays(
            f"The daemon at {path} answers, but its process cannot be seen from here, as one of another container: "
            "end it where it was started."
        )
    if holder.stopped:
        raise Stays(f"The daemon at {path} cannot end: {holder}.")
    if (units := _units_of(holder.pid)) is not None:
        raise Stays(f"systemd runs the daemon at {path} and would start it again: end it with `systemctl {units}`.")
    try:
        process = os.pidfd_open(holder.pid)
    except ProcessLookupError:
        return
    try:
        if holder_of(path) != holder:
            return  # it has ended, and its number may be another's
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], ENDS_WITHIN_S)[0]:
            raise Stays(
                f"The daemon at {path} was told to end, and has not within {ENDS_WITHIN_S:g} s: "
                f"`kill -KILL {holder.pid}` ends it at once. GPU processes go on all the same."
            )
    except ProcessLookupError:
        return
    except PermissionError:
        raise Stays(
            f"The daemon at {path} is another user's, its process is {holder.pid}: they end it, or root does; a "
            "system daemon is ended with `systemctl stop nls.socket nls.service`."
        ) from None
    finally:
        os.close(process)


def _units_of(pid: int) -> str | None:
    """What `systemctl` has to be told where systemd itself has started that process, and not somebody below a unit."""
    has_socket = variable_of(pid, "LISTEN_PID") == str(pid)
    if not has_socket and variable_of(pid, "SYSTEMD_EXEC_PID") != str(pid):
        return None
    place = cgroups.cgroup_of(pid, cgroups.root())
    unit = "nls.service" if place is None else place.name
    users = "" if place is None or not any(part.startswith("user@") for part in place.parts) else "--user "
    socket = f"{unit.removesuffix('.service')}.socket " if has_socket else ""
    return f"{users}stop {socket}{unit}"
