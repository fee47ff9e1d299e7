"""Who plays in each story: two notebooks, `alice` and `bob`, a command that comes third, and who looks if it is so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from nls_scheduler.demo.ending import with_us
from nls_scheduler.demo.jupyter import CellFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.demo.jupyter import JupyterServer, Notebook, Outputs
    from nls_scheduler.demo.screen import Screen

CHANGE_TIMEOUT_S = 90.0
_POLL_S = 0.1

_HOLD_ALL = "from nls_jupyter import xp; import time; a = xp.ones({bytes} // 4, dtype=xp.float32); time.sleep(600)"


class DemoFailed(Exception):  # noqa: N818 - says what happened
    """Something that this project promises did not happen."""


class Cast:
    """What both stories play with. Every claim is looked at: `check` ends the demo where one does not hold."""

    def __init__(self, client: DaemonClient, server: JupyterServer, screen: Screen) -> None:
        self._client = client
        self._server = server
        self._screen = screen
        self.notebooks: list[Notebook] = []
        self._kernels: dict[str, str] = {}

    async def play(self) -> None:
        """All acts. Raises DemoFailed, CellFailed or TimeoutError."""
        raise NotImplementedError

    async def _look(self, notebook: Notebook) -> Outputs:
        """Run a cell that finds all variables as they were left. Raises DemoFailed."""
        raise NotImplementedError

    async def _open(self, name: str, request: str) -> Notebook:
        """A notebook with a variable of its kernel, which asks for a part of a GPU and may use all of it."""
        notebook = await self._server.open(name)
        self.notebooks.append(notebook)
        self._kernels[name] = await self._kernel_of(notebook)
        await notebook.run("cpu_variable = ['only', 'here']")
        await notebook.run(f"%gpu request {request} --limit 1.0")
        return notebook

    async def _look_at_kernels(self) -> None:
        for notebook in self.notebooks:
            self._check(
                await self._kernel_of(notebook) == self._kernels[notebook.path], f"{notebook.path}: same kernel"
            )
        self._screen.check("both kernels lived through it all: same pid, same CPU variables")

    async def _kill(self, notebook: Notebook) -> None:
        """`kill -9` of its GPU process in the middle of a cell; its next cell works."""
        pid = named(await self._client.status(), notebook.path)["pid"]
        cell = asyncio.ensure_future(notebook.run("%%gpu\nimport time\ntime.sleep(60)"))
        try:
            await self._until(lambda s: bool(named(s, notebook.path)["executing"]), "the cell runs")
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                await cell
        except CellFailed as failed:
            self._screen.note(f"the cell reads: {failed.evalue}")
        else:
            raise DemoFailed("the killed cell did not fail")
        finally:
            cell.cancel()
        await self._look(notebook)
        self._screen.check("the next cell works, with the variables of the last saved cell")

    @asynccontextmanager
    async def _command(self, name: str, request: str, hold_bytes: int, queue: str = "") -> AsyncIterator[None]:
        """`nls run` with a command that holds `hold_bytes`; ended on leaving."""
        code = _HOLD_ALL.format(bytes=hold_bytes) if hold_bytes else "import time; time.sleep(600)"
        asked = ["--name", name, "--request", request, *(["--queue", queue] if queue else [])]
        self._screen.note(f"$ nls run {' '.join(asked)} -- python train.py")
        process = await asyncio.create_subprocess_exec(
            *with_us(), sys.executable, "-m", "nls_scheduler", "--socket", str(self._client.socket), "run", *asked,
            "--", sys.executable, "-c", code,
            cwd=self._client.socket.parent,
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def _until(self, holds: Callable[[Mapping[str, Any]], bool], what: str) -> Mapping[str, Any]:
        """The status in which it holds. Raises DemoFailed."""
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                # Not everything that is waited for, such as a running cell, is an event of the history.
                while not holds(status := await self._client.status()):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise DemoFailed(f"not within {CHANGE_TIMEOUT_S:g} s: {what}") from None
        return status

    async def _kernel_of(self, notebook: Notebook) -> str:
        return (await notebook.run("import os; os.getpid()")).result or ""

    async def _look_at_kernel_variable(self, notebook: Notebook) -> None:
        cpu = (await notebook.run("cpu_variable")).result
        self._check(cpu == "['only', 'here']", "the kernel's own variables are there")

    def _check(self, holds: bool, what: str) -> None:  # noqa: FBT001 - reads like an assertion
        if not holds:
            raise DemoFailed(what)


def named(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The workload of that name; one that is nowhere, if there is none."""
    return next(
        (w for w in status["workloads"] if w["name"] == name), {"phase": None, "current": [], "executing": False}
    )


def phase(status: Mapping[str, Any], name: str) -> str | None:
    """Of the workload of that name."""
    found: str | None = named(status, name)["phase"]
    return found
