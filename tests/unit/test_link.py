"""The supervisor's link against a small server of the test's own, which can be rude."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tornado import web, websocket
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from tornado.websocket import WebSocketClientConnection

from nls_scheduler.client import link as module
from nls_scheduler.client.link import Report, SupervisorLink
from nls_scheduler.wire.errors import DaemonUnreachable, Problem
from nls_scheduler.wire.protocol import (
    CLOSE_ENDED,
    REPORTS,
    REPORTS_HEADER,
    CommandMessage,
    ErrorMessage,
    ViewMessage,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ORDER = json.dumps({"command": "suspend_process", "command_id": 7, "reason": "r", "cause": None})


FOR_LONG = dict.fromkeys(module.GO_FIRST_S, 600.0)
RUNNING = json.dumps({"view": {"phase": "running", "yields": False}})
YIELDS = json.dumps({"view": {"phase": "running", "yields": True}})


class Peer(websocket.WebSocketHandler):
    def initialize(self, server: Server) -> None:
        self.server = server
        self.set_header(REPORTS_HEADER, server.takes)

    def open(self) -> None:
        self.server.connections.put_nowait(self)

    def on_message(self, message: str | bytes) -> None:
        self.server.heard.put_nowait(json.loads(message))


class Busy(Peer):
    """Refuses as a daemon does that has too many connections, where that is one of the answers that are left."""

    def prepare(self) -> None:
        if self.server.refusals:
            status, retry_after = self.server.refusals.pop(0)
            self.set_status(status)
            if retry_after is not None:
                self.set_header("Retry-After", retry_after)
            self.finish(Problem(status, "Too many connections", "You have 64 connections open.").as_json())


class Server:
    """One daemon as a supervisor sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.takes = REPORTS
        self.connections: asyncio.Queue[Peer] = asyncio.Queue()
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.refusals: list[tuple[int, str | None]] = []
        self.http: HTTPServer | None = None

    def start(self) -> None:
        self.http = HTTPServer(web.Application([(r"/v1/workloads/w/supervisor", Busy, {"server": self})]))
        self.http.add_socket(bind_unix_socket(str(self.path)))

    async def stop(self) -> None:
        assert self.http is not None
        self.http.stop()
        self.path.unlink()
        await self.http.close_all_connections()


def play(path: Path, story: Callable[[Server, SupervisorLink], Awaitable[None]]) -> None:
    async def run() -> None:
        server = Server(path)
        server.start()
        try:
            async with asyncio.timeout(20), SupervisorLink(path, "w") as link:
                await story(server, link)
        finally:
            await server.stop()

    asyncio.run(run())


def test_what_another_users_daemon_says_is_not_heard_and_ones_own_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        changes: asyncio.Queue[bool] = asyncio.Queue()
        link.on_connection = changes.put_nowait
        theirs = [True] * 3

        def check(connection: socket.socket, path: Path) -> None:
            del connection
            if theirs:
                theirs.pop()
                raise DaemonUnreachable(f"the daemon at {path} is another user's")

        monkeypatch.setattr("nls_scheduler.client.link.check_daemon", check)
        (await server.connections.get()).close()
        assert await changes.get() is False
        await link.send("state_saved", saved_bytes=5)
        assert await changes.get() is True
        assert (await server.heard.get())["saved_bytes"] == 5
        assert theirs == []
        assert [record.message.partition(" is ")[2] for record in caplog.records] == ["another user's"]

    play(tmp_path / "s", story)


