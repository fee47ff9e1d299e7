"""Supervisors of notebooks against the real daemon: orders, answers, deaths and lost connections."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.processes.guardian import read_stat
from nls_scheduler.wire.errors import DaemonUnreachable, Problem
from nls_scheduler.wire.protocol import CommandMessage, DaemonMessage, ErrorMessage, ViewMessage
from waiting import eventually, has_ended, wait_until

if TYPE_CHECKING:
    from daemon_process import DaemonProcess
    from nls_scheduler.client.link import SupervisorLink


T = TypeVar("T", CommandMessage, ViewMessage, ErrorMessage)


class Inbox:
    """A link's messages by kind, none lost while another kind is waited for."""

    def __init__(self, link: SupervisorLink) -> None:
        self.link = link
        self._kept: list[DaemonMessage] = []

    async def next(self, kind: type[T]) -> T:
        for message in self._kept:
            if isinstance(message, kind):
                self._kept.remove(message)
                return message
        async with asyncio.timeout(15):
            async for message in self.link:
                if isinstance(message, kind):
                    return message
                self._kept.append(message)
        raise AssertionError("the link ended")

    async def view(self, **fields: object) -> dict[str, Any]:
        """The next view with these fields."""
        while True:
            view = dict((await self.next(ViewMessage)).view)
            if all(view[name] == value for name, value in fields.items()):
                return view

    async def end(self) -> None:
        """Until the link ends; raises what it ends with."""
        async with asyncio.timeout(15):
            async for _ in self.link:
                pass


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def start_time_of(pid: int) -> int:
    stat = read_stat(pid)
    assert stat is not None
    return stat[1]


def test_who_is_given_an_order_knows_its_workload(daemon: DaemonProcess) -> None:
    """Or it could not bring that back to a daemon which is killed and loses its journal right behind the order."""

    async def story() -> None:
        client = await DaemonClient.connect(daemon.socket)
        view = await client.submit(kind="notebook")
        async with client.supervise(view["id"]) as link, asyncio.timeout(15):
            assert isinstance(await anext(link), ViewMessage)
            while not isinstance(await anext(link), CommandMessage):
                pass
        await client.release(view["id"])

    asyncio.run(story())


def test_a_process_that_nobody_has_named_is_not_ready(daemon: DaemonProcess) -> None:
    """Its memory would be nobody's. The daemon's end shows that no sentence was broken."""

    async def story() -> None:
        client = await DaemonClient.connect(daemon.socket)
        view = await client.submit(kind="notebook")
        async with client.supervise(view["id"]) as link:
            inbox = Inbox(link)
            order = await inbox.next(CommandMessage)
            await link.send("process_ready", command_id=order.command_id)
            told = (await inbox.next(ErrorMessage)).problem
            assert (told.status, told.title) == (409, "No such process")
            (entry,) = (await client.status())["workloads"]
            assert (entry["phase"], entry["pid"]) == ("starting", None)
            await client.release(view["id"])

    asyncio.run(story())


def test_a_notebooks_supervisor_is_told_what_to_do_and_its_answers_are_believed(daemon: DaemonProcess) -> None:
    asyncio.run(_supervise(daemon))


async def _supervise(daemon: DaemonProcess) -> None:
    client = await DaemonClient.connect(daemon.socket)
    view = await client.submit(kind="notebook")
    assert view["name"] == "notebook-1"
    assert (view["request_bytes"], view["limit_bytes"]) == (8 * 2**30, 16 * 2**30)
    async with client.supervise(view["id"]) as link:
        inbox = Inbox(link)
        await inbox.view(phase="starting")
        order = await inbox.next(CommandMessage)
        assert order.command == "start_process"
        assert order.environment["CUDA_VISIBLE_DEVICES"] == order.gpus[0]
        assert order.environment["NLS_WORKLOAD"] == view["id"]
        with sleeper() as process:
            try:
                facts = {"pid": process.pid, "start_time": start_time_of(process.pid)}
                await link.send("process_started", command_id=order.command_id, **facts)
                await link.send("process_ready", command_id=order.command_id)
                await inbox.view(phase="running", pid=process.pid, executing=False)
                await link.send("cell_started")
                await _until(client, view["id"], executing=True)
                await link.send("cell_finished")
                await _until(client, view["id"], executing=False)
                await link.send("state_saved", saved_bytes=54321)
                await link.send("state_saved", saved_bytes=12345)
                await inbox.view(saved_bytes=12345)  # figures come once a second, the last ones too
                await client.suspend(view["id"])
                order = await inbox.next(CommandMessage)
                assert (order.command, order.reason) == ("suspend_process", "suspended by its user")
                process.kill()
                process.wait()
                await link.send("process_suspended", command_id=order.command_id, saved_bytes=12345)
            finally:
                process.kill()
        await _until(client, view["id"], phase="suspended", saved_bytes=12345, current=[])
        await client.release(view["id"])
        await inbox.end()
    history = [entry["event"] for entry in await client.history()]
    assert history == ["started", "suspended", "released"]


async def _until(client: DaemonClient, workload_id: str, **wanted: object) -> None:
    async def is_so() -> bool:
        entry = next(w for w in (await client.status())["workloads"] if w["id"] == workload_id)
        return all(entry[name] == value for name, value in wanted.items())

    await eventually(is_so)


def test_a_malformed_message_of_a_supervisor_is_answered_and_the_connection_goes_on(daemon: DaemonProcess) -> None:
    asyncio.run(_misbehave(daemon))


