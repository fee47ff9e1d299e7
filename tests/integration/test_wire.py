"""The channels to a GPU process that ends, with somebody in its place who speaks as it does."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.supervisor import wire as module
from nls_jupyter.supervisor.connection import Connection
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied
from nls_jupyter.supervisor.pending import Expected
from nls_jupyter.supervisor.wire import Wire

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kernel

KILLED = ExitStatus(returncode=None, signal=9)
MANY = 2000
LARGE_BYTES = 1 << 20
LATE_S = 0.3
# Answers once, says a lot when it is asked again, and is killed as soon as the system has all of that.
SPEAKER = """
import json, os, signal, sys, time, zmq
from jupyter_client.session import Session
with open(sys.argv[1]) as file: connection = json.load(file)
session = Session(key=connection['key'].encode(), signature_scheme=connection['signature_scheme'])
context = zmq.Context()
def bind(name, kind):
    channel = context.socket(kind)
    channel.sndhwm = 0
    channel.bind(f"{connection['transport']}://{connection['ip']}-{connection[name + '_port']}")
    return channel
shell, control, stdin = (bind(name, zmq.ROUTER) for name in ('shell', 'control', 'stdin'))
iopub = bind('iopub', zmq.XPUB)
iopub.recv()
ident, asked = session.recv(shell, mode=0)
session.send(iopub, 'status', {'execution_state': 'idle'}, asked['header'])
session.send(shell, 'kernel_info_reply', {'status': 'ok'}, asked['header'], ident)
ident, asked = session.recv(shell, mode=0)
for number in range(int(sys.argv[2])):
    session.send(iopub, 'stream', {'name': 'stdout', 'text': str(number)}, asked['header'])
    while not number and not os.path.exists(sys.argv[4]): time.sleep(0.005)
session.send(iopub, 'stream', {'name': 'stdout', 'text': 'x' * int(sys.argv[3])}, asked['header'])
context.destroy(linger=-1)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Heard:
    """What was forwarded."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.first = asyncio.Event()

    def __call__(self, message: dict[str, Any]) -> None:
        self.texts.append(message["content"]["text"])
        self.first.set()


def test_all_that_a_process_said_before_it_was_killed_is_heard(tmp_path: Path) -> None:
    connection = Connection.create(tmp_path / "c")
    go_on = tmp_path / "go on"
    arguments = [str(connection.file), str(MANY), str(LARGE_BYTES), str(go_on)]
    speaker = subprocess.Popen([sys.executable, "-c", SPEAKER, *arguments])

    async def story() -> None:
        heard = Heard()
        wire = Wire(connection, heard, lambda _: None)
        try:
            async with asyncio.timeout(60):
                await wire.ask("shell", "kernel_info_request", {}, Expected(with_idle=True, on_stdin=None))
                cell = asyncio.create_task(
                    wire.ask("shell", "execute_request", {}, Expected(with_idle=True, on_stdin=None))
                )
                await heard.first.wait()
                # The news of the end can come before all that was said: here it comes long before all was even sent.
                wire.close_for_sending(KILLED)
                asyncio.get_running_loop().call_later(LATE_S, go_on.touch)
                await wire.last_words()
            assert [len(text) for text in heard.texts[-1:]] == [LARGE_BYTES]
            assert heard.texts[:-1] == [str(number) for number in range(MANY)]
            assert not cell.done()
            wire.fail_all()
            with pytest.raises(GpuProcessDied):
                await cell
        finally:
            wire.close()

    try:
        asyncio.run(story())
    finally:
        speaker.kill()
        assert speaker.wait() == -signal.SIGKILL


def test_a_process_that_never_spoke_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        wire = Wire(Connection.create(tmp_path / "c"), lambda _: None, lambda _: None)
        wire.close_for_sending(KILLED)
        began = time.monotonic()
        await wire.last_words()
        assert time.monotonic() - began < module._CLOSED_WITHIN_S / 2
        wire.close()

    asyncio.run(story())
