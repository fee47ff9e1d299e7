"""One user's runaway script and another's notebook on the daemon that both share."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from integration.test_daemon_supervisors import sleeper, start_time_of
from integration.test_who_asks import NOBODY, shared, start, user
from left_out import thinned
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from daemon_process import DaemonProcess

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOTEBOOK = {"kind": "notebook", "request": 0.1}


def submit(daemon: DaemonProcess, **fields: Any) -> tuple[int, Any]:
    return daemon.request("POST", "/v1/workloads", json.dumps({**NOTEBOOK, **fields}).encode())


@ROOT_ONLY
def test_one_user_has_so_many_workloads_and_another_user_too(tmp_path: Path) -> None:
    with shared(tmp_path, "max_workloads_per_user=2") as daemon, user(daemon) as greedy:
        for _ in range(2):
            assert greedy.ask("POST", "/v1/workloads", NOTEBOOK)[0] == 201
        code, problem = greedy.ask("POST", "/v1/workloads", NOTEBOOK)
        assert (code, problem["title"]) == (429, "Too many workloads")
        assert "You have 2 workloads on this node" in problem["detail"]
        for _ in range(2):
            assert submit(daemon)[0] == 201
        # An administrator's script runs away like anybody's; what an administrator changes is the number.
        assert submit(daemon)[0] == 429
        run = daemon.nls("run", "--request", "0.1", "--", "true")
        assert (run.returncode, "release some of them first" in run.stderr) == (3, True)


@ROOT_ONLY
def test_who_submits_without_end_is_told_to_wait_and_nobody_else_is(tmp_path: Path) -> None:
    numbers = ("max_submissions_at_once=3", "max_submissions_per_s=0.01")
    with shared(tmp_path, *numbers) as daemon, user(daemon) as greedy:
        answers = [greedy.ask("POST", "/v1/workloads", NOTEBOOK) for _ in range(5)]
        assert [code for code, _ in answers] == [201, 201, 201, 429, 429]
        assert answers[-1][1]["title"] == "Too many submissions"
        assert "try again in" in answers[-1][1]["detail"]
        # What is refused for a reason of its own is told that reason, and takes no turn.
        assert submit(daemon, request=9.0)[0] == 400
        assert [submit(daemon)[0] for _ in range(3)] == [201, 201, 201]


def test_the_answer_says_when_to_try_again(tmp_path: Path) -> None:
    async def submit_twice(daemon: DaemonProcess) -> Problem:
        client = await DaemonClient.connect(daemon.socket)
        await client.submit(**NOTEBOOK)
        with pytest.raises(Problem) as caught:
            await client.submit(**NOTEBOOK)
        return caught.value

    with shared(tmp_path, "max_submissions_at_once=1", "max_submissions_per_s=0.001") as daemon:
        refusal = asyncio.run(submit_twice(daemon))
    assert (refusal.status, refusal.title) == (429, "Too many submissions")
    assert 900 < (refusal.retry_after_s or 0) <= 1000


@pytest.mark.long("scripts that run away")
def test_commands_that_come_together_wait_for_their_turn_and_none_fails(tmp_path: Path) -> None:
    with shared(tmp_path, "max_submissions_at_once=1", "max_submissions_per_s=1") as daemon:
        runs = [daemon.start_nls("run", "--request", "0.1", "--", "true") for _ in range(3)]
        assert [run.wait(30) for run in runs] == [0, 0, 0]


def test_what_is_brought_back_to_a_daemon_that_lost_its_journal_waits_for_no_turn(tmp_path: Path) -> None:
    """Each of these is a notebook with its variables: refused, it would be lost."""
    numbers = ("max_submissions_at_once=1", "max_submissions_per_s=0.001", "max_workloads_per_user=2")
    with shared(tmp_path, *numbers) as daemon, sleeper() as process:
        try:
            said = {"kind": "notebook", "request": "0.1", "command_id": 1, "executing": False}
            said |= {"pid": process.pid, "start_time": start_time_of(process.pid)}
            said["current"] = [daemon.status()["gpus"][0]["uuid"]]
            assert submit(daemon)[0] == 201
            codes = []
            for known in (f"0123456789a{n}" for n in range(4)):
                body = json.dumps({**said, "secret": daemon.secret(known)}).encode()
                codes.append(daemon.request("PUT", f"/v1/workloads/{known}", body)[0])
        finally:
            process.kill()
    assert codes == [201, 201, 201, 429]


@ROOT_ONLY
@pytest.mark.parametrize(
    ("setting", "refused"),
    thinned([("max_followers_per_user=3", 7), ("max_connections_per_user=4", 6)], 2, "scripts that run away"),
)
def test_one_user_follows_and_connects_so_often_and_another_user_too(
    tmp_path: Path, setting: str, refused: int
) -> None:
    code = (
        "many = [socket.socket(socket.AF_UNIX) for _ in range(10)]\n"
        "for s in many:\n"
        "    s.settimeout(20); s.connect(sys.argv[1])\n"
        "    s.sendall(b'GET /v1/events HTTP/1.1\\r\\nHost: n\\r\\nConnection: keep-alive\\r\\n\\r\\n')\n"
        "print(sum(b' 429 ' in s.recv(64) for s in many), flush=True)\n"
        "sys.stdin.read()\n"
        "for s in many: s.close()\n"
    )
    with shared(tmp_path, setting) as daemon:
        greedy, other = start(code, daemon, 65533), start(code, daemon, NOBODY)
        try:
            for process in (greedy, other):
                assert process.stdout is not None
                assert int(process.stdout.readline()) == refused
            assert daemon.request("GET", "/v1/status")[0] == 200
        finally:
            for process in (greedy, other):
                process.communicate(timeout=20)


def tell(process: subprocess.Popen[str], text: str) -> str:
    """A line to it, and its next line."""
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


MANY_AT_ONCE = """
import time
lines = [socket.socket(socket.AF_UNIX) for _ in range(int(sys.stdin.readline()))]
def ask(path, sockets):
    for s in sockets:
        s.sendall(b'GET ' + path + b' HTTP/1.1\\r\\nHost: n\\r\\nConnection: keep-alive\\r\\n\\r\\n')
