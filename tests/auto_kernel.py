"""A kernel of the shipped kernelspec, or an ordinary one, driven message by message as frontends do."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from queue import Empty
from typing import TYPE_CHECKING, Any, Self

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from daemon_process import ROOT, DaemonProcess
from over_ipc import over_ipc
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

Message = dict[str, Any]
GPU_KERNEL = "python3-gpu"
PATIENCE_S = 45.0
SHIPPED = ROOT / "nls_jupyter" / "kernelspec" / "kernel.json"


def install_kernelspecs(directory: Path) -> Path:
    """The shipped kernelspec, and ipykernel's own with %gpu, below `directory`: a `JUPYTER_PATH`."""
    specification = json.loads(SHIPPED.read_text())
    plain = {**specification, "argv": [*specification["argv"][:-1], "--ext=nls_jupyter"]}
    for name, content in ((GPU_KERNEL, specification), ("python3", plain)):
        place = directory / "kernels" / name
        place.mkdir(parents=True)
        (place / "kernel.json").write_text(json.dumps(content))
    return directory


@dataclass(slots=True)
class Ran:
    """What came of one request: the reply's content, and its messages on iopub without `status`."""

    reply: Message
    shown: list[Message] = field(default_factory=list)

    def kinds(self) -> list[str]:
        """Message types, in order."""
        return [message["msg_type"] for message in self.shown]

    def last(self, kind: str) -> Message:
        """The content of the last message of this type."""
        content: Message = next(m["content"] for m in reversed(self.shown) if m["msg_type"] == kind)
        return content

    def text(self, name: str = "stdout") -> str:
        """One stream."""
        streams = (m["content"] for m in self.shown if m["msg_type"] == "stream")
        return "".join(content["text"] for content in streams if content["name"] == name)

    @property
    def result(self) -> str:
        """The text of Out[n]."""
        text: str = self.last("execute_result")["data"]["text/plain"]
        return text


