"""What probes and Prometheus read over TCP."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.state import NodeState
from nls_scheduler.daemon.config import ConfigError, load
from nls_scheduler.daemon.http import observed
from nls_scheduler.daemon.http.addresses import listen_on, parse_address
from nls_scheduler.daemon.http.observed import Observed
from nls_scheduler.views.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """A daemon as far as these pages look at it."""

    def __init__(self, not_ready: str | None = None) -> None:
        self.not_ready = not_ready
        self.metrics = Metrics(NodeState)


async def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def served(node: Node, client: Callable[[int], Coroutine[object, object, None]]) -> None:
    async def run() -> None:
        server = Observed(node)
        try:
            await client(server.start_on("127.0.0.1:0"))
        finally:
            server.stop()
            await server.close_all_connections()

    asyncio.run(run())


def test_a_probe_reads_that_it_lives_and_is_ready_and_prometheus_reads_the_numbers() -> None:
    async def client(port: int) -> None:
        assert await ask(port, "/livez") == (200, '{"live": true}\n')
        assert (await ask(port, "/readyz"))[0] == 200
        status, text = await ask(port, "/metrics")
        assert status == 200
        assert "nls_workloads_waiting 0.0" in text

    served(Node(), client)


def test_a_daemon_that_is_not_ready_says_why() -> None:
    async def client(port: int) -> None:
        status, body = await ask(port, "/readyz")
        assert status == 503
        assert json.loads(body)["detail"] == "the pods of this node are not known yet"

    served(Node("the pods of this node are not known yet"), client)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v1/status", 404), ("POST", "/livez", 405), ("DELETE", "/metrics", 405)]
)
def test_nothing_else_can_be_read_and_nothing_can_be_done(method: str, path: str, status: int) -> None:
    async def client(port: int) -> None:
        assert (await ask(port, path, method))[0] == status

    served(Node(), client)


async def connect(port: int, source: str = "127.0.0.1") -> Connection:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


@asynccontextmanager
async def connected(port: int, sources: Iterable[str]) -> AsyncIterator[list[Connection]]:
    held: list[Connection] = []
    try:
        for source in sources:
            held.append(await connect(port, source))  # noqa: PERF401 - to be closed if a later one fails
        yield held
    finally:
        for _, writer in held:
            writer.close()


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is let go for being late, however busy this machine is, and all are accepted in their order."""
    for within in ("REQUEST_WITHIN_S", "ANSWERED_WITHIN_S"):
        monkeypatch.setattr(observed, within, 60.0)
    monkeypatch.setattr(socket, "TCP_DEFER_ACCEPT", 9999)  # an option that the kernel does not have


@pytest.mark.usefixtures("no_hurry")
def test_somebody_who_opens_connections_without_end_keeps_nobody_from_an_answer() -> None:
    """From as many addresses as there are connections."""

    async def client(port: int) -> None:
        async with connected(port, (f"127.0.0.{number % 100 + 2}" for number in range(200))) as held:
            assert (await ask(port, "/livez"))[0] == 200
            # Those that are let go are the oldest.
            assert await held[0][0].read() == b""
            held[-1][1].write(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")
            assert b"200" in await held[-1][0].readline()

    served(Node(), client)


@pytest.mark.usefixtures("no_hurry")
def test_whoever_opens_them_from_one_address_takes_nothing_from_another() -> None:
    async def client(port: int) -> None:
        async with connected(port, ["127.0.0.2", *["127.0.0.1"] * 200]) as held:
            assert (await ask(port, "/livez"))[0] == 200
            reader, writer = held[0]
            writer.write(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")
            assert b"200" in await reader.readline()

    served(Node(), client)


@pytest.mark.parametrize("sentence", [b"", b"GET /li", b"GET /livez HTTP/1.1\r\nHost: n\r\nContent-Length: 9\r\n\r\n{"])
def test_who_does_not_end_its_sentence_is_let_go(monkeypatch: pytest.MonkeyPatch, sentence: bytes) -> None:
    monkeypatch.setattr(observed, "REQUEST_WITHIN_S", 0.1)

    async def client(port: int) -> None:
        reader, writer = await connect(port)
        writer.write(sentence)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()

    served(Node(), client)


def test_who_does_not_read_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "ANSWERED_WITHIN_S", 1.0)
    node, streams, handle = Node(), [], Observed.handle_stream
    monkeypatch.setattr(node.metrics, "text", lambda: "x" * 20_000_000)
    monkeypatch.setattr(Observed, "handle_stream", lambda self, *new: (streams.append(new[0]), handle(self, *new)))

    async def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n")
            async with asyncio.timeout(10):
                while not streams or not streams[0].closed():
                    assert (await ask(port, "/livez"))[0] == 200

    served(node, client)


def test_a_connection_has_one_answer() -> None:
    """Prometheus comes back in 15 s or a minute: until then its connection would be in the way."""

    async def client(port: int) -> None:
        reader, writer = await connect(port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(b'{"live": true}\n')
        writer.close()

    served(Node(), client)


def test_a_port_that_is_taken_is_named() -> None:
    async def client(port: int) -> None:
        with pytest.raises(OSError, match=f"observe_address 127.0.0.1:{port}") as caught:
            Observed(Node()).start_on(f"127.0.0.1:{port}")
        assert caught.value.errno == errno.EADDRINUSE

    served(Node(), client)


@pytest.mark.parametrize(("text", "address"), [("0.0.0.0:9475", ("0.0.0.0", 9475)), ("[::1]:0", ("::1", 0))])
def test_an_address_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert load([f"observe_address={text}"], []).observe_address == text


@pytest.mark.parametrize(
    "text", ["9475", ":9475", "localhost:9475", "::1:9475", "0.0.0.0:", "0.0.0.0:99999", "1.2.3.4:x"]
)
def test_an_address_that_cannot_be_used_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"observe_address cannot be used: .* write for example 0\.0\.0\.0:9475"):
        load([f"observe_address={text}"], [])


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def livez(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_unspecified_address_of_ipv6_answers_both(host: str) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no ::1")

    async def run() -> None:
        server = Observed(Node())
        try:
            assert b" 200 " in await livez(host, server.start_on("[::]:0"))
        finally:
            server.stop()
            await server.close_all_connections()

    asyncio.run(run())


@pytest.mark.parametrize("missing", ["the family", "the address"])
def test_without_ipv6_it_is_all_addresses_of_ipv4_and_the_log_tells(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create = socket.create_server

    def without(address: tuple[str, int], **options: object) -> socket.socket:
        if ":" in address[0]:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create(address, **options)

    if missing == "the family":
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    else:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
        monkeypatch.setattr(socket, "create_server", without)

    with listen_on("::", 0, 1) as listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
        assert listening.getsockname()[0] == "0.0.0.0"
    assert "there is no IPv6 on this machine" in caplog.text


def test_a_port_that_somebody_has_on_ipv4_alone_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=re.escape(f"observe_address [::]:{port}")) as caught:
            Observed(Node()).start_on(f"[::]:{port}")
    assert caught.value.errno == errno.EADDRINUSE


def test_without_an_address_nothing_listens() -> None:
    assert load([], []).observe_address == ""
