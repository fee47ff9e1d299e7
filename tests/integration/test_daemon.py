"""The real daemon's interface: bad input, who may do what, and what a request costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import parsed
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import Problem
from waiting import wait_until

if TYPE_CHECKING:
    from daemon_process import DaemonProcess


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[1]", 400, "Send one JSON object"),
        (b"\xff\xfe", 400, "not valid JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        (b'{"kind": "notebook", "kind": "command"}', 400, "The field 'kind' is there twice: send each field once."),
        (b"{}", 400, "'kind' is needed"),
        (b'{"kind": "notebook", "color": "red"}', 400, "There is no field 'color'"),
        (b'{"kind": "notebook", "request": "lots"}', 400, "'lots' is not a size"),
        (b'{"kind": "notebook", "request": true}', 400, "not a size"),
        (b'{"kind": "notebook", "request": NaN}', 400, "'nan' is not a size"),
        (b'{"kind": "notebook", "request": 0}', 400, "more than 0 and at most 1"),
        (b'{"kind": "notebook", "request": "0.0000000000001"}', 400, "less than one byte"),
        (b'{"kind": "notebook", "gpus": 0}', 400, "'gpus' is a whole number"),
        (b'{"kind": "notebook", "gpus": 1.5}', 400, "'gpus' is a whole number"),
        (b'{"kind": "notebook", "priority": "high"}', 400, "'priority' is a whole number"),
        (b'{"kind": "notebook", "requeue": 1}', 400, "'requeue' is true or false"),
        (b'{"kind": "notebook", "name": ""}', 400, "A name is a text"),
        (b'{"kind": "command", "name": "28909914a0d3"}', 400, "could be taken for somebody's id"),
        (b'{"kind": "command", "gang": "g", "gang_size": 513}', 400, "from 1 to 512"),
        (b'{"kind": "notebook", "request": 0.8, "limit": 0.5}', 422, "lower the request or raise the limit"),
        (b'{"kind": "notebook", "request": "17GiB"}', 422, "the largest is GPU 0 (Simulated GPU) with 16 GiB"),
        (b'{"kind": "notebook", "limit": "17GiB"}', 422, "for the limit"),
        (b'{"kind": "notebook", "gpus": 3}', 422, "2 usable GPUs, not 3"),
    ],
)
def test_a_submission_that_makes_no_sense_is_refused_with_one_sentence(
    shared_daemon: DaemonProcess, body: bytes, status: int, says: str
) -> None:
    code, problem = shared_daemon.request("POST", "/v1/workloads", body)
    assert (code, problem["status"], problem["fault"]) == (status, status, "client")
    assert says in problem["detail"]
    assert "\n" not in problem["detail"]
    assert shared_daemon.status()["workloads"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/status", 404),
        ("PUT", "/v1/status", 405),
        ("DELETE", "/v1/workloads/nobody", 404),
        ("PATCH", "/v1/workloads/nobody", 404),
        ("POST", "/v1/workloads/nobody/suspend", 404),
        ("GET", "/v1/workloads/nobody/supervisor", 404),
    ],
)
def test_unknown_paths_methods_and_workloads_get_a_problem_object(
    shared_daemon: DaemonProcess, method: str, path: str, status: int
) -> None:
    code, problem = shared_daemon.request(method, path, b"{}" if method == "PATCH" else None)
    assert (code, problem["status"]) == (status, status)
    assert problem["detail"]


def test_a_body_above_1_mib_is_refused_before_it_is_read(shared_daemon: DaemonProcess) -> None:
    code, problem = shared_daemon.request("POST", "/v1/workloads", b"", Content_Length=str(10 * 2**20))
    assert (code, problem["title"]) == (413, "Body too large")
    chunked = b"%x\r\n" % (2**20 + 1) + b" " * (2**20 + 1) + b"\r\n0\r\n\r\n"
    code, problem = _chunked(shared_daemon, chunked)
    assert (code, problem["title"]) == (413, "Body too large")


def _chunked(daemon: DaemonProcess, body: bytes) -> tuple[int, Any]:
    with daemon.connection() as connection:
        connection.sendall(
            b"POST /v1/workloads HTTP/1.1\r\nHost: nls\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            + body
        )
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return parsed("POST", "/v1/workloads", answer)


def test_a_client_that_dies_in_mid_sentence_harms_nobody(shared_daemon: DaemonProcess) -> None:
    for sentence in (
        b"PO",
        b'POST /v1/workloads HTTP/1.1\r\nHost: nls\r\nContent-Length: 1000\r\n\r\n{"kind"',
        b"GET /v1/events HTTP/1.1\r\nHost: nls\r\n\r\n",
        b"\x00\x01\x02 nonsense\r\n\r\n",
    ):
        with shared_daemon.connection() as connection:
            connection.sendall(sentence)
    assert shared_daemon.status()["workloads"] == []
    assert shared_daemon.request("GET", "/livez") == (200, {"live": True})
    assert shared_daemon.request("GET", "/readyz") == (200, {"ready": True})


def test_clients_that_come_go_and_are_refused_cost_the_daemon_no_file_descriptor(daemon: DaemonProcess) -> None:
    assert daemon.process is not None
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    daemon.status()
    before = len(list(descriptors.iterdir()))
    sentences = (
        b"POST /v1/workloads HTTP/1.1\r\nHost: nls\r\nContent-Length: 1000\r\n\r\n{",
        b"GET /v1/events HTTP/1.1\r\nHost: nls\r\n\r\n",
        b"GET /v1/workloads/x/supervisor HTTP/1.1\r\nHost: nls\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nHost: nls\r\n\r\n",
        b"PUT /nowhere HTTP/1.1\r\nHost: nls\r\n\r\n",
    )
    for sentence in sentences * 5:
        with daemon.connection() as connection:
            connection.sendall(sentence)
            connection.shutdown(socket.SHUT_WR)
            if b"events" not in sentence:
                while connection.recv(65536):
                    pass
    wait_until(lambda: len(list(descriptors.iterdir())) <= before)


def test_the_status_for_programs_has_every_promised_field(daemon: DaemonProcess) -> None:
    running = daemon.start_nls("run", "--name", "sleeper", "--", "sleep", "600")
    daemon.wait_for("sleeper", phase="running")
    done = daemon.nls("status", "--json")
    status = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(status) == {
        "protocol", "version", "simulated", "message", "gpus", "workloads", "queues", "owners", "administrator",
    }  # fmt: skip
    assert set(status["gpus"][0]) == {
        "uuid", "index", "name", "memory_total_bytes", "memory_used_bytes", "healthy", "unhealthy_reason",
        "unhealthy_parts", "utilisation", "unplaced_bytes", "pool", "parent", "numa_node", "freezes",
        "links",
    }  # fmt: skip
    assert set(status["workloads"][0]) == {
        "id", "name", "kind", "owner", "phase", "request_bytes", "limit_bytes", "gpu_count", "priority", "requeue",
        "own", "gpu_count_max", "gang", "gang_size", "queue",
        "gpus", "home", "current", "borrowed", "pid", "memory_used_bytes", "saved_bytes", "memory_answer",
        "allowance_bytes", "cell_waits",
        "executing", "keep_until", "frozen", "freezes", "yields", "claimed", "position", "reason", "cause", "since",
        "waiting_s",
        "supervisor_pid", "pools", "reason_kind", "reason_parts",
    }  # fmt: skip
    assert "sleeper" in daemon.nls("status").stdout
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=20)
    wait_until(lambda: daemon.status()["workloads"] == [])
    assert "Nobody asks for a GPU." in daemon.nls("status").stdout


def test_the_events_stream_tells_what_happens_as_it_happens(daemon: DaemonProcess) -> None:
    async def follow() -> list[str]:
        client = await DaemonClient.connect(daemon.socket)
        seen: list[str] = []
        run = None
        async with asyncio.timeout(20):
            stream = client.events()
            pending = asyncio.ensure_future(anext(stream))
            while len(seen) < 2:
                if run is None:
                    await asyncio.sleep(0)
                    run = asyncio.ensure_future(asyncio.to_thread(_run_until_followed, daemon, seen))
                seen.append((await pending)["event"])
                pending = asyncio.ensure_future(anext(stream))
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
            await stream.aclose()
            await run
        return seen

    assert asyncio.run(follow())[:2] == ["started", "exited"]


def _run_until_followed(daemon: DaemonProcess, seen: list[str]) -> None:
    """The stream may start a moment after the first command: what matters is that it tells of whole commands."""
    for _ in range(20):
        daemon.nls("run", "--", "true")
        if seen:
            return


def test_a_workload_can_ask_for_something_else(daemon: DaemonProcess) -> None:
    async def change() -> None:
        client = await DaemonClient.connect(daemon.socket)
        view = await client.submit(kind="notebook")
        changed = await client.patch(view["id"], request="4GiB", limit="8GiB", name="smaller", priority=3)
        assert (changed["request_bytes"], changed["limit_bytes"]) == (4 * 2**30, 8 * 2**30)
        assert (changed["name"], changed["priority"]) == ("smaller", 3)
        with pytest.raises(Problem, match="above the limit"):
            await client.patch(view["id"], request="12GiB")
        with pytest.raises(Problem, match="no field 'kind'"):
            await client.patch(view["id"], kind="command")

    asyncio.run(change())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_may_look_but_not_touch(daemon: DaemonProcess) -> None:
    daemon.socket.chmod(0o666)
    for directory in daemon.socket.parents:
        if os.access(directory, os.W_OK) and directory.stat().st_uid == 0 and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o011)
    script = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for method, path in (('GET', '/v1/status'), ('DELETE', sys.argv[2]), ('POST', sys.argv[2] + '/suspend'),\n"
        "                     ('GET', sys.argv[2] + '/supervisor')):\n"
        "    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "    s.sendall(f'{method} {path} HTTP/1.1\\r\\nHost: n\\r\\nConnection: close\\r\\n\\r\\n'.encode())\n"
        "    print(s.makefile('rb').read().split()[1].decode())\n"
    )

    async def attempt() -> None:
        client = await DaemonClient.connect(daemon.socket)
        view = await client.submit(kind="notebook")
        path = f"/v1/workloads/{view['id']}"
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", script, str(daemon.socket), path],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
        assert done.stdout.split() == ["200", "403", "403", "403"]

    asyncio.run(attempt())
