"""Nonsense by the ten thousand, over HTTP and as a supervisor: nothing breaks, nothing is a defect, nothing is kept."""

from __future__ import annotations

import asyncio
import json
import random
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEFT_OUT = pytest.mark.long("nonsense by the ten thousand: two thousand here")
PATHS = (
    "/v1/workloads", "/v1/workloads/{id}", "/v1/workloads/{id}/suspend", "/v1/workloads/{id}/resume",
    "/v1/workloads/{id}/explanation", "/v1/workloads/{id}/migrate", "/v1/workloads/{id}/supervisor",
    "/v1/gpus/{gpu}/return", "/v1/status", "/v1/history", "/v1/openapi.json", "/livez", "/readyz", "/metrics", "/",
    "/v1/%2e",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW")
FIELDS = (
    "kind",
    "name",
    "request",
    "limit",
    "priority",
    "gpus",
    "gang",
    "gang_size",
    "pools",
    "keep_s",
    "queue",
    "pid",
)
EVENTS = (
    "process_started",
    "process_ready",
    "process_exited",
    "cell_started",
    "state_saved",
    "variables_lost",
    "reported",
    "memory_wanted",
)
EVENT_FIELDS = (
    "command_id",
    "pid",
    "start_time",
    "reason",
    "saved_bytes",
    "ready",
    "executing",
    "missing",
    "number",
    "gpu",
)
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
# What a connection is answered after which it is at its end anyway.
REFUSED = frozenset({400, 403, 404, 405, 409, 411, 413, 415, 422, 426, 429, 503})


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON value, and now and then one that could be meant."""
    what = chance.randrange(10 if depth < 3 else 7)
    if what < 3:
        return chance.choice(("notebook", "command", "0.5", "1GiB", "", "x" * 5000, "\ud800", "\0", "a,b", "9" * 400))
    if what < 5:
        return chance.choice((0, 1, -1, 2**63, 0.5, 1e308, float("nan"), True, None))
    if what < 7:
        return chance.choice(("0", "1", [], {}))
    if what == 7:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(FIELDS): value(chance, depth + 1) for _ in range(chance.randrange(4))}


def body(chance: random.Random) -> bytes:
    what = chance.random()
    if what < 0.3:
        given = {"kind": chance.choice(("notebook", "command")), "name": "nonsense"}
        return json.dumps(given | {chance.choice(FIELDS): value(chance) for _ in range(chance.randrange(4))}).encode()
    if what < 0.6:
        return json.dumps(value(chance)).encode()
    if what < 0.7:
        return b'{"kind": "notebook", "kind": "command"}'
    if what < 0.8:
        return b"[" * chance.randrange(1, 5000)
    return chance.randbytes(chance.randrange(2000))


def request(chance: random.Random, known: str) -> bytes:
    path = chance.choice(PATHS).format(
        id=chance.choice((known, "0" * 12, "..", "%00", "x" * 3000)), gpu=chance.choice(("0", "GPU-x", "%ff"))
    )
    sent = body(chance) if chance.random() < 0.7 else b""
    lines = [f"{chance.choice(METHODS)} {path} HTTP/1.1", "Host: nls", f"Content-Length: {len(sent)}"]
    if chance.random() < 0.1:
        extra = ("X-NLS-Protocol: 99", "Expect: 100-continue", "Upgrade: websocket", "Transfer-Encoding: chunked", "a")
        lines.append(chance.choice(extra))
    return "\r\n".join([*lines, "", ""]).encode() + sent


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


class Speaker:
    """One connection after another: it speaks until it is hung up on."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._path = str(daemon.socket)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path, limit=2**24)
        return self._streams

    async def hang_up(self) -> None:
        if self._streams is not None:
            await closed(self._streams[1])
            self._streams = None

    async def ask(self, text: bytes) -> int | None:
        """The status; `None`: it hung up. What goes on after an answer is not waited for."""
        reader, writer = await self.connected()
        try:
            writer.write(text)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            length = re.search(rb"\r\n[Cc]ontent-[Ll]ength: (\d+)", head)
            ends = b"onnection: close" in head or length is None or status >= 400 or text.startswith(b"HEAD")
            if not ends and length is not None:
                await reader.readexactly(int(length[1]))
        except (ConnectionError, asyncio.IncompleteReadError):
            await self.hang_up()
            return None
        if ends:
            await self.hang_up()
        return status


async def speaks(daemon: DaemonProcess, chance: random.Random, times: int, known: Callable[[], str]) -> set[int | None]:
    speaker, answered = Speaker(daemon), set[int | None]()
    for _ in range(times):
        async with asyncio.timeout(60):
            answered.add(await speaker.ask(request(chance, known())))
    await speaker.hang_up()
    return answered


def frame(chance: random.Random) -> bytes:
    """One of a client's, mostly as the protocol wants it."""
    what = chance.random()
    if what < 0.5:
        said = {"event": chance.choice(EVENTS)} | {
            chance.choice(EVENT_FIELDS): value(chance) for _ in range(chance.randrange(4))
        }
        content, opcode = json.dumps(said).encode(), TEXT
    elif what < 0.9:
        content, opcode = body(chance), chance.choice((TEXT, BINARY, PING))
    else:
        content, opcode = chance.randbytes(chance.randrange(100)), chance.randrange(16)
    content = content[:125] if opcode >= CLOSE else content
    mask = chance.randbytes(4)
    size = struct.pack("!B", 128 | len(content)) if len(content) < 126 else struct.pack("!BH", 254, len(content))
    masked = bytes(byte ^ mask[number % 4] for number, byte in enumerate(content))
    return bytes([(128 if chance.random() < 0.95 else 0) | opcode]) + size + mask + masked


async def supervises(daemon: DaemonProcess, chance: random.Random, times: int) -> None:
    """As a supervisor of a workload of its own; who is hung up on comes again."""
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    upgrade = (
        f"GET /v1/workloads/{{}}/supervisor HTTP/1.1\r\nHost: nls\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    entry = await asyncio.to_thread(
        daemon.request, "POST", "/v1/workloads", json.dumps({"kind": "notebook", "name": "nonsense"}).encode()
    )
    for _ in range(times):
        if writer is None or reader is None or reader.at_eof() or writer.is_closing():
            if writer is not None:
                await closed(writer)
            reader, writer = await asyncio.open_unix_connection(str(daemon.socket), limit=2**24)
            writer.write(upgrade.format(entry[1].get("id", "0" * 12)).encode())
            async with asyncio.timeout(60):
                head = await reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in head.split(b"\r\n")[0]:
                await closed(writer)
                return  # given up meanwhile
        try:
            writer.write(frame(chance))
            await writer.drain()
        except ConnectionError:
            await closed(writer)
            writer = None
            continue
        while True:  # whatever it says is taken in, as it comes
            try:
                async with asyncio.timeout(0):
                    if not await reader.read(2**16):
                        break
            except TimeoutError:
                break
            except ConnectionError:
                break
    if writer is not None:
        await closed(writer)


def files_of(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text(encoding="ascii").partition("VmRSS:")[2].split()[0])


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    settings = ("max_submissions_per_s=100000.0", "max_submissions_at_once=100000", "max_workloads_per_user=40")
    words = [word for setting in settings for word in ("--set", setting)]
    with DaemonProcess(tmp_path, "2x16GiB", *words) as running:
        yield running


@pytest.mark.parametrize("times", [2_000, pytest.param(20_000, marks=LEFT_OUT)])
def test_nonsense_is_refused_and_leaves_nothing_behind(daemon: DaemonProcess, times: int) -> None:
    assert daemon.process is not None
    pid, chance = daemon.process.pid, random.Random(times)
    ids = ["0" * 12]

    async def a_part(part: int) -> set[int | None]:
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(speaks(daemon, random.Random(chance.random()), part // 6, lambda: chance.choice(ids)))
                for _ in range(4)
            ]
            for _ in range(2):
                group.create_task(supervises(daemon, random.Random(chance.random()), part // 6))
        return set[int | None]().union(*(each.result() for each in asked))

    def let_go() -> None:
        for workload in daemon.status()["workloads"]:
            daemon.request("DELETE", f"/v1/workloads/{workload['id']}")

    answered = asyncio.run(a_part(times // 4))
    ids += [workload["id"] for workload in daemon.status()["workloads"]][:5]
    answered |= asyncio.run(a_part(times // 4))
    let_go()
    before, files = resident_kib(pid), files_of(pid)
    answered |= asyncio.run(a_part(times // 2))
    let_go()
    assert {status for status in answered if status is not None and status >= 400} <= REFUSED
    assert {200, 201, 404} <= answered
    assert resident_kib(pid) <= 1.2 * before
    assert files_of(pid) <= files + 8
    assert "Traceback" not in daemon.log
