"""One question to the daemon that runs, for the sub-commands that never start one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from nls_scheduler.cli.output import tell
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.holder import holder_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nls_scheduler.client.daemon_client import DaemonClient

SOON_S: Final = 3.0
"""A daemon that works has answered by then; one that systemd starts at this moment may not have."""
T = TypeVar("T")


def ask(socket: Path | None, question: Callable[[DaemonClient], Awaitable[T]]) -> T:
    """What `question` answers. Raises DaemonUnreachable where no daemon runs, and Problem where it refuses."""
    return asyncio.run(_ask(socket, question))


async def _ask(socket: Path | None, question: Callable[[DaemonClient], Awaitable[T]]) -> T:
    from nls_scheduler.client.daemon_client import REQUEST_TIMEOUT_S, DaemonClient

    client = await DaemonClient.connect(socket, may_start=False)
    asked = asyncio.ensure_future(question(client))
    if not (await asyncio.wait({asked}, timeout=SOON_S))[0]:
        holder = holder_of(client.socket)
        if holder is not None and holder.stopped:
            asked.cancel()
            await asyncio.wait({asked})
            raise DaemonUnreachable(f"The daemon at {client.socket} does not answer: {holder}.")
        tell(f"the daemon at {client.socket} has not answered yet; waiting for it, for {REQUEST_TIMEOUT_S:g} s at most")
    return await asked
