"""A kernel driven message by message, as a frontend does, and everything that it answered."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zmq
from jupyter_client.manager import KernelManager

from cases import Cell, FromFrontend

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Message = dict[str, Any]
PATIENCE_S = 45.0
SOURCES = ("stream", "display_data", "update_display_data", "execute_result", "error")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run a cell.

    Attributes:
        name: as the test shows it.
        prepare: cells that are run once, before all others.
        prefix: put before each cell.
    """

    name: str
    prepare: tuple[str, ...] = ()
    prefix: str = ""


PLAIN = Mode("plain")
GPU = Mode("gpu", prefix="%%gpu\n")
AUTO = Mode("auto", prepare=("%gpu auto on",))


@dataclass(slots=True)
class Transcript:
    """What a kernel answered to one request.

    Attributes:
        msg_id: the request's.
        shown: messages on iopub, in order.
        asked: `input_request` messages.
        reply: the content of the reply; `None` where the protocol knows none.
    """

    msg_id: str
    shown: list[Message] = field(default_factory=list)
    asked: list[Message] = field(default_factory=list)
    reply: Message | None = None
    idle: bool = False

    def text(self) -> str:
        """All text that streams, displays and errors carry."""
        return "".join(
            content.get("text", "") + str(content.get("data", "")) + content.get("ename", "")
            for content in (m["content"] for m in self.shown if m["header"]["msg_type"] in SOURCES)
        )


class Kernel:
    """A real ipykernel in a directory of its own. Use as a context manager."""

    def __init__(self, mode: Mode, environment: Mapping[str, str], directory: Path) -> None:
        self.mode = mode
        self.directory = directory
        self._environment = dict(environment)
        self._manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(directory / "k"))

    def __enter__(self) -> Kernel:
        (self.directory / "book").mkdir(parents=True)
        self._manager.start_kernel(env=self._environment, cwd=str(self.directory / "book"))
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE_S)
        for code in self.mode.prepare:
            self.run(Cell(code))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    @property
    def pid(self) -> int:
        """Of the kernel."""
        return int(self._manager.provisioner.pid)

    def alive(self) -> bool:
        """Whether the kernel lives."""
        return bool(self._manager.is_alive())

    def run(self, cell: Cell, *, as_it_is: bool = False) -> Transcript:
        """Run a cell the way of this kernel's mode, or just as it is written."""
        code = cell.code if as_it_is else self.mode.prefix + cell.code
        options = {"allow_stdin": bool(cell.answers), **cell.options}
        msg_id = self._client.execute(code, **options)
        return self._follow(msg_id, cell)

    def send(self, comm_id: str, step: FromFrontend) -> Transcript:
        """Send a widget's message; comms have no replies."""
        kind = "comm_close" if step.closes else "comm_msg"
        message = self._client.session.msg(kind, {"comm_id": comm_id, "data": dict(step.data)})
        self._client.shell_channel.send(message)
        return self._follow(message["header"]["msg_id"], step)

    def _follow(self, msg_id: str, step: Cell | FromFrontend) -> Transcript:
        transcript = Transcript(msg_id)
        answers = iter(step.answers if isinstance(step, Cell) else ())
        interrupt_at = step.interrupt_at if isinstance(step, Cell) else None
        deadline = time.monotonic() + PATIENCE_S
        while not self._over(transcript, step):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self.alive():
                raise AssertionError(f"{self.mode.name}: no end of {step} within {PATIENCE_S} s: {transcript}")
            self._take(msg_id, transcript, min(left_s, 1.0))
            for _ in transcript.asked[len(transcript.asked) - self._unanswered :]:
                self._client.input(next(answers))
            self._unanswered = 0
            if interrupt_at is not None and interrupt_at in transcript.text():
                interrupt_at = None
                self._manager.interrupt_kernel()
        return transcript

    _unanswered = 0

    def _over(self, transcript: Transcript, step: Cell | FromFrontend) -> bool:
        replied = transcript.reply is not None or isinstance(step, FromFrontend)
        late = step.late is None or step.late in transcript.text()
        return replied and transcript.idle and late

    def _take(self, msg_id: str, transcript: Transcript, timeout_s: float) -> None:
        client = self._client
        channels = {c.socket: c for c in (client.iopub_channel, client.shell_channel, client.stdin_channel)}
        poller = zmq.Poller()
        for socket in channels:
            poller.register(socket, zmq.POLLIN)
        for socket, _ in poller.poll(timeout_s * 1000):
            message = channels[socket].get_msg(timeout=1)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if socket is client.iopub_channel.socket:
                self._take_shown(transcript, message)
            elif socket is client.stdin_channel.socket:
                transcript.asked.append(message)
                self._unanswered += 1
            else:
                transcript.reply = message["content"]

    def _take_shown(self, transcript: Transcript, message: Message) -> None:
        if message["header"]["msg_type"] != "status":
            transcript.shown.append(message)
        elif message["content"]["execution_state"] == "idle":
            transcript.idle = True


def environment_for(daemon: Mapping[str, str], directory: Path, **variables: str) -> dict[str, str]:
    """What kernels start with: the daemon at hand, and nothing of the user's own set-up.

    Matplotlib's list of fonts stays where it is: making it anew takes seconds.
    """
    own = {name: str(directory / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    (directory / "jupyter_runtime_dir").mkdir(mode=0o700, exist_ok=True)
    variables = {**os.environ, **daemon, **own, "COLUMNS": "100", "LC_ALL": "C.UTF-8", **variables}
    variables.pop("PYTEST_CURRENT_TEST", None)  # with it ipykernel leaves the descriptors of the standard streams alone
    return variables
