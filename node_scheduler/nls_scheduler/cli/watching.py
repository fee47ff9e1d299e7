"""`nls status --watch`: the status anew whenever something changes, for scripts and for logs."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.cli.output import say, standard_output, tell
from nls_scheduler.cli.status import render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FIGURES: Final = frozenset(
    {"memory_used_bytes", "unplaced_bytes", "utilisation", "saved_bytes", "allowance_bytes", "waiting_s", "since"}
    | {"memory_answer", "cause"}
)
"""What changes all the time, or tells the same by a clock: no reason for another status."""


def watch(socket: Path | None, *, as_json: bool) -> int:
    """Until Ctrl-C, or until nobody reads any more.

    Raises OSError where nobody can read at all; DaemonUnreachable and Problem if none answers at first.
    """
    asyncio.run(_watch(socket, standard_output().fileno(), as_json=as_json))
    return 0


async def _watch(socket: Path | None, output: int, *, as_json: bool) -> None:
    watching = asyncio.create_task(_show(socket, as_json=as_json))
    reader_gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    if stat.S_ISFIFO(os.fstat(output).st_mode):
        # The writing end of a pipe has something to read when its reader has gone, and never before.
        loop.add_reader(output, reader_gone.set)
    leaving = asyncio.create_task(reader_gone.wait())
    try:
        await asyncio.wait({watching, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if reader_gone.is_set():
            raise BrokenPipeError
        await watching
    finally:
        loop.remove_reader(output)
        for task in (watching, leaving):
            task.cancel()
        await asyncio.gather(watching, leaving, return_exceptions=True)


async def _show(socket: Path | None, *, as_json: bool) -> None:
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.client.following import Follower

    shown, away = None, False
    follower = Follower(lambda: DaemonClient.connect(socket, may_start=False))
    async with aclosing(follower.looks()) as looks:
        async for look in looks:
            if look.status is None:
                raise look.trouble or RuntimeError("A look has a status, or says why not.")
            if look.trouble is not None:
                if not away:
                    tell(f"{look.trouble} Waiting for a daemon.")
                away = True
                continue
            if away:
                tell("the daemon is there again")
            away = False
            if (now := without_figures(look.status)) != shown:
                shown = now
                say(
                    json.dumps(look.status)
                    if as_json
                    else f"{datetime.now().astimezone():%H:%M:%S}\n{render(look.status)}\n"
                )


def without_figures(status: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a status that is worth another one when it differs."""
    parts = {name: [_settled(each) for each in status[name]] for name in ("gpus", "workloads")}
    return {**status, **parts}


def _settled(entry: Mapping[str, Any]) -> dict[str, Any]:
    settled = {name: value for name, value in entry.items() if name not in _FIGURES}
    if settled.get("keep_until") is not None:  # of two clocks: a millisecond more or less is the same
        settled["keep_until"] = settled["keep_until"][: len("2000-01-01T00:00")]
    return settled
