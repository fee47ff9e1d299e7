"""What runs in the GPU process: an IPython kernel that can also save, restore and follow its memory allowance.

Beside the Jupyter protocol it answers `nls_save_request` and `nls_restore_request` on the shell channel, so that they
run in the main thread and in order with cells, and `nls_allowance_request` on the control channel, so that it works in
mid-cell. Replies hold `status: ok`, or `status: error` with `ename, evalue, traceback`; a failure never ends the
process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel
from traitlets import default

from nls_jupyter import saved_state
from nls_jupyter.state_socket import StateSocket
from nls_scheduler import guardian
from nls_scheduler.drivers.simulated import SimulatedGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OWNERS_OF_OUTPUT = frozenset({"execute_request", "comm_open", "comm_msg", "comm_close"})


class GpuProcessKernel(IPythonKernel):
    """An IPython kernel that is one notebook's GPU process."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self._state_socket = StateSocket.inherited()
        self._save_numbers = itertools.count(1)
        self.shell_handlers["nls_save_request"] = self._answering(self._save)
        self.shell_handlers["nls_restore_request"] = self._answering(self._restore)
        self.control_handlers["nls_allowance_request"] = self._answering(self._follow_allowance)
        self.control_handlers["nls_trim_request"] = self._answering(self._trim)

    def start(self) -> None:
        """Start answering.

        A SIGINT must wake the event loop: ipykernel's handler only queues a callback, so that without a wake-up the
        interrupt of an `await` in a cell would wait for whatever wakes the loop next.
        """
        super().start()  # type: ignore[no-untyped-call]
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)  # noqa: FBT003 - its only signature
        self._waker.setblocking(False)  # noqa: FBT003
        self.io_loop.add_handler(self._woken, self._drain_wake_ups, self.io_loop.READ)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

    def _drain_wake_ups(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        """Only cells and widget callbacks own outputs: what a cell's thread prints after a save stays the cell's."""
        if channel == "shell" and parent["header"]["msg_type"] not in _OWNERS_OF_OUTPUT:
            Kernel.set_parent(self, ident, parent, channel)  # type: ignore[no-untyped-call]
        else:
            super().set_parent(ident, parent, channel)  # type: ignore[no-untyped-call]

    def _answering(self, work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., None]:
        """A message handler (the same signature in ipykernel 6 and 7) that replies with what `work` returns."""

        def handle(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            try:
                content = {"status": "ok", **work(parent["content"])}
            except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - told to the kernel, which decides
                content = {
                    "status": "error",
                    "ename": type(error).__name__,
                    "evalue": str(error),
                    "traceback": traceback.format_exception(error),
                }
            reply_type = parent["header"]["msg_type"].removesuffix("_request") + "_reply"
            session: Any = self.session
            session.send(stream, reply_type, content, parent, ident)

        return handle

    def _save(self, content: dict[str, Any]) -> dict[str, Any]:
        shell: Any = self.shell
        names = saved_state.user_names(shell.user_ns, shell.user_ns_hidden)
        descriptor, manifest = saved_state.save(names, cell=content["cell"])
        number = next(self._save_numbers)
        try:
            self._state_socket.send(number, descriptor)
        finally:
            os.close(descriptor)
        return {"number": number, "manifest": manifest.to_json()}

    def _restore(self, content: dict[str, Any]) -> dict[str, Any]:
        shell: Any = self.shell
        descriptor = self._state_socket.receive(content["number"])
        try:
            report = saved_state.restore(descriptor, shell.user_ns)
        finally:
            os.close(descriptor)
        missing = [{"name": m.name, "type_name": m.type_name, "reason": m.reason} for m in report.missing]
        return {"restored": list(report.restored), "missing": missing}

    def _trim(self, content: dict[str, Any]) -> dict[str, Any]:
        """Caches of libraries that are loaded; what variables hold stays."""
        del content
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return {}

    def _follow_allowance(self, content: dict[str, Any]) -> dict[str, Any]:
        allowance_bytes: int | None = content["allowance_bytes"]
        for simulated in SimulatedGpu.visible(os.environ) or ():
            simulated.set_allowance(allowance_bytes)
        # Importing CuPy here would cost the user a second; an import later starts without a limit of the pool's own.
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().set_limit(size=allowance_bytes or 0)
        return {}


class GpuProcessApp(IPKernelApp):
    """Starts the kernel with the user's own IPython configuration."""

    @default("kernel_class")
    def _default_kernel_class(self) -> type[GpuProcessKernel]:
        return GpuProcessKernel

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """A publisher drops messages above its limit, and a lost `idle` would leave the user's cell waiting."""
        context.setsockopt(zmq.SNDHWM, 0)  # the default of sockets that the context makes from now on
        super().init_iopub(context)  # type: ignore[no-untyped-call]
        del context.sockopts[zmq.SNDHWM]


def _raise_oom_score() -> None:
    """The guardian did this already, unless somebody started the module by hand."""
    own, parents = (Path(f"/proc/{process}/oom_score_adj") for process in ("self", os.getppid()))
    if int(own.read_text("ascii")) <= int(parents.read_text("ascii")):
        guardian.raise_oom_score(guardian.OOM_SCORE_RAISE)


def main(arguments: Sequence[str]) -> None:
    """Run the GPU process until it is killed."""
    _raise_oom_score()
    # In memory: `In`, `Out` and %history work, while the user's history database holds the notebook's cells once.
    GpuProcessApp.launch_instance([*arguments, "--HistoryManager.hist_file=:memory:"])
