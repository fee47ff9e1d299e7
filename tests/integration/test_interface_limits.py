"""What a large, slow, stuck or numerous client can do to the real daemon: nothing."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import DaemonProcess, parsed
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import Problem
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 2**20
HEAD = b"POST /v1/workloads HTTP/1.1\r\nHost: nls\r\nConnection: close\r\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that lets silent clients go after 0.3 seconds and keeps 40 connections at most."""
    arguments = [
        "--set",
        "client_timeout_s=0.3",
        "--set",
        "max_connections=40",
        "--set",
        "max_submissions_at_once=100000",
    ]
    with DaemonProcess(tmp_path_factory.mktemp("daemon"), "2x16GiB", *arguments) as running:
        yield running


def answer_of(connection: socket.socket) -> bytes:
    answer = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def send_all(connection: socket.socket, data: bytes) -> None:
    """Until everything is sent or nobody takes it any more."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_10_mb_is_refused_with_a_problem_object_while_it_is_still_being_sent(
    shared_daemon: DaemonProcess, chunked: bool
) -> None:
    body = b" " * (10 * MIB)
    if chunked:
        piece = b"%x\r\n" % (64 * 1024) + b" " * (64 * 1024) + b"\r\n"
        sentence = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + piece * 160 + b"0\r\n\r\n"
    else:
        sentence = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with shared_daemon.connection() as connection:
        sender = threading.Thread(target=send_all, args=(connection, sentence))
        sender.start()
        code, problem = parsed("POST", "/v1/workloads", answer_of(connection))
        sender.join(20)
    assert (code, problem["title"]) == (413, "Body too large")
    assert shared_daemon.status()["workloads"] == []


@pytest.mark.parametrize("path", ["/livez", "/v1/status", "/v1/events", "/nothing"])
def test_a_large_body_where_none_is_read_is_not_kept_until_it_has_come(shared_daemon: DaemonProcess, path: str) -> None:
    with shared_daemon.connection() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: nls\r\nContent-Length: {2 * MIB}\r\n\r\n".encode())
        assert answer_of(connection) == b"HTTP/1.1 400 Bad Request\r\n\r\n"


def test_our_own_client_reads_why_its_body_was_refused(shared_daemon: DaemonProcess) -> None:
    async def submit_much() -> None:
        client = await DaemonClient.connect(shared_daemon.socket)
        with pytest.raises(Problem, match="at most 1048576 bytes") as caught:
            await client.submit(kind="notebook", name="x" * 10 * MIB)
        assert caught.value.status == 413

    asyncio.run(submit_much())


def test_a_body_of_exactly_1_mib_is_read(shared_daemon: DaemonProcess) -> None:
    code, problem = shared_daemon.request("POST", "/v1/workloads", b" " * MIB)
    assert (code, problem["title"]) == (400, "Malformed request")


def test_a_supervisors_message_of_more_than_1_mib_ends_its_connection_and_nothing_else(daemon: DaemonProcess) -> None:
    with ExitStack() as stack:
        connection = stack.enter_context(daemon.connection())
        workload = submit(daemon, stack)
        send_all(connection, handshake(workload))
        assert b"101 Switching" in connection.recv(4096)
        send_all(connection, b"\x81\xff" + (2 * MIB).to_bytes(8, "big") + b"\0\0\0\0" + b" " * (2 * MIB))
        drain(connection)
        assert daemon.status()["workloads"][0]["id"] == workload


def test_half_a_frame_and_silence_keep_nobody_from_supervising(daemon: DaemonProcess) -> None:
    with ExitStack() as stack:
        workload = submit(daemon, stack)
        stuck = stack.enter_context(daemon.connection())
        stuck.sendall(handshake(workload))
        assert b"101 Switching" in stuck.recv(4096)
        stuck.sendall(b"\x81\xfe\x01")
        other = stack.enter_context(daemon.connection())
        other.sendall(handshake(workload))
        assert b"101 Switching" in other.recv(4096)
        # The daemon does not wait for the rest of the frame: it tells that another one has taken over.
        told = b""
        while b"\x0f\xa1another supervisor" not in told:
            told += stuck.recv(65536)
        assert daemon.request("GET", "/livez") == (200, {"live": True})


@pytest.mark.parametrize("frame", [b'\x81\x1a{"event": "cell_finished"}', b"\x89\x00", b"\x81\x7e\x80\x80"])
def test_a_frame_that_is_not_masked_ends_its_connection_and_changes_nothing(
    daemon: DaemonProcess, frame: bytes
) -> None:
    """RFC 6455, 5.1."""
    with ExitStack() as stack:
        workload = submit(daemon, stack)
        connection = stack.enter_context(daemon.connection())
        connection.sendall(handshake(workload))
        assert b"101 Switching" in connection.recv(4096)
        text = b'{"event": "cell_started"}'
        connection.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)
        wait_until(lambda: daemon.status()["workloads"][0]["cell_waits"])
        connection.sendall(frame)
        assert b"\x03\xeaa client masks its frames" in answer_of(connection)
        assert daemon.status()["workloads"][0]["cell_waits"]


def submit(daemon: DaemonProcess, stack: ExitStack) -> str:
    """A workload of this process, through a connection that it may close at once."""
    code, view = daemon.request("POST", "/v1/workloads", b'{"kind": "notebook"}')
    assert code == 201
    stack.callback(lambda: daemon.request("DELETE", f"/v1/workloads/{view['id']}"))
    return str(view["id"])


def handshake(workload: str) -> bytes:
    lines = [
        f"GET /v1/workloads/{workload}/supervisor HTTP/1.1", "Host: nls", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def drain(connection: socket.socket) -> None:
    """Until the daemon has closed it."""
    with suppress(ConnectionResetError):
        while connection.recv(65536):
            pass


@pytest.mark.parametrize(
    "sentence",
    [
        b"",
        b"GET /v1/sta",
        b"GET /v1/status HTTP/1.1\r\nHost: n",
        HEAD + b"Content-Length: 1000\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n{",
    ],
)
def test_a_client_that_falls_silent_in_mid_sentence_is_let_go(impatient: DaemonProcess, sentence: bytes) -> None:
    with impatient.connection() as connection:
        connection.sendall(sentence)
        drain(connection)
    assert impatient.request("GET", "/livez") == (200, {"live": True})


def test_a_follower_of_the_events_that_reads_nothing_is_let_go(impatient: DaemonProcess) -> None:
    with impatient.connection() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: nls\r\n\r\n")
        assert b"200 OK" in connection.recv(64)

        def let_go() -> bool:
            for _ in range(50):
                code, view = impatient.request("POST", "/v1/workloads", json.dumps(LONG_NAME).encode())
                assert code == 201
                impatient.request("DELETE", f"/v1/workloads/{view['id']}")
            return "reads nothing and is let go" in impatient.log

        wait_until(let_go)


LONG_NAME: dict[str, Any] = {"kind": "command", "name": "x" * 100, "gpus": 2}


def test_one_connection_too_many_gets_a_clear_answer_and_the_others_go_on(impatient: DaemonProcess) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(impatient.connection()) for _ in range(40)]
        for stream in streams:
            stream.sendall(b"GET /v1/events HTTP/1.1\r\nHost: nls\r\n\r\n")
        for stream in streams:
            assert b"200 OK" in stream.recv(4096)
        code, problem = impatient.request("GET", "/v1/status")
        assert (code, problem["title"]) == (503, "Too many connections")
        assert impatient.nls("status").returncode == 3
    wait_until(lambda: impatient.request("GET", "/v1/status")[0] == 200)


def test_a_thousand_connections_that_say_half_a_word_cost_nobody_anything(daemon: DaemonProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    try:
        with ExitStack() as stack:
            connections = [stack.enter_context(daemon.connection()) for _ in range(1000)]
            for number, connection in enumerate(connections):
                send_all(connection, b"GET /v1/sta" if number % 2 else b"")
            refused = 0
            for connection in connections[-100:]:
                answer = answer_of(connection)
                refused += b"Too many connections" in answer or not answer
            assert refused == 100
            running = connections[0]
            running.sendall(b"GET /v1/status HTTP/1.1\r\nHost: nls\r\nConnection: close\r\n\r\n")
            assert parsed("GET", "/v1/status", answer_of(running))[0] == 200
        wait_until(lambda: daemon.request("GET", "/v1/status")[0] == 200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("headers", "query", "status", "says"),
    [
        ({"X_NLS_Protocol": "1"}, "", 200, ""),
        ({"X_NLS_Protocol": "0"}, "", 409, "upgrade nls-jupyter where this client runs"),
        ({"X_NLS_Protocol": "2"}, "", 409, "upgrade nls-jupyter where the daemon runs"),
        ({"X_NLS_Protocol": "new"}, "", 400, "is a whole number"),
        ({}, "?protocol=1", 200, ""),
        ({}, "?protocol=7", 409, "This client speaks protocol 7"),
    ],
)
def test_a_client_of_another_version_is_told_which_end_to_upgrade(
    shared_daemon: DaemonProcess, headers: dict[str, str], query: str, status: int, says: str
) -> None:
    code, answer = shared_daemon.request("GET", f"/v1/status{query}", **headers)
    assert code == status
    assert says in answer.get("detail", "")


def test_a_supervisor_of_another_version_is_refused_before_the_protocol_is_switched(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        workload = submit(daemon, stack)
        with daemon.connection() as connection:
            newer = handshake(workload).replace(b"Host: nls", b"Host: nls\r\nX-NLS-Protocol: 9\r\nConnection: close")
            connection.sendall(newer.replace(b"Connection: Upgrade\r\n", b""))
            code, problem = parsed("GET", f"/v1/workloads/{workload}/supervisor", answer_of(connection))
        assert (code, problem["title"]) == (409, "Daemon too old")
        code, problem = daemon.request("GET", f"/v1/workloads/{workload}/supervisor")
        assert (code, problem["title"]) == (426, "Upgrade required")


NO_HTTP = [
    b"nonsense\r\n\r\n",
    b"\x16\x03\x01\x02\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: nls\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/workloads HTTP/1.1\r\nHost: nls\r\nContent-Length: \xb2\r\n\r\n",
    b"POST /v1/workloads HTTP/1.1\r\nHost: nls\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("sent", NO_HTTP)
def test_what_is_no_http_is_answered_with_a_bare_400_and_let_go(shared_daemon: DaemonProcess, sent: bytes) -> None:
    with shared_daemon.connection() as connection:
        connection.sendall(sent)
        assert answer_of(connection) == b"HTTP/1.1 400 Bad Request\r\n\r\n"
    assert shared_daemon.status()["workloads"] == []


UNDECODABLE = [
    ("GET", "/v1/status?protocol=%ff"),
    ("GET", "/v1/events?passive=%ff"),
    ("DELETE", "/v1/workloads/0123456789ab?reason=%ff"),
    ("PATCH", "/v1/workloads/%ff"),
    ("POST", "/v1/gpus/%ff/return"),
]


@pytest.mark.parametrize(("method", "target"), UNDECODABLE)
def test_what_is_no_text_is_refused_with_one_sentence_and_fills_no_log(
    shared_daemon: DaemonProcess, method: str, target: str
) -> None:
    target += ("&" if "?" in target else "?") + "a=" + "A" * 31_000
    for _ in range(20):
        code, problem = shared_daemon.request(method, target, b"{}")
        assert (code, problem["detail"]) == (400, "The request could not be read: check its form.")
    assert "A" * 100 not in shared_daemon.log
