"""A second user on the system daemon's terms: looks, submits, and may do nothing to others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import DaemonProcess, parsed
from integration.test_daemon_supervisors import Inbox, sleeper, start_time_of
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.processes.proc import look_up
from nls_scheduler.wire.protocol import CommandMessage
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

NOBODY = 65534
STAFF = 4711
# Python itself may lie where only root may read, so that a process becomes another user after its start.
BECOME = """
import json, os, socket, sys
from pathlib import Path
uid, *groups = json.loads(sys.argv[2])
sys.path[:0] = json.loads(sys.argv[3])
from nls_scheduler.wire import locate
from nls_scheduler.wire.errors import DaemonUnreachable
os.setgroups(groups); os.setgid(uid); os.setuid(uid)
"""
# Sends each line of its input as a request on a connection of its own, and prints the whole answers.
SPEAKER = """
for line in sys.stdin:
    head, body = json.loads(line)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(sys.argv[1])
    s.sendall(head.encode() + body.encode())
    print(json.dumps(s.makefile("rb").read().decode()), flush=True)
    s.close()
"""


def start(code: str, daemon: DaemonProcess, uid: int, groups: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    """`code` as another user, with the modules of BECOME and the socket as its first argument."""
    arguments = [str(daemon.socket), json.dumps([uid, *groups]), json.dumps(sys.path)]
    return subprocess.Popen(
        [sys.executable, "-c", BECOME + code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


class User:
    """A process of another user that stays, so that what it submits stays too."""

    def __init__(self, daemon: DaemonProcess, uid: int = NOBODY, groups: tuple[int, ...] = ()) -> None:
        self.process = start(SPEAKER, daemon, uid, groups)

    def ask(self, method: str, path: str, body: Any = None, *headers: str) -> tuple[int, Any]:
        text = "" if body is None else json.dumps(body)
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: nls",
            "Connection: close",
            f"Content-Length: {len(text)}",
            *headers,
        ]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(["\r\n".join([*lines, "", ""]), text]) + "\n")
        self.process.stdin.flush()
        return parsed(method, path, json.loads(self.process.stdout.readline()).encode())

    def close(self) -> None:
        self.process.communicate(timeout=20)


@contextlib.contextmanager
def shared(directory: Path, *settings: str) -> Iterator[DaemonProcess]:
    """A daemon whose socket everybody reaches."""
    arguments = [word for setting in settings for word in ("--set", setting)]
    with DaemonProcess(directory, "2x16GiB", *arguments) as daemon:
        for parent in (directory, *directory.parents):
            if parent != Path("/") and parent.stat().st_uid == 0:
                parent.chmod(parent.stat().st_mode | 0o011)
        daemon.socket.chmod(0o666)
        yield daemon


@contextlib.contextmanager
def user(daemon: DaemonProcess, uid: int = NOBODY, groups: tuple[int, ...] = ()) -> Iterator[User]:
    speaker = User(daemon, uid, groups)
    try:
        yield speaker
    finally:
        speaker.close()


def submit_as_root(daemon: DaemonProcess, name: str) -> str:
    code, view = daemon.request("POST", "/v1/workloads", json.dumps({"kind": "notebook", "name": name}).encode())
    assert code == 201
    return str(view["id"])


def touches(workload: str) -> list[tuple[str, str, Any]]:
    path = f"/v1/workloads/{workload}"
    return [
        ("PATCH", path, {"priority": 5}),
        ("DELETE", path, None),
        ("POST", f"{path}/suspend", None),
        ("POST", f"{path}/resume", None),
        ("GET", f"{path}/supervisor", None),
    ]


def test_another_user_is_refused_everywhere_it_should_be_and_reads_no_names(tmp_path: Path) -> None:
    with shared(tmp_path, "show_names=admins") as daemon, user(daemon) as stranger:
        secret = submit_as_root(daemon, "diagnosis-42")
        for method, path, body in touches(secret):
            code, problem = stranger.ask(method, path, body)
            assert (code, problem["title"]) == (403, "Not your workload"), (method, path)
            assert "diagnosis-42" not in str(problem)
        code, problem = stranger.ask("POST", "/v1/gpus/0/return")
        assert (code, problem["title"]) == (403, "Not an administrator")
        code, mine = stranger.ask("POST", "/v1/workloads", {"kind": "notebook", "name": "mine", "request": 1.0})
        assert (code, mine["owner"], mine["name"]) == (201, NOBODY, "mine")
        for path in ("/v1/status", "/v1/history", "/metrics", "/readyz"):
            code, seen = stranger.ask("GET", path)
            assert code == 200
            assert "diagnosis-42" not in str(seen), path
        names = {entry["name"] for entry in stranger.ask("GET", "/v1/status")[1]["workloads"]}
        assert names == {"mine", "another user's notebook"}
        # Its own it may do everything with; root may do it with all.
        assert stranger.ask("PATCH", f"/v1/workloads/{mine['id']}", {"priority": 3})[0] == 200
        assert stranger.ask("POST", f"/v1/workloads/{mine['id']}/suspend")[0] == 202
        assert {entry["name"] for entry in daemon.status()["workloads"]} == {"mine", "diagnosis-42"}
        assert daemon.request("DELETE", f"/v1/workloads/{mine['id']}")[0] == 202


def test_nobody_brings_back_the_process_of_another_user(tmp_path: Path) -> None:
    with shared(tmp_path) as daemon, user(daemon) as stranger:
        mine = look_up(os.getpid())
        said = {"kind": "notebook", "request": "0.5", "command_id": 1, "executing": False}
        said |= {"pid": mine.id.pid, "start_time": mine.id.start_time}
        said["current"] = [daemon.status()["gpus"][0]["uuid"]]
        said["secret"] = daemon.secret("0123456789ab", NOBODY)
        status, problem = stranger.ask("PUT", "/v1/workloads/0123456789ab", said)
        assert (status, problem["title"]) == (403, "Not your process")


def test_what_is_told_of_a_wait_names_no_other_user(tmp_path: Path) -> None:
    with shared(tmp_path, "show_names=own") as daemon, user(daemon) as stranger:
        for number in range(2):
            body = {"kind": "command", "name": f"diagnosis-{number}"}
            assert daemon.request("POST", "/v1/workloads", json.dumps(body).encode())[0] == 201
        code, mine = stranger.ask("POST", "/v1/workloads", {"kind": "command", "name": "mine"})
        assert code == 201
        assert "diagnosis" not in json.dumps(mine)
        assert mine["reason"]
        # Nobody reads others' names, root included.
        seen = {entry["name"] for entry in daemon.status()["workloads"]}
        assert seen == {"diagnosis-0", "diagnosis-1", "another user's command"}


def test_the_name_of_another_users_gang_is_in_nothing_that_the_daemon_tells(tmp_path: Path) -> None:
    with shared(tmp_path, "show_names=own") as daemon, user(daemon) as stranger:
        body = {"kind": "command", "name": "theirs", "gang": "layoffs", "gang_size": 2}
        code, theirs = stranger.ask("POST", "/v1/workloads", body)
        assert (code, theirs["gang"]) == (201, "layoffs")
        own = stranger.ask("GET", f"/v1/workloads/{theirs['id']}/explanation")[1]
        assert "members of gang layoffs" in json.dumps(own)
        for path in ("status", "history", f"workloads/{theirs['id']}", f"workloads/{theirs['id']}/explanation"):
            assert "layoffs" not in json.dumps(daemon.request("GET", f"/v1/{path}")[1])
        assert [entry["gang"] for entry in daemon.status()["workloads"]] == ["another user's gang"]


def test_names_of_others_stay_hidden_after_they_have_ended_and_the_daemon_as_well(tmp_path: Path) -> None:
    with shared(tmp_path, "show_names=own") as daemon:
        with user(daemon) as stranger:
            for number in range(2):
                body = {"kind": "command", "name": f"diagnosis-{number}", "request": 1.0}
                assert stranger.ask("POST", "/v1/workloads", body)[0] == 201
            body = {"kind": "command", "name": "mine", "request": 1.0}
            assert daemon.request("POST", "/v1/workloads", json.dumps(body).encode())[0] == 201
            theirs = "another user's command"
            held = f"no room for 16 GiB on one GPU: GPU 0 is held by {theirs}; GPU 1 is held by {theirs}"
            assert daemon.workload("mine")["reason"] == held
        wait_until(lambda: [entry["name"] for entry in daemon.status()["workloads"]] == ["mine"])
        before = daemon.request("GET", "/v1/history")[1]["entries"]
        daemon.kill()
        daemon.start()
        after = daemon.request("GET", "/v1/history")[1]["entries"]
    assert after[: len(before)] == before
    assert held in [entry["reason"] for entry in after if entry["name"] == "mine"]
    assert "diagnosis" not in json.dumps(after)


@pytest.mark.parametrize("name", ["is", "GPU", "a"])
def test_what_another_user_calls_its_workload_is_in_no_sentence_and_changes_none(tmp_path: Path, name: str) -> None:
    with shared(tmp_path, "show_names=own") as daemon, user(daemon) as stranger, sleeper() as process:
        try:
            told = asyncio.run(_what_root_reads_beside(name, daemon, stranger, process.pid))
        finally:
            process.kill()
    theirs = "another user's command"
    assert told == {
        "order": f"{theirs} needs GPU 1",
        "cause of the order": theirs,
        "view": f"{theirs} needs GPU 1",
        "answer": f"no room for 16 GiB on one GPU: GPU 0 is held by first and second; GPU 1 is held by {theirs}",
        "status": told["answer"],
        "history": told["answer"],
        "explanation": told["answer"],
        "last step": f"So: {told['answer']}.",
    }


async def _what_root_reads_beside(name: str, daemon: DaemonProcess, stranger: User, pid: int) -> dict[str, str]:
    client = await DaemonClient.connect(daemon.socket)
    await client.submit(kind="notebook", name="first")
    second = await client.submit(kind="notebook", name="second")
    async with client.supervise(second["id"]) as link:
        inbox = Inbox(link)
        start = await inbox.next(CommandMessage)
        facts = {"pid": pid, "start_time": start_time_of(pid)}
        await link.send("process_started", command_id=start.command_id, **facts)
        await link.send("process_ready", command_id=start.command_id)
        await inbox.view(phase="running")
        request = {"kind": "command", "name": name, "request": 1.0}
        assert (await asyncio.to_thread(stranger.ask, "POST", "/v1/workloads", request))[0] == 201
        order = await inbox.next(CommandMessage)
        assert (order.command, order.cause is not None) == ("suspend_process", True)
        view = await inbox.view(phase="suspending")
    answer = await client.submit(kind="command", name="third", request=1.0)
    explained = await client.explain(answer["id"])
    third = next(entry for entry in (await client.status())["workloads"] if entry["name"] == "third")
    queued = next(entry for entry in await client.history() if (entry["name"], entry["event"]) == ("third", "queued"))
    return {
        "order": order.reason,
        "cause of the order": "" if order.cause is None else order.cause.name,
        "view": view["reason"],
        "answer": answer["reason"],
        "status": third["reason"],
        "history": queued["reason"],
        "explanation": explained["reason"],
        "last step": explained["steps"][-1],
    }


def test_members_of_the_configured_group_are_administrators(tmp_path: Path) -> None:
    settings = ("show_names=admins", f"admin_group={STAFF}")
    with shared(tmp_path, *settings) as daemon, user(daemon, NOBODY, (STAFF,)) as admin, user(daemon, 65533) as other:
        secret = submit_as_root(daemon, "diagnosis-42")
        assert "diagnosis-42" in str(admin.ask("GET", "/v1/status"))
        assert "diagnosis-42" not in str(other.ask("GET", "/v1/status"))
        assert admin.ask("POST", "/v1/gpus/0/return")[0] == 200
        assert other.ask("POST", "/v1/gpus/0/return")[0] == 403
        assert admin.ask("POST", f"/v1/workloads/{secret}/suspend")[0] == 202
        assert other.ask("DELETE", f"/v1/workloads/{secret}")[0] == 403
        # To look after a workload is its user's own business.
        assert admin.ask("GET", f"/v1/workloads/{secret}/supervisor")[0] == 403
        assert admin.ask("DELETE", f"/v1/workloads/{secret}")[0] == 202


def test_one_user_cannot_use_up_all_connections(tmp_path: Path) -> None:
    with shared(tmp_path, "max_connections=20") as daemon, user(daemon) as stranger:
        code = (
            "many = [socket.socket(socket.AF_UNIX) for _ in range(20)]\n"
            "for s in many: s.settimeout(20); s.connect(sys.argv[1])\n"
            "for s in many: s.sendall(b'GET /v1/events HTTP/1.1\\r\\nHost: n\\r\\n\\r\\n')\n"
            "print(sum(b'429' in s.recv(64) for s in many), flush=True)\n"
            "sys.stdin.read()\n"
            "for s in many: s.close()\n"
        )
        greedy = start(code, daemon, 65533)
        assert greedy.stdout is not None
        assert int(greedy.stdout.readline()) == 10
        assert daemon.request("GET", "/v1/status")[0] == 200
        assert stranger.ask("GET", "/v1/status")[0] == 200
        greedy.communicate(timeout=20)


def test_without_the_right_to_connect_a_client_is_told_whom_to_ask(tmp_path: Path) -> None:
    with shared(tmp_path) as daemon:
        daemon.socket.chmod(0o600)
        code = "try: locate.find(Path(sys.argv[1]))\nexcept DaemonUnreachable as error: print(error)\n"
        said, _ = start(code, daemon, NOBODY).communicate(timeout=20)
        assert "ask its administrator" in said