def test_facts_sent_while_the_daemon_is_away_arrive_in_order_when_it_is_back(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        changes: asyncio.Queue[bool] = asyncio.Queue()
        link.on_connection = changes.put_nowait
        (await server.connections.get()).close()
        assert await changes.get() is False
        for size in range(5):
            await link.send("state_saved", saved_bytes=size)
        assert await changes.get() is True
        assert [(await server.heard.get())["saved_bytes"] for _ in range(5)] == [0, 1, 2, 3, 4]

    play(tmp_path / "s", story)


@pytest.mark.parametrize("takes", [REPORTS, ""])
def test_a_report_says_where_the_process_is_and_what_it_is_doing_to_a_daemon_that_takes_that(
    takes: str, tmp_path: Path
) -> None:
    start = json.dumps({"command": "start_process", "command_id": 7, "reason": "r", "cause": None, "gpus": ["GPU-1"]})
    report = [Report(), Report((5, 6), ready=True)]

    async def run() -> None:
        server = Server(tmp_path / "s")
        server.takes = takes
        server.start()
        try:
            async with asyncio.timeout(20), SupervisorLink(server.path, "w", lambda: report[0]) as link:
                connection = await server.connections.get()
                told = [await server.heard.get()]
                connection.write_message(start)
                await anext(link)
                connection.close()
                told.append(await server.heard.get())
                report.pop(0)
                await link.send("process_ready", command_id=7)
                await server.heard.get()
                (await server.connections.get()).close()
                told.append(await server.heard.get())
            where = [{name: one[name] for name in ("gpus", "doing") if name in one} for one in told]
            wanted = [
                {"gpus": [], "doing": ""},
                {"gpus": ["GPU-1"], "doing": "start"},
                {"gpus": ["GPU-1"], "doing": ""},
            ]
            assert where == (wanted if takes else [{}, {}, {}])
        finally:
            await server.stop()

    asyncio.run(run())


def test_a_cell_that_began_and_ended_while_the_daemon_was_away_is_in_the_report(tmp_path: Path) -> None:
    """Told after the report, its begin would bring back what its user has had suspended meanwhile."""

    async def run() -> None:
        server = Server(tmp_path / "s")
        server.start()
        try:
            async with asyncio.timeout(20), SupervisorLink(server.path, "w", Report) as link:
                assert (await server.heard.get())["event"] == "reported"
                changes: asyncio.Queue[bool] = asyncio.Queue()
                link.on_connection = changes.put_nowait
                (await server.connections.get()).close()
                assert await changes.get() is False
                for event in ("cell_started", "cell_finished"):
                    await link.send(event)
                await link.send("state_saved", saved_bytes=1)
                told = [(await server.heard.get())["event"] for _ in range(2)]
                assert told == ["reported", "state_saved"]
        finally:
            await server.stop()

    asyncio.run(run())


def test_what_is_asked_in_another_way_can_wait_for_what_was_told(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        changes: asyncio.Queue[bool] = asyncio.Queue()
        link.on_connection = changes.put_nowait
        await link.all_sent()
        (await server.connections.get()).close()
        assert await changes.get() is False
        await link.send("cell_started")
        waiting = asyncio.create_task(link.all_sent())
        await asyncio.sleep(0)
        assert not waiting.done()
        await waiting
        assert link.connected
        assert (await server.heard.get())["event"] == "cell_started"

    play(tmp_path / "s", story)


def test_a_cells_begin_and_end_go_together_and_nothing_overtakes_them(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        await link.send("cell_started")
        await link.send("cell_finished")
        await link.send("state_saved", saved_bytes=1)
        assert [(await server.heard.get())["event"] for _ in range(3)] == [
            *("cell_started", "cell_finished", "state_saved")
        ]
        await link.send("cell_started")
        assert (await server.heard.get())["event"] == "cell_started"  # by itself, a moment later

    play(tmp_path / "s", story)


def test_cells_that_follow_each_other_at_once_are_one_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        for _ in range(3):
            await link.send("cell_started")
            await link.send("cell_finished")
            await link.send("state_saved", saved_bytes=1)
        assert server.heard.empty()
        link.hurry()
        told = [(await server.heard.get())["event"] for _ in range(5)]
        assert told == ["cell_started", *["state_saved"] * 2, "cell_finished", "state_saved"]

    play(tmp_path / "s", story)


def test_a_death_behind_cells_that_were_one_to_the_daemon_comes_after_the_end_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaths count in a row unless a cell has ended between them."""
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        for event in ("cell_started", "cell_finished", "cell_started"):
            await link.send(event)
        await link.send("process_exited", reason="it ended")
        await link.send("cell_finished")
        await link.send("process_exited", reason="it ended while no cell ran")
        link.hurry()
        told = [(await server.heard.get())["event"] for _ in range(6)]
        once = ["cell_started", "cell_finished", "cell_started", "process_exited", "cell_finished", "process_exited"]
        assert told == once

    play(tmp_path / "s", story)


def test_a_death_counts_from_the_cell_that_ended_before_it_however_often_the_next_one_was_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that finds its process gone is told of again, and the news of that end comes behind it."""
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        for event in ("cell_started", "cell_finished", "cell_started", "cell_started"):
            await link.send(event)
        await link.send("process_exited", reason="it ended")
        told = [(await server.heard.get())["event"] for _ in range(5)]
        assert told[-3:] == ["cell_finished", "cell_started", "process_exited"]

    play(tmp_path / "s", story)


def test_what_happens_between_two_cells_is_told_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        await link.send("cell_finished")
        await link.send("process_exited", reason="suspended")
        await link.send("cell_started")
        link.hurry()
        told = [(await server.heard.get())["event"] for _ in range(3)]
        assert told == ["cell_finished", "process_exited", "cell_started"]

    play(tmp_path / "s", story)


async def shown(link: SupervisorLink, server: Server, view: str) -> None:
    peer = await server.connections.get()
    server.connections.put_nowait(peer)
    await peer.write_message(view)
    assert isinstance(await anext(link), ViewMessage)


def test_of_a_short_cell_on_its_gpu_only_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        await shown(link, server, RUNNING)
        for event in ("cell_started", "cell_finished"):
            await link.send(event)
        link.hurry()
        assert (await server.heard.get())["event"] == "cell_finished"
        await link.send("cell_started")
        link.hurry()
        assert (await server.heard.get())["event"] == "cell_started"

    play(tmp_path / "s", story)


def test_of_a_cell_that_follows_a_short_one_at_once_the_begin_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a long one; and of those behind it nothing more is told than that they go on."""
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        await shown(link, server, RUNNING)
        for event in ("cell_started", "cell_finished", "cell_started"):
            await link.send(event)
        for _ in range(3):
            for event in ("cell_finished", "cell_started"):
                await link.send(event)
        await link.all_sent()
        await link.send("cell_finished")
        await link.all_sent()
        await link.send("memory_wanted", number=1, gpu="GPU-1", bytes=1, held_bytes=0)
        told = [(await server.heard.get())["event"] for _ in range(3)]
        assert told == ["cell_started", "cell_finished", "memory_wanted"]

    play(tmp_path / "s", story)


def test_a_cell_after_one_that_wanted_memory_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its begin is what ends the wish."""
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        await shown(link, server, RUNNING)
        await link.send("cell_started")
        await link.send("memory_wanted", number=1, gpu="GPU-1", bytes=1, held_bytes=0)
        await link.send("cell_finished")
        await link.all_sent()
        for _ in range(2):
            for event in ("cell_started", "cell_finished"):
                await link.send(event)
            await link.all_sent()
        told = [(await server.heard.get())["event"] for _ in range(6)]
        whole = ["cell_started", "cell_finished"]
        assert told == ["cell_started", "memory_wanted", "cell_finished", *whole, "cell_finished"]

    play(tmp_path / "s", story)


def test_who_waits_for_the_end_of_a_cell_hears_of_one_that_has_just_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        await link.send("cell_finished")
        await shown(link, server, YIELDS)
        assert (await server.heard.get())["event"] == "cell_finished"
        await link.send("cell_finished")
        assert (await server.heard.get())["event"] == "cell_finished"

    play(tmp_path / "s", story)


def test_the_end_of_a_cell_that_is_being_sent_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)
    write = WebSocketClientConnection.write_message

    async def story(server: Server, link: SupervisorLink) -> None:
        writing, may_write = asyncio.Event(), asyncio.Event()

        async def slowly(self: WebSocketClientConnection, text: str) -> None:
            writing.set()
            await may_write.wait()
            await write(self, text)

        monkeypatch.setattr(WebSocketClientConnection, "write_message", slowly)
        await link.send("cell_finished")
        link.hurry()
        await writing.wait()
        await link.send("cell_started")
        await link.send("state_saved", saved_bytes=1)
        link.hurry()
        may_write.set()
        told = [(await server.heard.get())["event"] for _ in range(3)]
        assert told == ["cell_finished", "cell_started", "state_saved"]

    play(tmp_path / "s", story)


def test_a_daemon_that_waits_for_the_end_of_a_cell_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        peer = await server.connections.get()
        await peer.write_message('{"view": {"yields": true}}')
        assert isinstance(await anext(link), ViewMessage)
        for event in ("cell_started", "cell_finished", "cell_started"):
            await link.send(event)
        link.hurry()
        told = [(await server.heard.get())["event"] for _ in range(3)]
        assert told == ["cell_started", "cell_finished", "cell_started"]

    play(tmp_path / "s", story)


def test_what_waits_for_a_cell_is_told_when_somebody_is_in_a_hurry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GO_FIRST_S", FOR_LONG)

    async def story(server: Server, link: SupervisorLink) -> None:
        await link.send("cell_started")
        link.hurry()
        assert (await server.heard.get())["event"] == "cell_started"
        await link.send("cell_finished")
        await link.all_sent()
        assert (await server.heard.get())["event"] == "cell_finished"

    play(tmp_path / "s", story)


@pytest.mark.parametrize("before_it", [[], [ORDER.replace("7", "5")]], ids=["alone", "after one from before"])
def test_a_repeated_order_is_given_out_once_and_its_answers_are_sent_again(
    tmp_path: Path, before_it: list[str]
) -> None:
    """One from before is of a journal that has lost its end: it is not given out, and changes nothing."""

    async def story(server: Server, link: SupervisorLink) -> None:
        peer = await server.connections.get()
        await peer.write_message(ORDER)
        assert isinstance(await anext(link), CommandMessage)
        await link.send("process_suspended", command_id=7, saved_bytes=1)
        assert (await server.heard.get())["event"] == "process_suspended"
        peer.close()
        again = await server.connections.get()
        for order in (*before_it, ORDER):
            await again.write_message(order)
        assert (await server.heard.get())["event"] == "process_suspended"
        await again.write_message('{"view": {"phase": "suspended"}}')
        assert isinstance(await anext(link), ViewMessage)

    play(tmp_path / "s", story)


def test_the_end_of_the_workload_ends_the_iteration_for_good(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        (await server.connections.get()).close(CLOSE_ENDED, "ended")
        for _ in range(2):
            with pytest.raises(StopAsyncIteration):
                await anext(link)
        assert not link.connected
        assert link.ended_because == "ended"

    play(tmp_path / "s", story)


def test_an_unreadable_message_is_told_and_the_link_goes_on(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        peer = await server.connections.get()
        for nonsense in ("{", "{}", "[]", '{"command": "x", "command_id": "y", "reason": "", "cause": null}'):
            await peer.write_message(nonsense)
            message = await anext(link)
            assert isinstance(message, ErrorMessage)
            assert message.problem.fault == "server"
        await peer.write_message(ORDER)
        assert isinstance(await anext(link), CommandMessage)

    play(tmp_path / "s", story)


def test_a_malformed_fact_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        with pytest.raises(Problem, match="needs 'pid'"):
            await link.send("process_started", command_id=1, start_time=3)
        await link.send("cell_started")
        assert (await server.heard.get()) == {"event": "cell_started"}

    play(tmp_path / "s", story)


def test_closing_waits_a_moment_for_what_is_still_to_be_sent(tmp_path: Path) -> None:
    async def story(server: Server, link: SupervisorLink) -> None:
        for size in range(50):
            await link.send("state_saved", saved_bytes=size)
        await link.close()
        assert [(await server.heard.get())["saved_bytes"] for _ in range(50)] == list(range(50))

    play(tmp_path / "s", story)


def test_a_first_connection_is_tried_again_where_the_daemon_says_when(tmp_path: Path) -> None:
    async def run() -> None:
        server = Server(tmp_path / "s")
        server.start()
        server.refusals = [(429, "0"), (503, "0")]
        async with asyncio.timeout(20), SupervisorLink(tmp_path / "s", "w"):
            await server.connections.get()
        assert not server.refusals
        server.refusals = [(429, None), (429, "10000")]
        for _ in range(2):
            with pytest.raises(Problem, match="64 connections open"):
                async with SupervisorLink(tmp_path / "s", "w"):
                    pass
        await server.stop()

    asyncio.run(run())


def test_a_daemon_that_is_not_there_and_a_workload_that_it_does_not_know_are_told_apart(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(DaemonUnreachable, match="does not answer"):
            async with SupervisorLink(tmp_path / "none", "w"):
                pass
        server = Server(tmp_path / "s")
        server.start()
        with pytest.raises(Problem) as caught:
            async with SupervisorLink(tmp_path / "s", "unknown"):
                pass
        assert caught.value.status == 404
        await server.stop()

    asyncio.run(run())
