"""The story in five acts. Every claim is looked at: a check that does not hold ends the demo with exit code 1."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from nls_scheduler.demo.jupyter import CellFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.demo.jupyter import JupyterServer, Notebook, Outputs
    from nls_scheduler.demo.screen import Screen

CHANGE_TIMEOUT_S = 90.0
_POLL_S = 0.1

_LOAD = """%%gpu
import os
from nls_jupyter import xp
total = xp.cuda.Device().mem_info[1]
weights = xp.arange(min(total // 32, 2**25), dtype=xp.float32)
view = weights[10:]"""
_BURST = """%%gpu
burst = xp.ones(int(total * 0.7) // 4, dtype=xp.float32)
used = total - xp.cuda.Device().mem_info[0]
del burst
xp.get_default_memory_pool().free_all_blocks()
print(used / total)"""
_LOOK = """%%gpu
view[0] = {number}
print(float(weights[10]), float(weights[-1]))"""
_HOLD = """%%gpu
held = xp.ones(int(total * 0.55) // 4, dtype=xp.float32)
print(float(held[-1]))"""
_HOLD_ALL = "from nls_jupyter import xp; import time; a = xp.ones({bytes} // 4, dtype=xp.float32); time.sleep(600)"


class DemoFailed(Exception):  # noqa: N818 - says what happened
    """Something that this project promises did not happen."""


class Story:
    """Two notebooks, `alice` and `bob`, and whoever comes third."""

    def __init__(self, client: DaemonClient, server: JupyterServer, screen: Screen) -> None:
        self._client = client
        self._server = server
        self._screen = screen
        self._number = 0
        self.notebooks: list[Notebook] = []
        self._kernels: dict[str, str] = {}

    async def play(self) -> None:
        """All acts. Raises DemoFailed, CellFailed or TimeoutError."""
        await self._two_notebooks()
        await self._a_third("1.0", "Act 2. A third workload needs a whole GPU")
        await self._a_third("0.6", "Act 3. A third workload needs 0.6 of a GPU")
        await self._a_kill()
        await self._turns()
        for notebook in self.notebooks:
            self._check(
                await self._kernel_of(notebook) == self._kernels[notebook.path], f"{notebook.path}: same kernel"
            )
        self._screen.check("both kernels lived through it all: same pid, same CPU variables")

    async def _two_notebooks(self) -> None:
        self._screen.act("Act 1. Two notebooks ask for half a GPU each, limit 1.0")
        for name in ("alice.ipynb", "bob.ipynb"):
            notebook = await self._server.open(name)
            self.notebooks.append(notebook)
            self._kernels[name] = await self._kernel_of(notebook)
            await notebook.run("cpu_variable = ['only', 'here']")
            await notebook.run("%gpu request 0.5 --limit 1.0")
            await notebook.run(_LOAD)
        status = await self._until(self._spread, "the notebooks are on different GPUs")
        homes = {tuple(w["home"]) for w in status["workloads"]}
        self._check(len(homes) == 1, "on paper both have their home on one GPU")
        self._screen.check("on paper both have their home on one GPU; in fact each has a GPU to itself")
        for notebook in self.notebooks:
            used = float((await notebook.run(_BURST)).stdout)
            # What it holds now is known at once, not when it has been idle for a moment: it comes back by itself then.
            await notebook.run("%gpu save")
            self._check(used > 0.5, f"{notebook.path} used {used:.2f} of a GPU")
            self._screen.check(f"{notebook.path} burst to {used:.0%} of a GPU, and only 50% is guaranteed to it")

    async def _a_third(self, request: str, title: str) -> None:
        self._screen.act(title)
        status: Mapping[str, Any] = await self._client.status()
        before = {w["name"]: w["current"] for w in status["workloads"]}
        total = status["gpus"][0]["memory_total_bytes"]
        async with self._command("training", request, int(float(request) * total * 0.8)):
            status = await self._until(lambda s: _phase(s, "training") == "running", "training runs")
            training = _named(status, "training")
            sharing = [w["name"] for w in status["workloads"] if w["current"] == training["current"]]
            self._check(sharing == ["training"], f"training shares its GPU with {sharing}")
            self._screen.check("training has its GPU to itself")
            await self._until(lambda s: all(_phase(s, n.path) == "running" for n in self.notebooks), "both run again")
            status = await self._client.status()
            moved = [n for n in self.notebooks if _named(status, n.path)["current"] != before[n.path]]
            self._check(len(moved) == 1, f"{len(moved)} notebooks moved")
            outputs = await self._look(moved[0])
            self._check("training" in outputs.stderr, "the notebook says for whom it moved")
            self._screen.note(f"{moved[0].path} reads: {outputs.stderr.strip()}")
        await self._until(self._spread, "the notebooks spread again")
        self._screen.check("training is over; the notebooks have spread again")

    async def _a_kill(self) -> None:
        self._screen.act("Act 4. The GPU process of alice.ipynb is killed in the middle of a cell")
        alice = self.notebooks[0]
        pid = _named(await self._client.status(), alice.path)["pid"]
        cell = asyncio.ensure_future(alice.run("%%gpu\nimport time\ntime.sleep(60)"))
        try:
            await self._until(lambda s: bool(_named(s, alice.path)["executing"]), "the cell runs")
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                await cell
        except CellFailed as failed:
            self._screen.note(f"the cell reads: {failed.evalue}")
        else:
            raise DemoFailed("the killed cell did not fail")
        finally:
            cell.cancel()
        await self._look(alice)
        self._screen.check("the next cell works, with the variables of the last saved cell")

    async def _turns(self) -> None:
        self._screen.act("Act 5. What both hold does not fit on one GPU: they take turns")
        alice, bob = self.notebooks
        await alice.run(_HOLD)
        await bob.run(_HOLD)
        async with self._command("training", "1.0", 0):
            await self._until(lambda s: _phase(s, "training") == "running", "training runs")
            for notebook, other in ((alice, bob), (bob, alice), (alice, bob)):
                outputs = await notebook.run(_HOLD.splitlines()[0] + "\nprint(float(held.min()), float(held.max()))")
                self._check(outputs.stdout.split() == ["1.0", "1.0"], f"{notebook.path} has what it held")
                status = await self._client.status()
                self._check(_phase(status, other.path) == "suspended", f"{other.path} is suspended meanwhile")
                self._screen.check(f"{notebook.path} computes with all that it held; {other.path} is in host memory")
        await bob.run("%%gpu\ndel held")

    async def _look(self, notebook: Notebook) -> Outputs:
        """Variables and the view between them are there, in the GPU process and in the kernel."""
        self._number += 1
        outputs = await notebook.run(_LOOK.format(number=self._number))
        seen, last = outputs.stdout.split()
        self._check(float(seen) == self._number, "the view still shares the memory of its base")
        self._check(float(last) > 0, "the weights are there")
        cpu = (await notebook.run("cpu_variable")).result
        self._check(cpu == "['only', 'here']", "the kernel's own variables are there")
        return outputs

    @asynccontextmanager
    async def _command(self, name: str, request: str, hold_bytes: int) -> AsyncIterator[None]:
        """`nls run` with a command that holds `hold_bytes`; ended on leaving."""
        code = _HOLD_ALL.format(bytes=hold_bytes) if hold_bytes else "import time; time.sleep(600)"
        arguments = ["run", "--name", name, "--request", request, "--", sys.executable, "-c", code]
        self._screen.note(f"$ nls run --name {name} --request {request} -- python train.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "nls_scheduler", "--socket", str(self._client.socket), *arguments,
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def _until(self, holds: Callable[[Mapping[str, Any]], bool], what: str) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                # Not everything that is waited for, such as a running cell, is an event of the history.
                while not holds(status := await self._client.status()):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise DemoFailed(f"not within {CHANGE_TIMEOUT_S:g} s: {what}") from None
        return status

    def _spread(self, status: Mapping[str, Any]) -> bool:
        ours = [w for w in status["workloads"] if w["name"] in self._kernels]
        gpus = {tuple(w["current"]) for w in ours if w["phase"] == "running"}
        return len(gpus) == len(self._kernels) == len(ours)

    async def _kernel_of(self, notebook: Notebook) -> str:
        return (await notebook.run("import os; os.getpid()")).result or ""

    def _check(self, holds: bool, what: str) -> None:  # noqa: FBT001 - reads like an assertion
        if not holds:
            raise DemoFailed(what)


def _named(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(
        (w for w in status["workloads"] if w["name"] == name), {"phase": None, "current": [], "executing": False}
    )


def _phase(status: Mapping[str, Any], name: str) -> str | None:
    phase: str | None = _named(status, name)["phase"]
    return phase