for s in lines:
    s.settimeout(60)
    s.connect(sys.argv[1])
ask(b'/livez', lines)
for s in lines:
    s.recv(65536)
print('there', flush=True)
ask(sys.stdin.readline().strip().encode(), lines)
print('asked', flush=True)
times, left = [], selectors.DefaultSelector()
for s in lines:
    left.register(s, selectors.EVENT_READ)
while len(times) < len(lines):
    for key, _ in left.select(60):
        left.unregister(key.fileobj)
        times.append(time.monotonic())
print(json.dumps(times), flush=True)
sys.stdin.read()
"""


MANY_MESSAGES = """
import base64, time
def frame(text):
    return bytes([0x81, 0x80 | len(text)]) + bytes(4) + text
def head(method, path, *more):
    return '\\r\\n'.join([f'{method} {path} HTTP/1.1', 'Host: n', *more, '', '']).encode()
def connected():
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(60)
    line.connect(sys.argv[1])
    return line
body = json.dumps({'kind': 'notebook', 'request': 0.1})
lines = []
for _ in range(3):
    asking = connected()
    asking.sendall(head('POST', '/v1/workloads', 'Connection: close', f'Content-Length: {len(body)}') + body.encode())
    answer = b''.join(iter(lambda: asking.recv(65536), b''))
    workload = json.loads(answer.split(b'\\r\\n\\r\\n', 1)[1])['id']
    line = connected()
    key = 'Sec-WebSocket-Key: ' + base64.b64encode(bytes(16)).decode()
    line.sendall(head('GET', f'/v1/workloads/{workload}/supervisor', 'Upgrade: websocket', 'Connection: Upgrade', key,
                      'Sec-WebSocket-Version: 13'))
    assert b' 101 ' in line.recv(65536)
    lines.append(line)
print('there', flush=True)
sys.stdin.readline()
for line in lines:
    line.sendall((frame(b'{"event":"cell_started"}') + frame(b'{"event":"cell_finished"}')) * 100 + frame(b'nonsense'))
print('asked', flush=True)
answered = b''
while b'"status"' not in answered:
    answered += lines[0].recv(65536)
print(time.monotonic(), flush=True)
sys.stdin.read()
"""


@pytest.mark.long("scripts that run away")
@ROOT_ONLY
def test_who_tells_much_at_once_keeps_nobody_else_waiting_until_it_is_heard(tmp_path: Path) -> None:
    with shared(tmp_path) as daemon:
        greedy = start(MANY_MESSAGES, daemon, 65533)
        other = start("import selectors\n" + MANY_AT_ONCE, daemon, NOBODY)
        try:
            assert [greedy.stdout.readline().strip(), tell(other, "1")] == ["there", "there"]
            os.kill(daemon.process.pid, signal.SIGSTOP)
            try:
                assert [tell(greedy, ""), tell(other, "/v1/status")] == ["asked", "asked"]
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            (answered,), heard = (json.loads(process.stdout.readline()) for process in (other, greedy))
        finally:
            for process in (greedy, other):
                process.communicate(timeout=20)
    assert answered < heard


@ROOT_ONLY
def test_who_asks_much_at_once_keeps_nobody_else_waiting_until_it_is_answered(tmp_path: Path) -> None:
    with shared(tmp_path) as daemon:
        greedy, other = (start("import selectors\n" + MANY_AT_ONCE, daemon, uid) for uid in (65533, NOBODY))
        try:
            assert [tell(greedy, "60"), tell(other, "1")] == ["there", "there"]
            os.kill(daemon.process.pid, signal.SIGSTOP)
            try:
                assert [tell(greedy, "/v1/status"), tell(other, "/livez")] == ["asked", "asked"]
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            times, (answered,) = (json.loads(process.stdout.readline()) for process in (greedy, other))
        finally:
            for process in (greedy, other):
                process.communicate(timeout=20)
    assert sum(at < answered for at in times) < 20


def test_a_follower_that_is_refused_reads_why(tmp_path: Path) -> None:
    async def follow(daemon: DaemonProcess) -> None:
        client = DaemonClient(daemon.socket)
        with ExitStack() as stack:
            for _ in range(9):
                one = stack.enter_context(daemon.connection())
                one.sendall(b"GET /v1/events HTTP/1.1\r\nHost: n\r\n\r\n")
                assert one.recv(64)
            with pytest.raises(Problem, match="close some, or try again in a moment"):
                await anext(client.events())

    with shared(tmp_path, "max_connections=3") as daemon:
        asyncio.run(follow(daemon))