class AutoKernel:
    """One kernel and one frontend. Use as a context manager."""

    def __init__(
        self,
        directory: Path,
        daemon: DaemonProcess,
        name: str = GPU_KERNEL,
        arguments: Sequence[str] = (),
        **variables: str,
    ) -> None:
        self._arguments = list(arguments)
        self.daemon = daemon
        self.name = f"{directory.name}.ipynb"
        specs = KernelSpecManager(kernel_dirs=[str(install_kernelspecs(directory / "jupyter") / "kernels")])
        self._manager = over_ipc(KernelManager, directory, kernel_name=name, kernel_spec_manager=specs)
        own = {"IPYTHONDIR": str(directory / "ipython"), "JPY_SESSION_NAME": self.name}
        own["JUPYTER_RUNTIME_DIR"] = str(directory / "runtime")
        # What stands by takes time from the other tests on the machine; those about it turn it on.
        own["NLS_STANDBY_MEMORY"] = "0"
        self._environment = {**os.environ, **daemon.environment, **own, **variables}
        self._environment.pop("PYTEST_CURRENT_TEST", None)
        self.directory = directory
        self.waiting: list[Message] = []
        self._replies: dict[str, Message] = {}

    def __enter__(self) -> Self:
        self._log = (self.directory / "kernel.log").open("ab")
        self._manager.start_kernel(
            env=self._environment,
            cwd=str(self.directory),
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            extra_arguments=self._arguments,
        )
        self.client: Any = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel()
        self._manager.cleanup_resources()
        self._log.close()
        wait_until(lambda: self.daemon.workload(self.name) is None)

    def restart(self) -> None:
        """As the menu does."""
        self._manager.restart_kernel()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def interrupt(self) -> None:
        """The Stop button."""
        self._manager.interrupt_kernel()

    @property
    def pid(self) -> int:
        """Of the notebook's kernel."""
        pid: int = self._manager.provisioner.pid
        return pid

    def entry(self, **fields: object) -> Any:
        """Its workload's status entry, once it has these fields."""
        return self.daemon.wait_for(self.name, PATIENCE_S, **fields)

    # Requests

    def run(self, code: str, **options: Any) -> Ran:
        """Run a cell to its end, without input from the user."""
        options.setdefault("allow_stdin", False)
        return self.finish(self.client.execute(code, **options))

    def finish(self, msg_id: str, shown: list[Message] | None = None) -> Ran:
        """What came of a request once it has its reply and is idle; `shown` has what was taken before."""
        shown = [] if shown is None else shown
        for message in self._messages_of(msg_id):
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    break
            else:
                shown.append(message)
        return Ran(self.reply(msg_id)["content"], shown)

    def until(self, msg_id: str, holds: Callable[[Ran], object]) -> list[Message]:
        """Its messages so far, once they are so."""
        shown: list[Message] = []
        for message in self._messages_of(msg_id):
            if message["msg_type"] != "status":
                shown.append(message)
            if holds(Ran({}, shown)):
                return shown
        raise AssertionError(shown)

    def reply(self, msg_id: str, channel: str = "shell") -> Message:
        """The reply to a request; others that come are kept."""
        deadline = time.monotonic() + PATIENCE_S
        while msg_id not in self._replies:
            take = self.client.get_shell_msg if channel == "shell" else self.client.get_control_msg
            message: Message = take(timeout=max(deadline - time.monotonic(), 0.01))
            self._replies[message["parent_header"].get("msg_id", "")] = message
        return self._replies.pop(msg_id)

    def ask(self, msg_type: str, content: Mapping[str, Any], channel: str = "shell") -> Message:
        """Any request: the content of its reply."""
        answer: Message = self.reply(self.send(msg_type, content, channel), channel)["content"]
        return answer

    def debug(self, command: str, **arguments: Any) -> Message:
        """What the debugger answers to a request of the Debug Adapter Protocol."""
        request = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
        return self.ask("debug_request", request, "control")

    def debug_event(self, event: str) -> Message:
        """The body of the debugger's next event of this name."""
        told = self.event(lambda m: m["msg_type"] == "debug_event" and m["content"]["event"] == event)
        body: Message = told["content"].get("body", {})
        return body

    def send(self, msg_type: str, content: Mapping[str, Any], channel: str = "shell", **more: Any) -> str:
        """Any message; returns its id. `buffers`, `subshell_id` and `metadata` are taken."""
        message = self.client.session.msg(msg_type, dict(content), metadata=more.get("metadata"))
        if subshell_id := more.get("subshell_id"):
            message["header"]["subshell_id"] = subshell_id
        message["buffers"] = more.get("buffers") or []
        ends = {"shell": self.client.shell_channel, "control": self.client.control_channel}
        ends[channel].send(message)
        msg_id: str = message["header"]["msg_id"]
        return msg_id

    def done(self, msg_id: str) -> list[Message]:
        """What a message without a reply brought about."""
        messages = self._messages_of(msg_id)
        return [m for m in _until_idle(messages) if m["msg_type"] != "status"]

    def event(self, holds: Callable[[Message], bool]) -> Message:
        """The next message on iopub that is so, whosever it is; others are kept."""
        for message in list(self.waiting):
            if holds(message):
                self.waiting.remove(message)
                return message
        for message in self._messages():
            if holds(message):
                return message
            self.waiting.append(message)
        raise AssertionError

    def _messages_of(self, msg_id: str) -> Iterator[Message]:
        kept = [m for m in self.waiting if m["parent_header"].get("msg_id") == msg_id]
        self.waiting = [m for m in self.waiting if m not in kept]
        yield from kept
        for message in self._messages():
            if message["parent_header"].get("msg_id") == msg_id:
                yield message
            else:
                self.waiting.append(message)

    def _messages(self) -> Iterator[Message]:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Empty):
                yield self.client.get_iopub_msg(timeout=1)
        raise AssertionError(f"nothing came within {PATIENCE_S:g} s; kept: {self.waiting}")


def _until_idle(messages: Iterator[Message]) -> Iterator[Message]:
    for message in messages:
        yield message
        if message["content"].get("execution_state") == "idle":
            return
