"""What runs in the GPU process: an IPython kernel that can also save, restore and follow its memory allowance.

Beside the Jupyter protocol it answers requests of ours. On the shell channel, so that they run in the main thread and
in order with cells: `nls_save_request`, `nls_save_aside_request`, `nls_restore_request`, `nls_try_again_request`,
`nls_forget_request`, `nls_give_request`, `nls_take_request`, `nls_flush_request`, and the messages of widgets as
`nls_comm_*`; for a process that stands by `nls_prepare_request` and `nls_adopt_request`. On the control channel, so
that they work in mid-cell: `nls_allowance_request`, `nls_trim_request`, `nls_reclaim_request`,
`nls_freezable_request`, and `nls_memory_answer_request`, which answers what it asks by `nls_memory_request` on iopub. A
save point in mid-cell goes straight to the kernel's end of the state socket, and so does what a copy of the process
saves; `nls_saved_aside` tells on iopub how the copy ended, and `nls_notice` what the user has to know. Replies hold
`status: ok`, or `status: error` with `ename, evalue, traceback`; a failure never ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel
from traitlets import Unicode, default

from nls_jupyter import saved_state
from nls_jupyter.between import held_signals, numbering, seams
from nls_jupyter.between.begun import BegunCell
from nls_jupyter.between.errors import GpuUsageError
from nls_jupyter.between.lane import Lane
from nls_jupyter.between.restoring import RestoredComponent
from nls_jupyter.between.save_stops import SaveStops
from nls_jupyter.gpu_process import forked, given_gpus, open_files, warm_imports
from nls_jupyter.gpu_process.allocators import Answer, Asking, Follower, explain_failed_allocations
from nls_jupyter.gpu_process.freezable import Freezable
from nls_jupyter.gpu_process.lane_end import LaneEnd, LaneSession
from nls_jupyter.gpu_process.lost_gpu import why_lost
from nls_jupyter.gpu_process.outputs import Outputs
from nls_jupyter.gpu_process.reclaim import Reclaims
from nls_jupyter.gpu_process.state_requests import StateRequests
from nls_jupyter.saved_state.kinds import text_of
from nls_jupyter.saved_state.process_settings import set_environment
from nls_jupyter.saved_state.saver import Saver
from nls_scheduler.drivers.simulated import SimulatedGpu
from nls_scheduler.processes import guardian
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_COMM_MESSAGES = ("comm_open", "comm_msg", "comm_close")
_OWNERS_OF_OUTPUT = frozenset({"execute_request", *_COMM_MESSAGES, *(f"nls_{kind}" for kind in _COMM_MESSAGES)})
_ANSWER_POLL_MS = 50
# What runs nothing of the user's, or is told in full.
_FOLLOWED = frozenset(
    {
        *("execute_request", "kernel_info_request", "comm_info_request", "history_request", "is_complete_request"),
        *("nls_save_request", "nls_save_aside_request", "nls_allowance_request", "nls_trim_request"),
        *("nls_reclaim_request", "nls_freezable_request", "nls_memory_answer_request", "interrupt_request"),
    }
)
# What looks at objects by the names in a text.
_LOOKED_UP = frozenset({"complete_request", "inspect_request"})
_ASKED_AGAIN_S = 0.5


class GpuProcessKernel(IPythonKernel):
    """An IPython kernel that is one notebook's GPU process."""

    spill_folder = Unicode(
        help="Folder on a local disk for saved state that does not fit in memory: a nameless file, which is gone when "
        "the kernel ends, however it ends. Empty for none."
    ).tag(config=True)

    # A flush waits until all is on its way, and the reply says how much that was: no need to sleep over it.
    _execute_sleep = 0.0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        # Traitlets has an application's logger make records of everything, and its handler throw most of them away.
        self.log = logging.getLogger(f"{self.log.name}.requests")
        self.log.setLevel(getattr(self.parent, "log_level", logging.WARNING))
        self._outputs = Outputs(self.iopub_thread)
        self._begun = BegunCell.inherited()
        self._save_points = 0
        self._reclaims = Reclaims()
        self._asking = Asking(self._ask_for_memory)
        self._follower = Follower(self._asking, self._tell)
        self._freezable = Freezable()
        self._told: list[str] = []
        self._pid = os.getpid()
        shell: Any = self.shell
        self._reclaims.reach(shell)
        explain_failed_allocations(shell, self._follower)
        given_gpus.keep()
        forked.tell_on_stderr(shell)
        # ipykernel would end a moment after the cell, in the middle of the next one.
        shell.ask_exit = self._refuse_to_exit
        room = saved_state.MachineRoom(Path(self.spill_folder) if self.spill_folder else None)
        self._saver = Saver(room, saved_state.Interpreter(self.shell))
        self._saver.on_component = RestoredComponent.inherited().note
        self._state = StateRequests(shell, self._saver, self._publish, lambda: self._lane.waits)
        shell.run_code = self._saver.touched.following(shell.run_code)
        # Ctrl-C is for cells, and for what is copied for one. One that comes during these comes after their answer.
        undisturbed = held_signals.held()
        importing = warm_imports.as_in_a_cell(shell)
        self.shell_handlers["nls_save_request"] = undisturbed(self._answering(self._state.save, then=self._state.look))
        self.shell_handlers["nls_save_aside_request"] = undisturbed(self._answering(self._state.save_aside))
        self.shell_handlers["nls_restore_request"] = undisturbed(self._answering(importing(self._state.restore)))
        self.shell_handlers["nls_try_again_request"] = undisturbed(self._answering(importing(self._state.try_again)))
        self.shell_handlers["nls_prepare_request"] = undisturbed(self._answering(importing(self._prepare)))
        self.shell_handlers["nls_adopt_request"] = undisturbed(self._answering(self._adopt))
        self.shell_handlers["nls_forget_request"] = self._answering(self._state.forget)
        self.shell_handlers["nls_recipe_request"] = self._answering(self._state.recipe)
        self.shell_handlers["nls_give_request"] = self._answering(importing(self._state.give))
        self.shell_handlers["nls_take_request"] = self._answering(self._state.take)
        self.shell_handlers["nls_flush_request"] = undisturbed(self._answering(_flush))
        self.control_handlers["nls_allowance_request"] = self._answering(self._follow_allowance)
        self.control_handlers["nls_trim_request"] = self._answering(self._trim)
        self.control_handlers["nls_memory_answer_request"] = self._answering(self._take_answer)
        self.control_handlers["nls_reclaim_request"] = self._answering(self._reclaim)
        self.control_handlers["nls_freezable_request"] = self._answering(self._may_be_frozen)
        # Under names of our own: ipykernel sends a comm's own messages to the subshell that the comm used last, which
        # can be the main one, where a cell runs.
        for kind in _COMM_MESSAGES:
            self.shell_handlers[f"nls_{kind}"] = getattr(self.comm_manager, kind)
        self._lane = LaneEnd(Lane.inherited(), self)
        for name, handler in self.shell_handlers.items():
            self.shell_handlers[name] = self._lane.answering(handler)
        self._cell: tuple[Any, dict[str, Any]] | None = None
        self._ctrl_c = held_signals.CtrlC()

    def start(self) -> None:
        """Start answering.

        A SIGINT must wake the event loop: ipykernel's handler only queues a callback, so that without a wake-up the
        interrupt of an `await` in a cell would wait for whatever wakes the loop next.
        """
        shell: Any = self.shell
        shell.extension_manager.load_extension("nls_jupyter")  # the environment's configuration may have done so
        self._follower.install()
        self._freezable.install()
        seams.after_imports(self._tell).install()
        # A reclaim asks again by its timers, whatever a cell has put in the place of `time.monotonic`.
        self.control_thread.io_loop.asyncio_loop.time = monotonic_s
        super().start()  # type: ignore[no-untyped-call]
        for stream in (sys.stdout, sys.stderr):
            self._outputs.follow(stream)
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)  # noqa: FBT003 - its only signature
        self._waker.setblocking(False)  # noqa: FBT003
        self.io_loop.add_handler(self._woken, self._drain_wake_ups, self.io_loop.READ)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._lane.start()

    def _drain_wake_ups(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        """Only cells and widget callbacks own outputs: what a cell's thread prints after a save stays the cell's."""
        kind = parent["header"]["msg_type"]
        if kind in _LOOKED_UP:
            self._saver.touched.looked_up(str(parent["content"].get("code")))
        elif kind not in _FOLLOWED or parent["content"].get("user_expressions"):
            self._saver.touched.anything(f"a {kind} came")
        if channel == "shell" and kind not in _OWNERS_OF_OUTPUT:
            Kernel.set_parent(self, ident, parent, channel)  # type: ignore[no-untyped-call]
        else:
            super().set_parent(ident, parent, channel)  # type: ignore[no-untyped-call]

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """A cell, with the number that the notebook gave it."""
        self._begun.note(parent["header"]["msg_id"])
        told, self._told = self._told, []
        for sentence in told:
            self._send_notice(sentence)
        count = (parent.get("metadata") or {}).get(numbering.KEY)
        self._cell = ident, parent
        try:
            with self._ctrl_c.held():
                if count is not None:
                    shell: Any = self.shell
                    with contextlib.suppress(KeyboardInterrupt):  # it waits for the cell, which ends by it
                        numbering.number_next_cell(shell, count, self._inputs_from)
                try:
                    await super().execute_request(stream, ident, parent)  # type: ignore[no-untyped-call]
                except Exception as error:  # noqa: BLE001 - without a reply the notebook would wait for ever
                    self._answer_after_all(stream, ident, parent, error)
        finally:
            self._cell = None

    def _answer_after_all(self, stream: Any, ident: Any, parent: dict[str, Any], error: Exception) -> None:
        """A cell ran, and what it left in its reply is no text that can be sent."""
        session: Any = self.session
        ename, evalue = type(error).__name__, f"the cell ran, but its reply cannot be sent: {text_of(error)}"
        content = {"ename": ename, "evalue": evalue, "traceback": [f"{ename}: {evalue}"]}
        session.send(self.iopub_socket, "error", content, parent)
        reply = {"status": "error", **content, "execution_count": getattr(self.shell, "execution_count", 1) - 1}
        told = self._outputs.told(parent["header"]["msg_id"])
        session.send(stream, "execute_reply", reply, parent, ident, metadata=told)

    def finish_metadata(self, parent: Any, metadata: Any, reply_content: Any) -> Any:
        """All outputs of the cell were flushed before."""
        finished = super().finish_metadata(parent, metadata, reply_content)  # type: ignore[no-untyped-call]
        finished.update(self._outputs.told(parent["header"]["msg_id"]))
        return finished

    def _publish_status(self, status: str, channel: str, parent: Any = None) -> None:
        """Nobody asks who is busy, and the end of what was answered is told by its answer."""
        asked = (parent or self.get_parent(channel)).get("header", {})  # type: ignore[no-untyped-call]
        if status != "busy" and not self._outputs.over(asked.get("msg_id")):
            super()._publish_status(status, channel, parent)  # type: ignore[no-untyped-call]

    def _publish_execute_input(self, *_: object) -> None:
        """The notebook's kernel has told it."""

    def ask_notebook(self, line: str) -> dict[str, Any]:
        """Have the notebook's kernel carry out `%gpu line` while the cell waits; see `notebook.relayed_commands`.

        Raises:
            GpuUsageError: no cell runs in this thread that the notebook waits for.
        """
        if self._cell is None or not self._is_cells_thread():
            told = "%gpu works in cells, not in widgets' callbacks, threads and forked children of the GPU process."
            raise GpuUsageError(told)
        return self._ask("nls_command_request", {"line": line}, *self._cell)

    def _inputs_from(self, start: int) -> numbering.Inputs:
        assert self._cell is not None  # noqa: S101 - only asked for a cell
        content = self._ask("nls_inputs_request", {"start": start}, *self._cell)
        return content["raw"], content["transformed"]

    def _ask(self, msg_type: str, content: dict[str, Any], ident: Any, parent: dict[str, Any]) -> dict[str, Any]:
        """Ask the notebook's kernel, in the thread that runs its cells and waits for this one."""
        session: Any = self.session
        while self.stdin_socket.poll(0):
            self.stdin_socket.recv_multipart()  # the answer to somebody who was interrupted
        session.send(self.stdin_socket, msg_type, content, parent, ident)
        while not self.stdin_socket.poll(_ANSWER_POLL_MS):  # so that Ctrl-C gets through
            if self._ctrl_c.waits:
                raise KeyboardInterrupt
        answer: dict[str, Any] = session.recv(self.stdin_socket)[1]["content"]
        return answer

    def pre_handler_hook(self) -> None:
        """What the scheduler asked of the message before is not meant for this one."""
        super().pre_handler_hook()  # type: ignore[no-untyped-call]
        self._reclaims.forget()

    async def do_execute(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Run a cell; in the main thread it may have save points, and can be told to give the GPU back."""
        if threading.current_thread() is not threading.main_thread():
            return await self._do_execute(*args, **options)
        self._save_points = 0
        self._state.budget.cell_began(monotonic_s())
        with self._reclaims.cell():
            try:
                with self._ctrl_c.let_through():
                    return await self._do_execute(*args, **options)
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - without a reply the cell would wait for ever
                # A Ctrl-C before the cell or right after it, or an error of the cell's that cannot even be printed.
                return _failed(error) | {"execution_count": getattr(self.shell, "execution_count", 1) - 1}
            finally:
                self._outputs.take_back()

    async def _do_execute(self, *args: Any, **options: Any) -> dict[str, Any]:
        if "cell_meta" in options:  # IPython shows it to hooks, which are not to see what is only between us
            told = options["cell_meta"] or {}
            options["cell_meta"] = {key: value for key, value in told.items() if not key.startswith("nls_")}
        try:
            reply: dict[str, Any] = await super().do_execute(*args, **options)  # type: ignore[no-untyped-call]
        finally:
            if os.getpid() != self._pid:
                forked.leave(sys.exception() or self._last_error())
        self._follower.look_again()
        if reply["status"] == "error":
            reply[saved_state.DEAD_GPU] = why_lost(self._last_error())
        return reply

    def _last_error(self) -> BaseException | None:
        return getattr(self.shell.last_execution_result, "error_in_exec", None)  # type: ignore[union-attr]

    def post_handler_hook(self) -> None:
        """A child that a widget's callback forked has nothing to do behind it."""
        super().post_handler_hook()  # type: ignore[no-untyped-call]
        if os.getpid() != self._pid:
            forked.leave(None)
        self._outputs.take_back()

    def _refuse_to_exit(self) -> None:
        if os.getpid() == self._pid:
            told = "exit() ends nothing here: %gpu restart gives you a new, empty GPU process."
            print(told, file=sys.stderr)  # noqa: T201 - the user's cell called this

    def _is_cells_thread(self) -> bool:
        """Whether this is the thread in which cells run, and no copy of it in a forked child."""
        return threading.current_thread() is threading.main_thread() and os.getpid() == self._pid

    def save_point(self) -> bool:
        """See `nls_jupyter.save_point`."""
        if not self._is_cells_thread() or not self._reclaims.running:
            return False
        if self._reclaims.raised is None and not self._state.budget.allows(monotonic_s()):
            return False
        parent = self.get_parent("shell")  # type: ignore[no-untyped-call]
        number = self._save_points + 1
        try:
            cell = f"{parent.get('metadata', {}).get('nls_cell', '')}, save point {number}"
            self._state.write(cell, stop=_stop_for_ctrl_c, save_point=True)
        except saved_state.SaveStoppedError:
            return False  # the user's Ctrl-C comes next, unless the cell makes something else of it
        except OSError as error:
            warnings.warn(f"the variables could not be saved: {error}", RuntimeWarning, stacklevel=3)
            return False
        self._save_points = number
        return True

    def _answering(
        self, work: Callable[[dict[str, Any]], dict[str, Any]], then: Callable[[], None] = lambda: None
    ) -> Callable[..., None]:
        """A message handler (the same signature in ipykernel 6 and 7) that replies with what `work` returns."""

        def handle(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            try:
                content = {"status": "ok", **work(parent["content"])}
            except BaseException as error:  # noqa: BLE001 - told to the kernel, which decides; without a reply it would wait
                content = _failed(error)
            reply_type = parent["header"]["msg_type"].removesuffix("_request") + "_reply"
            session: Any = self.session
            self._outputs.answered(parent["header"]["msg_id"])
            session.send(stream, reply_type, content, parent, ident)
            then()

        return handle

    def _prepare(self, content: dict[str, Any]) -> dict[str, Any]:
        set_environment(content["environment"])
        return {"failed": warm_imports.import_quietly(content["modules"]), "touched": warm_imports.cuda_touched()}

    def _adopt(self, content: dict[str, Any]) -> dict[str, Any]:
        warm_imports.adopt(content["environment"], content["cwd"])
        return {}

    def _reclaim(self, content: dict[str, Any]) -> dict[str, Any]:
        interrupted = self._reclaims.ask(content["reason"], content["grace_s"])
        if interrupted:
            asyncio.get_running_loop().call_later(_ASKED_AGAIN_S, self._reclaim_again)
        return {"interrupted": interrupted}

    def _reclaim_again(self) -> None:
        if self._reclaims.ask_again():
            asyncio.get_running_loop().call_later(_ASKED_AGAIN_S, self._reclaim_again)

    def _trim(self, content: dict[str, Any]) -> dict[str, Any]:
        """Caches of libraries that are loaded; what variables hold stays."""
        del content
        return {"freed_bytes": self._follower.trim()}

    def _may_be_frozen(self, content: dict[str, Any]) -> dict[str, Any]:
        del content
        return {"refusal": self._freezable.why_not()}

    def _follow_allowance(self, content: dict[str, Any]) -> dict[str, Any]:
        allowance_bytes: int | None = content["allowance_bytes"]
        for simulated in SimulatedGpu.visible(os.environ) or ():
            simulated.set_allowance(allowance_bytes)
        self._follower.follow(allowance_bytes)
        return {}

    def _take_answer(self, content: dict[str, Any]) -> dict[str, Any]:
        self._asking.answer(content["number"], Answer(content["granted"], content["reason"]))
        return {}

    def _tell(self, sentence: str) -> None:
        """Have the user read it; from any thread. Once more with the next cell: now, nobody may listen yet."""
        if os.getpid() == self._pid:
            self._told.append(sentence)
            self._send_notice(sentence)

    def _send_notice(self, sentence: str) -> None:
        self._publish("nls_notice", {"text": sentence})

    def _ask_for_memory(self, question: Mapping[str, object]) -> None:
        self._publish("nls_memory_request", dict(question))

    def _publish(self, msg_type: str, content: Mapping[str, Any]) -> None:
        """From any thread: iopub is the one channel that takes messages in mid-cell from all of them."""
        session: Any = self.session
        session.send(self.iopub_socket, msg_type, content)


def _flush(content: dict[str, Any]) -> dict[str, Any]:
    del content
    open_files.flush()
    return {}


def _stop_for_ctrl_c() -> None:
    """For a save in the middle of a cell, which is to end."""
    if held_signals.waits(signal.SIGINT):
        raise saved_state.SaveStoppedError("the cell was interrupted")


def _failed(error: BaseException) -> dict[str, Any]:
    dead = saved_state.why_dead(error)
    return {
        "status": "error",
        "ename": type(error).__name__ if dead is None else saved_state.DEAD_GPU,
        "evalue": text_of(error) if dead is None else dead,
        "traceback": traceback.format_exception(error),
    }


def save_point() -> bool:
    """See `nls_jupyter.save_point`, which calls this in a GPU process."""
    return GpuProcessKernel.initialized() and GpuProcessKernel.instance().save_point()


class GpuProcessApp(IPKernelApp):
    """Starts the kernel with the user's own IPython configuration."""

    @default("kernel_class")
    def _default_kernel_class(self) -> type[GpuProcessKernel]:
        return GpuProcessKernel

    @default("session")
    def _default_session(self) -> LaneSession:
        return LaneSession(parent=self)

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """A publisher drops messages above its limit, and a lost `idle` would leave the user's cell waiting."""
        context.setsockopt(zmq.SNDHWM, 0)  # the default of sockets that the context makes from now on
        super().init_iopub(context)  # type: ignore[no-untyped-call]
        del context.sockopts[zmq.SNDHWM]


# `%config` knows it by this name.
GpuProcessApp.__name__ = IPKernelApp.__name__


def _raise_oom_score() -> None:
    """The guardian did this already, unless somebody started the module by hand."""
    own, parents = (Path(f"/proc/{process}/oom_score_adj") for process in ("self", os.getppid()))
    if int(own.read_text("ascii")) <= int(parents.read_text("ascii")):
        guardian.raise_oom_score(guardian.OOM_SCORE_RAISE)


def main(arguments: Sequence[str]) -> None:
    """Run the GPU process until it is killed."""
    for shared in (BegunCell, SaveStops, RestoredComponent):
        shared.check()
    _raise_oom_score()
    # In memory: `In`, `Out` and %history work, while the user's history database holds the notebook's cells once.
    in_memory = "--HistoryManager.hist_file=:memory:"
    # The Jupyter server that the environment names is not its parent, whose end it would wait for.
    no_parent = "--IPKernelApp.parent_handle=0"
    GpuProcessApp.launch_instance([*arguments, in_memory, no_parent])
