"""What a client says and logs of a daemon that holds its socket and does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from tornado.ioloop import IOLoop

from nls_scheduler.client import daemon_client
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.unix_resolver import TrustedConnections
from open_files import no_more_files

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def beside_a_silent_daemon(path: Path, ask: Callable[[DaemonClient, asyncio.Event], Awaitable[None]]) -> None:
    """Run `ask` with a client and with the event that a request has come."""

    async def asked() -> None:
        heard = asyncio.Event()

        async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            heard.set()
            await reader.read()
            writer.close()

        client = DaemonClient(path)
        async with await asyncio.start_unix_server(silence, path) as server:
            await ask(client, heard)
            server.close()
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(asked(), 30.0))


def test_who_stops_waiting_for_an_answer_leaves_no_line_in_a_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_client, "REQUEST_TIMEOUT_S", 0.2)

    async def give_up(client: DaemonClient, heard: asyncio.Event) -> None:
        asking = asyncio.create_task(client.status())
        await heard.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(DaemonUnreachable):
            await client.status()  # takes as long as the first one, which comes to its end meanwhile

    beside_a_silent_daemon(tmp_path / "s", give_up)
    assert not caplog.records


def test_who_holds_the_socket_and_is_silent_is_no_daemon_that_has_to_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_client, "REQUEST_TIMEOUT_S", 0.2)

    async def ask(client: DaemonClient, _: asyncio.Event) -> None:
        with pytest.raises(DaemonUnreachable, match=r"has not answered within 0\.2 s: its process is stopped"):
            await client.status()

    beside_a_silent_daemon(tmp_path / "s", ask)


def test_where_too_many_wait_to_be_connected_one_more_waits_for_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"

    async def connected(listening: socket.socket) -> None:
        connecting = asyncio.create_task(TrustedConnections(path).connect("daemon", 80))
        done, _ = await asyncio.wait({connecting}, timeout=0.1)
        assert not done
        listening.accept()[0].close()
        (await asyncio.wait_for(connecting, 30)).close()

    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as waiting:
        listening.bind(str(path))
        listening.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                one = waiting.enter_context(socket.socket(socket.AF_UNIX))
                one.settimeout(0)
                one.connect(str(path))
        asyncio.run(connected(listening))
    assert not caplog.records


def test_who_can_open_no_more_files_is_told_that_and_waits_for_nobody(tmp_path: Path) -> None:
    async def ask(client: DaemonClient, _: asyncio.Event) -> None:
        IOLoop.current()  # imports what it needs
        with (
            no_more_files(),
            pytest.raises(DaemonUnreachable, match=r"can open no more files: .* \(ulimit -n\)") as told,
        ):
            await client.status()
        assert not told.value.may_come

    beside_a_silent_daemon(tmp_path / "s", ask)


def test_bytes_of_a_command_line_that_are_no_text_are_asked_about_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def request(_: object, method: str, path: str, *__: object) -> dict[str, object]:
        asked.append(f"{method} {path}")
        return {}

    monkeypatch.setattr(DaemonClient, "_request", request)
    client = DaemonClient(tmp_path / "s")
    asyncio.run(client.return_gpu("0/\udcff"))
    asyncio.run(client.release("7", "why \udcff"))
    assert asked == ["POST /v1/gpus/0%2F%5Cudcff/return", "DELETE /v1/workloads/7?reason=why%20%5Cudcff"]