async def _misbehave(daemon: DaemonProcess) -> None:
    client = await DaemonClient.connect(daemon.socket)
    view = await client.submit(kind="notebook")
    async with client.supervise(view["id"]) as link:
        inbox = Inbox(link)
        for nonsense in (
            "{", "[]", "null", '{"event": "party"}', '{"event": 3}', '{"event": "process_ready"}',
            '{"event": "process_ready", "command_id": -1}', '{"event": "process_ready", "command_id": true}',
            '{"event": "cell_started", "x": 1}', "\ud83d", '{"event": "state_saved", "saved_bytes": 1e400}',
        ):  # fmt: skip
            assert link._connection is not None
            await link._connection.write_message(nonsense.encode("utf-8", "replace").decode())
            answer = await inbox.next(ErrorMessage)
            assert (answer.problem.status, answer.problem.fault) == (400, "client")
        # Answers to orders that were never given are stale facts, not mistakes.
        await link.send("process_suspended", command_id=99, saved_bytes=1)
        with pytest.raises(Problem, match="not an event"):
            await link.send("party")
        assert link.connected
        await client.release(view["id"])
        while (await inbox.next(CommandMessage)).command != "stop_process":
            pass
        await link.send("process_exited", reason="it was not running")
        await inbox.end()


SUPERVISOR = """
import asyncio, os, subprocess, sys
from pathlib import Path
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.processes.guardian import read_stat
from nls_scheduler.wire.protocol import CommandMessage

async def main():
    client = await DaemonClient.connect(Path(sys.argv[1]))
    view = await client.submit(kind="notebook", name="victim")
    async with client.supervise(view["id"]) as link:
        async for message in link:
            if isinstance(message, CommandMessage) and message.command == "start_process":
                environment = {**os.environ, **message.environment}
                process = subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & echo $!; wait"],
                                           env=environment, stdout=subprocess.PIPE)
                child = int(process.stdout.readline())
                stray = subprocess.Popen(["setsid", "sleep", "600"], env=environment)
                await link.send("process_started", command_id=message.command_id, pid=process.pid,
                                start_time=read_stat(process.pid)[1])
                await link.send("process_ready", command_id=message.command_id)
                print(process.pid, child, stray.pid, flush=True)

asyncio.run(main())
"""


def test_a_supervisor_killed_by_force_ends_its_workload_and_all_its_processes(daemon: DaemonProcess) -> None:
    command = [sys.executable, "-c", SUPERVISOR, str(daemon.socket)]
    with (
        subprocess.Popen(command, env=daemon.environment, stdout=subprocess.PIPE, text=True) as supervisor,
        subprocess.Popen(["sleep", "600"]) as bystander,
    ):
        try:
            assert supervisor.stdout is not None
            pids = [int(word) for word in supervisor.stdout.readline().split()]
            daemon.wait_for("victim", phase="running")
            supervisor.kill()
            wait_until(lambda: daemon.workload("victim") is None)
            assert [pid for pid in pids if not has_ended(pid)] == []
            assert bystander.poll() is None
        finally:
            supervisor.kill()
            bystander.kill()
    entry = daemon.request("GET", "/v1/history")[1]["entries"][-1]
    assert (entry["event"], entry["reason"]) == ("released", "the process that looked after it has ended")


def test_a_closed_connection_of_a_living_process_ends_nothing_and_orders_wait_for_it(daemon: DaemonProcess) -> None:
    asyncio.run(_reconnect(daemon))


async def _reconnect(daemon: DaemonProcess) -> None:
    client = await DaemonClient.connect(daemon.socket)
    view = await client.submit(kind="notebook", name="patient")
    async with client.supervise(view["id"]) as link:
        order = await Inbox(link).next(CommandMessage)
    assert (await client.status())["workloads"][0]["phase"] == "starting"
    async with client.supervise(view["id"]) as link:
        again = await Inbox(link).next(CommandMessage)
        assert again == order
        await link.send("start_failed", command_id=again.command_id, reason="no")
        async with client.supervise(view["id"]) as newer:
            await Inbox(newer).view()
            with pytest.raises(Problem, match="taken over"):
                await Inbox(link).end()


def test_a_supervisor_learns_that_a_daemon_without_its_journal_has_forgotten_it(daemon: DaemonProcess) -> None:
    asyncio.run(_forgotten(daemon))


async def _forgotten(daemon: DaemonProcess) -> None:
    client = await DaemonClient.connect(daemon.socket)
    view = await client.submit(kind="notebook")
    heard: list[bool] = []
    async with client.supervise(view["id"]) as link:
        link.on_connection = heard.append
        await asyncio.to_thread(daemon.kill)

        async def lost() -> bool:
            return not link.connected

        await eventually(lost)
        with pytest.raises(DaemonUnreachable, match="nls up"):
            await client.status()
        for file in (daemon.directory / "state").glob("journal.db*"):
            file.unlink()
        await asyncio.to_thread(daemon.start)
        with pytest.raises(Problem, match="There is no workload"):
            await Inbox(link).end()
    assert heard == [False]


@pytest.mark.parametrize("only", [True, False])
def test_a_workload_that_its_process_does_not_know_ends_when_that_looks_after_its_only_one(
    daemon: DaemonProcess, *, only: bool
) -> None:
    async def story() -> None:
        client = await DaemonClient.connect(daemon.socket)
        # As when the daemon died between its record and its answer.
        ghost = await client.submit(kind="notebook", name="ghost", request="1GiB")
        watched = await client.submit(kind="notebook", name="watched", request="1GiB")
        async with client.supervise(watched["id"]) as beside:
            known = await client.submit(kind="notebook", name="known", request="1GiB")
            async with client.supervise(known["id"], only=only) as link:
                await Inbox(link).next(ViewMessage)
                names = {workload["name"] for workload in (await client.status())["workloads"]}
                assert names == ({"watched", "known"} if only else {"ghost", "watched", "known"})
            assert beside.connected
        assert ghost["id"] != known["id"]

    asyncio.run(story())
