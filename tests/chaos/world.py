"""The node on which chaos happens: a daemon on simulated GPUs, a Jupyter Server, folders, a small disk, one clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
import uuid
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from daemon_process import ROOT, DaemonProcess
from leftovers import MARK, marked_processes
from nls_scheduler.demo.jupyter import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from nls_scheduler.demo.jupyter import JupyterServer

CHAOS = Path(__file__).parent
GPUS = "2x256MiB"
SETTINGS = {
    "residency_per_move": 0, "min_residency_s": 0, "cool_down_s": 0, "reclaim_deadline_s": 6, "stop_grace_s": 1,
}  # fmt: skip
DISK_BYTES = 8 << 20
# Nothing may be left this long after the last notebook was closed.
GONE_WITHIN_S = 30.0
_KERNELS_OWN_SOCKETS = "-ipc-"
# Whether this task does something to the whole node, or was begun by one that does.
_HOLDS: ContextVar[bool] = ContextVar("holds the node", default=False)


class World:
    """Everything that the notebooks share. Use as an async context manager.

    Attributes:
        story: what happened on the node, each with its second.
        kills: signals and other disturbances, by kind.
        disk: why the daemon has no disk of its own that can be full; `None` where it has one.
    """

    def __init__(self, *, standby: str = "0", server: bool = True, settings: dict[str, float] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ch-", dir="/tmp"))
        self.flags = self.directory / "flags"
        self.state = self.directory / "state"
        self.mark = uuid.uuid4().hex
        self.grandchild = f"86{uuid.uuid4().int % 10**9:09d}"
        self.story: list[str] = []
        self.kills: dict[str, int] = {}
        self._lock = asyncio.Lock()
        self.server: JupyterServer | None = None
        self.server_pid: int | None = None
        self.disk: str | None = None
        self._began = time.monotonic()
        self._standby, self._with_server = standby, server
        self._settings = {**SETTINGS, **(settings or {})}
        self._excuses: list[list[float]] = []
        self._stack = AsyncExitStack()
        self._serving = AsyncExitStack()
        self._before: dict[str, str] = {}
        self._shm = {path.name for path in Path("/dev/shm").iterdir()}

    async def __aenter__(self) -> Self:
        self._before = dict(os.environ)
        for name in ("XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR", "IPYTHONDIR"):
            folder = self.directory / name.lower()[:3]
            folder.mkdir(mode=0o700)
            os.environ[name] = str(folder)
        self.flags.mkdir()
        self._mount()
        os.environ.update({MARK: self.mark, "CHAOS_DIRECTORY": str(self.directory), "CHAOS_FLAGS": str(self.flags)})
        sets = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        self.daemon = DaemonProcess(self.directory, GPUS, "--context-memory", "16MiB", *sets)
        folders = [CHAOS / "hooks", CHAOS / "modules", ROOT, ROOT / "node_scheduler", ROOT / "server_extension"]
        self.daemon.environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
        wishes = {"NLS_REQUEST": "0.2", "NLS_LIMIT": "1.0", "NLS_STANDBY_MEMORY": self._standby}
        self.environment = {**self.daemon.environment, **wishes}
        await asyncio.to_thread(self.daemon.start)
        if self._with_server:
            await self.start_server()
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError, ConnectionError):
            await self._serving.aclose()
        if self.daemon.process is not None:
            self.daemon.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.daemon.process.wait, 15)
            self.daemon.process.kill()
            self.daemon.process.wait()

    def close(self) -> None:
        """Once what is left was looked for: take away the folder, and whatever is left."""
        for pid in [*self.processes(), *self.grandchildren()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.disk is None:
            subprocess.run(["umount", "--lazy", str(self.state)], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", str(self.directory)], check=False)
        os.environ.clear()
        os.environ.update(self._before)

    # Time and telling

    @property
    def now_s(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self._began

    def tell(self, text: str) -> None:
        """Something happened to the node."""
        self.story.append(f"{self.now_s:7.2f} {text}")

    def count(self, kind: str) -> None:
        """A disturbance was made."""
        self.kills[kind] = self.kills.get(kind, 0) + 1
        self.tell(kind)

    @contextmanager
    def excused(self, why: str) -> Iterator[None]:
        """Meanwhile no cell can be expected to go on."""
        interval = [time.monotonic(), float("inf")]
        self._excuses.append(interval)
        try:
            yield
        finally:
            interval[1] = time.monotonic()
            self.tell(f"over: {why}")

    def excused_s(self, began: float, ended: float) -> float:
        """How much of the time between two moments (time.monotonic) is excused."""
        covered, reached = 0.0, began
        for start, end in sorted(self._excuses):
            start, end = max(start, reached), min(end, ended)
            if end > start:
                covered, reached = covered + end - start, end
        return covered

    # The daemon and its disk

    def _mount(self) -> None:
        self.state.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "chaos", str(self.state)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        self.disk = None if done.returncode == 0 else f"no disk of its own: {done.stderr.strip()}"
        # What a simulated Gpu remembers stands for the Gpu's own memory, which no disk of the daemon's can fill.
        gpus = self.directory / "gpus"
        gpus.mkdir(mode=0o700)
        (self.state / "simulated").symlink_to(gpus)

    async def start_daemon(self) -> None:
        """Until it answers."""
        await asyncio.to_thread(self.daemon.start)

    async def kill_daemon(self) -> None:
        """Dead at once."""
        await asyncio.to_thread(self.daemon.kill)

    @property
    def busy(self) -> bool:
        """Whether somebody does something to the whole node now."""
        return self._lock.locked()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Only one does something to the whole node at a time."""
        async with self._lock:
            token = _HOLDS.set(True)
            try:
                yield
            finally:
                _HOLDS.reset(token)

    async def ensure_daemon(self) -> None:
        """It may have been hit at a point; whoever took it away on purpose brings it back."""
        if _HOLDS.get():
            return
        async with self.held():
            process = self.daemon.process
            if process is None or process.poll() is not None:
                if process is not None:
                    self.tell(f"the daemon is gone ({process.returncode}) and is started again")
                with self.excused("no daemon"):
                    await self.start_daemon()

    async def nls(self, *words: str) -> tuple[int, str]:
        """One command's exit code, and what it said."""
        try:
            done = await asyncio.to_thread(self.daemon.nls, *words)
        except subprocess.TimeoutExpired:
            return -1, "no answer in time"
        return done.returncode, (done.stdout + done.stderr).strip()[-300:]

    # The server

    async def start_server(self) -> None:
        """A new one in the same folder."""
        folder = self.directory / "jupyter"
        folder.mkdir(exist_ok=True)
        self.server = await self._serving.enter_async_context(serve(folder, self.environment))
        files = sorted((folder / "runtime").glob("jpserver-*.json"), key=lambda path: path.stat().st_mtime)
        self.server_pid = json.loads(files[-1].read_bytes())["pid"]

    async def restart_server(self) -> None:
        """After it was killed."""
        with contextlib.suppress(ProcessLookupError, ConnectionError):
            await self._serving.aclose()
        self._serving = AsyncExitStack()
        await self.start_server()

    async def stacks(self, pids: list[int]) -> list[str]:
        """Where the threads of these processes are; of those that `sitecustomize` has made to tell."""
        files = [file for pid in pids if (file := self.directory / f"stacks-{pid}").exists()]
        for file in files:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.name.removeprefix("stacks-")), signal.SIGUSR2)
        await asyncio.sleep(1.0)  # nobody says when all is written
        return [line for file in files for line in [file.name, *file.read_text().splitlines()]]

    # Named points

    def arm(self, point: str, passage: int = 1, name: str = "SIGKILL") -> None:
        """Whoever passes there next is hit."""
        self.disarm()
        new = self.directory / "arming"
        new.write_text(json.dumps({"point": point, "passage": passage, "signal": name, "id": uuid.uuid4().hex}))
        new.rename(self.directory / "armed")

    def fired(self) -> list[int] | None:
        """Who was hit since `arm`; `None` while nobody came there."""
        try:
            victims: list[int] = json.loads((self.directory / "fired").read_bytes())["victims"]
        except FileNotFoundError:
            return None
        return victims

    def disarm(self) -> None:
        """Nobody is hit any more."""
        for name in ("armed", "fired"):
            (self.directory / name).unlink(missing_ok=True)

    # What is there, and what is left

    def processes(self) -> dict[int, str]:
        """Of all that was started here and lives."""
        return marked_processes(self.mark)

    def grandchildren(self) -> list[int]:
        """The sleepers of cells, which hide in sessions of their own and keep no environment."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if file.read_bytes().split(b"\0")[:2] == [b"sleep", self.grandchild.encode()]:
                    found.append(int(file.parent.name))
        return found

    def leftovers(self) -> dict[str, list[str]]:
        """What is there after the end, by kind."""
        folders = [self.directory / name for name in ("xdg", "jup", "tmp", "jupyter/runtime")]
        files = [path for folder in folders if folder.is_dir() for path in folder.rglob("*")]
        ours = [p for p in files if p.name.startswith(("nls", "gpu-")) and p.name != "nls"]
        sockets = [p for p in files if p.is_socket() and _KERNELS_OWN_SOCKETS not in p.name]
        own = [self.daemon.socket, self.daemon.socket.with_name("nls.sock.lock")]
        shm = {path.name for path in Path("/dev/shm").iterdir()} - self._shm
        found = {
            "processes": [f"{pid}: {command[:200]}" for pid, command in self.processes().items()],
            "grandchildren": list(map(str, self.grandchildren())),
            "files": sorted({str(p) for p in [*ours, *sockets, *(p for p in own if p.exists())]}),
            "shared memory": sorted(name for name in shm if name.startswith("nls")),
        }
        return {kind: left for kind, left in found.items() if left}


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    """A world that is gone afterwards, whatever is left in it."""
    made = World(**options)
    try:
        async with made:
            yield made
    finally:
        made.close()
