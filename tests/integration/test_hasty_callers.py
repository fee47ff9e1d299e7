"""Callers that are gone before they are answered leave nothing behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from daemon_process import DaemonProcess
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.daemon.http.api import Status
from nls_scheduler.wire.errors import Problem
from open_files import sockets_of
from waiting import eventually, wait_until

if TYPE_CHECKING:
    from pathlib import Path


async def follow_for(socket: Path, turns: int) -> None:
    """Follow the events, and give up after so many turns of the loop."""

    async def follow() -> None:
        async for _ in DaemonClient(socket).events():
            pass

    following = asyncio.create_task(follow())
    for _ in range(turns):
        await asyncio.sleep(0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def test_whoever_gives_up_following_at_whatever_moment_leaves_no_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        before = asyncio.all_tasks()
        for turns in range(20):
            await follow_for(daemon.socket, turns)

        async def alone() -> bool:
            return asyncio.all_tasks() <= before

        await eventually(alone)

    with DaemonProcess(tmp_path) as daemon:
        assert daemon.process is not None
        pid = daemon.process.pid
        open_before = sockets_of(pid)
        asyncio.run(story())
        wait_until(lambda: sockets_of(pid) <= open_before)
    assert not caplog.records


def test_a_request_of_a_closed_connection_is_refused_and_no_defect() -> None:
    handler = object.__new__(Status)
    stream = SimpleNamespace(closed=lambda: True, socket=None)
    handler.request = SimpleNamespace(connection=SimpleNamespace(stream=stream))  # type: ignore[assignment]
    with pytest.raises(Problem, match="closed the connection"):
        handler.prepare()
