"""Two kinds of notebooks with one interface: a kernel that this process started, and one on a Jupyter Server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_client.manager import AsyncKernelManager
from tornado.httpclient import HTTPError
from tornado.websocket import WebSocketError

from nls_scheduler.demo.jupyter import CellFailed, Outputs
from nls_scheduler.processes.guardian import read_stat
from over_ipc import over_ipc

if TYPE_CHECKING:
    from nls_scheduler.demo.jupyter import Notebook
    from world import World

READY_WITHIN_S = 90.0
_NUMBERS = itertools.count(1)
_ASK_PID = "import os as _os; print('kernel-pid', _os.getpid())"


class KernelGone(Exception):  # noqa: N818 - says what happened
    """The kernel ended while a cell was on its way."""


class Desk(Protocol):
    """A user's way to one kernel."""

    async def open(self) -> None: ...
    async def run(self, code: str, outputs: Outputs) -> dict[str, Any]: ...
    async def interrupt(self) -> None: ...
    async def close(self) -> None: ...


class OwnKernel:
    """A kernel of this process, as a terminal or a test runner has it."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._manager: Any = None
        self._client: Any = None

    async def open(self) -> None:
        """A new kernel."""
        folder = self._world.directory / f"k-{self._name}"
        folder.mkdir(exist_ok=True)
        self._manager = over_ipc(AsyncKernelManager, folder, kernel_name="python3")
        environment = {**os.environ, **self._world.environment}
        self._log = (self._world.directory / f"{self._name}.log").open("ab")
        await self._manager.start_kernel(env=environment, stdout=self._log, stderr=self._log)
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=READY_WITHIN_S)

    async def run(self, code: str, outputs: Outputs) -> dict[str, Any]:
        """A cell's reply."""
        reply = await self._client.execute_interactive(code, allow_stdin=False, output_hook=outputs.take, timeout=None)
        content: dict[str, Any] = reply["content"]
        return content

    async def interrupt(self) -> None:
        """Ctrl-C."""
        await self._manager.interrupt_kernel()

    async def close(self) -> None:
        """The kernel ends, or has ended."""
        if self._manager is None:
            return
        self._client.stop_channels()
        with contextlib.suppress(RuntimeError, ProcessLookupError):
            await self._manager.shutdown_kernel(now=not await self._manager.is_alive())
        self._manager.context.destroy(linger=0)
        self._log.close()
        self._manager = None


class ServersKernel:
    """A notebook on the Jupyter Server, as a browser has it open."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, f"{name}-{next(_NUMBERS)}"
        self._notebook: Notebook | None = None

    async def open(self) -> None:
        """A new session."""
        assert self._world.server is not None
        self._notebook = await self._world.server.open(f"{self._name}.ipynb")

    async def run(self, code: str, outputs: Outputs) -> dict[str, Any]:
        """A cell's reply."""
        assert self._notebook is not None
        reply: dict[str, Any] = {"status": "ok"}
        try:
            await self._notebook.run(code, 3600.0, outputs)
        except CellFailed as failed:
            reply = {"status": "error", "ename": failed.ename, "evalue": failed.evalue}
        return {**reply, "execution_count": self._notebook._cells[-1]["execution_count"]}

    async def interrupt(self) -> None:
        """The Stop button."""
        assert self._notebook is not None
        await self._notebook.interrupt()

    async def close(self) -> None:
        """The session ends, if its server lives."""
        if self._notebook is not None:
            with contextlib.suppress(HTTPError, WebSocketError, OSError):
                await asyncio.wait_for(self._notebook.shut_down(), 30)
            self._notebook = None


class Kernel:
    """A desk with its kernel's life: a cell whose kernel ends raises `KernelGone` instead of waiting for ever."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.pid = 0
        self._start_time = 0

    async def open(self) -> None:
        """A new kernel, which answers."""
        await self._desk.open()
        outputs = Outputs()
        await asyncio.wait_for(self._desk.run(_ASK_PID, outputs), READY_WITHIN_S)
        self.pid = int(outputs.stdout.split("kernel-pid")[1])
        stat = read_stat(self.pid)
        self._start_time = stat[1] if stat else 0

    @property
    def alive(self) -> bool:
        """Whether it is the same process still."""
        stat = read_stat(self.pid)
        return stat is not None and stat[1] == self._start_time and not self._is_dead()

    def _is_dead(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX"
        except OSError:
            return True

    async def run(self, code: str, outputs: Outputs, patience_s: float) -> dict[str, Any]:
        """A cell's reply. Raises `KernelGone`, and `TimeoutError` after `patience_s`."""
        cell = asyncio.ensure_future(self._desk.run(code, outputs))
        deadline = asyncio.get_running_loop().time() + patience_s
        try:
            while True:
                done, _ = await asyncio.wait([cell], timeout=0.25)
                if done:
                    return cell.result()
                if not self.alive:
                    raise KernelGone
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError
        except (OSError, RuntimeError, HTTPError, WebSocketError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise KernelGone from error
        finally:
            cell.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await cell

    async def interrupt(self) -> None:
        """Ctrl-C."""
        with contextlib.suppress(HTTPError, WebSocketError, RuntimeError, OSError):
            await self._desk.interrupt()

    async def close(self) -> None:
        """It ends, or has ended."""
        await self._desk.close()
