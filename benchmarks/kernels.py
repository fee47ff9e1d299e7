"""Real kernels for benchmarks: a plain one, and one whose cells run in a GPU process on simulated Gpus."""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import AsyncKernelManager

import nls_jupyter
import nls_scheduler
from nls_scheduler.wire import locate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

TIMEOUT_S = 120.0
_PAUSE_S = 0.005


@contextlib.asynccontextmanager
async def daemon(simulate: str | None = "2x4GiB", *arguments: str) -> AsyncIterator[dict[str, str]]:
    """A daemon of its own, on real Gpus for `None`; `arguments` are more of those of `nls up`.

    Yields the environment in which kernels find it, and nothing of the user's configuration.
    """
    compile_ours()
    with tempfile.TemporaryDirectory() as directory:
        socket = locate.checked(Path(directory) / "nls.sock")
        own = {
            "NLS_SOCKET": str(socket),
            "IPYTHONDIR": f"{directory}/ipython",
            "JUPYTER_RUNTIME_DIR": f"{directory}/runtime",
            "JUPYTER_CONFIG_DIR": f"{directory}/config",
        }
        environment = {**os.environ, **own}
        command = [sys.executable, "-m", "nls_scheduler", "--state-dir", f"{directory}/state", "up"]
        command += [*([] if simulate is None else ["--simulate", simulate]), *arguments]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            while not await asyncio.to_thread(locate.answers, socket):
                await asyncio.sleep(_PAUSE_S)
            yield environment
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def compile_ours() -> None:
    """As pip does when it installs: else a checkout where Python writes no bytecode pays for it at each start."""
    for package in (nls_jupyter, nls_scheduler):
        compileall.compile_dir(Path(package.__file__).parent, quiet=1)


class Kernel:
    """One kernel and its client."""

    def __init__(self, environment: dict[str, str], name: str = "python3") -> None:
        self._environment = environment
        self.manager = AsyncKernelManager(kernel_name=name, transport="ipc")
        # Several that start at once would look for free names of one series together.
        self.manager.ip = f"{tempfile.gettempdir()}/nls-{os.getpid()}-{id(self):x}"
        self.first_idle_s = 0.0

    async def __aenter__(self) -> Kernel:
        began = time.perf_counter()
        await self.manager.start_kernel(env=self._environment)
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=TIMEOUT_S)
        self.first_idle_s = time.perf_counter() - began
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.process.pid)

    async def run(self, code: str) -> tuple[float, str]:
        """Seconds from the request to the last of reply and idle, and what it printed. Fails with the cell."""
        began = time.perf_counter()
        msg_id = self.client.execute(code, allow_stdin=False)
        printed: list[str] = []
        while True:
            message = await self.client.get_iopub_msg(timeout=TIMEOUT_S)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            content: dict[str, Any] = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                raise RuntimeError(f"{code!r}: {content['ename']}: {content['evalue']}")
            elif content.get("execution_state") == "idle":
                break
        while (await self.client.get_shell_msg(timeout=TIMEOUT_S))["parent_header"].get("msg_id") != msg_id:
            pass
        return time.perf_counter() - began, "".join(printed)


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Median and p99."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"median_ms": round(1000 * statistics.median(ordered), 2), "p99_ms": round(1000 * p99, 2)}


def ratios(figures: dict[str, float], peer: dict[str, float]) -> dict[str, float]:
    """`figures` over `peer`, name by name."""
    return {name.removesuffix("_ms"): round(value / peer[name], 2) for name, value in figures.items()}


def memory_mib(pids: Sequence[int]) -> float:
    """Proportional set size of processes and all their descendants, MiB: pages that several share count once in all."""
    family, waiting = set(pids), list(pids)
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    while waiting:
        for child in children.get(waiting.pop(), ()):
            family.add(child)
            waiting.append(child)
    total = 0
    for pid in family:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(total / 1024, 1)
