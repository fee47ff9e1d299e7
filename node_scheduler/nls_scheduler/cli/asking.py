"""One question to the daemon that runs, for the sub-commands that never start one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nls_scheduler.client.daemon_client import DaemonClient

T = TypeVar("T")


def ask(socket: Path | None, question: Callable[[DaemonClient], Awaitable[T]]) -> T:
    """What `question` answers. Raises DaemonUnreachable where no daemon runs, and Problem where it refuses."""
    return asyncio.run(_ask(socket, question))


async def _ask(socket: Path | None, question: Callable[[DaemonClient], Awaitable[T]]) -> T:
    from nls_scheduler.client.daemon_client import DaemonClient

    client = await DaemonClient.connect(socket, may_start=False)
    try:
        return await question(client)
    finally:
        client.close()
