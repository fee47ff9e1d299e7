"""Widgets whose Python half lives in the GPU process: what the frontend sends them goes there.

For each comm that the GPU process opens, or that the frontend opens there, the notebook's kernel has a proxy in its
own registry of comms. So ipykernel's own handlers find it, lists of comms (`comm_info_request`) hold both sides' comms,
and the kernel's own widgets are none of our business.
"""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any

from comm import create_comm

from nls_jupyter.between.restoring import COMM_BACK
from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.pending import RequestFailed, accepted

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ipykernel.ipkernel import IPythonKernel

    from nls_jupyter.notebook.relay import OutputRelay
    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.loop_thread import LoopThread
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.supervisor import Supervisor

_log = logging.getLogger(__name__)

# How often a thread that waits for a callback looks whether the supervisor's thread still lives.
_LOOK_AFTER_S = 5.0
# A callback that does not react to Ctrl-C is left alone with the third one.
_GIVES_UP_AFTER = 3
_SUBSHELL_WITHIN_S = 5.0
# What opens this asks one side for all its widgets at once; a frontend that is refused asks for each that is listed.
_ALL_WIDGETS = "jupyter.widget.control"
_WIDGET = "jupyter.widget"
# Target of comms whose GPU process is gone; what their frontend still sends is noted.
_GONE = "nls.gone"
_NOTHING_HAPPENED = (
    "A widget was used whose GPU process is gone, so nothing happened; it works again once a cell brought it back."
)


class ProxyComm:
    """Stands for one comm of the GPU process in the kernel's registry.

    Attributes:
        comm_id: as both ends know it.
        target_name: for lists of comms.
        process: the GPU process in which the comm lives; it does not come back in another one.
        gone: that process has ended.
    """

    def __init__(self, comms: GpuComms, comm_id: str, target_name: str, process: GpuProcess) -> None:
        self._comms = comms
        self._closed = False  # ipykernel sets it when the frontend closes the comm
        self.comm_id = comm_id
        self.target_name = target_name
        self.process = process
        self.gone = False

    def process_has_gone(self) -> None:
        """A frontend that loads a notebook's widgets waits for those in the list of their target."""
        self.target_name = _GONE
        self.gone = True

    def handle_msg(self, message: Message) -> None:
        """Called by ipykernel, in whichever thread its shell or subshell has; returns when the callback is over."""
        self._comms.tell(self.process, "nls_comm_msg", message)

    def handle_close(self, message: Message) -> None:
        """Called by ipykernel when the frontend has closed it."""
        self._comms.tell(self.process, "nls_comm_close", message)


class GpuComms:
    """The comms of one notebook's GPU processes.

    A callback counts as a cell for the scheduler: its workload executes meanwhile. One that is too late for its GPU
    process brings nothing back; whoever used the widget reads that, once for each process, where frontends show what
    callbacks print.
    """

    def __init__(self, kernel: IPythonKernel, thread: LoopThread, supervisor: Supervisor, relay: OutputRelay) -> None:
        self._registry: Any = kernel.comm_manager
        self._thread = thread
        self._supervisor = supervisor
        self._relay = relay
        self._lost: GpuProcess | None = None
        self._followed: GpuProcess | None = None
        self._subshell: tuple[GpuProcess, str | None] | None = None

    def notice(self, message: Message) -> None:
        """Called in the loop's thread for each message of the GPU process, before it is shown."""
        msg_type, content = message["header"]["msg_type"], message["content"]
        if msg_type in {"comm_open", COMM_BACK}:
            self._add(content)
        elif msg_type == "comm_close" and isinstance(self._registry.comms.get(content["comm_id"]), ProxyComm):
            del self._registry.comms[content["comm_id"]]

    def _add(self, content: Message) -> None:
        process = self._supervisor.keeper.process
        if process is None:
            return
        proxy = ProxyComm(self, content["comm_id"], content["target_name"], process)
        self._registry.register_comm(proxy)
        self._thread.soon(lambda: self._follow(process))

    def _follow(self, process: GpuProcess) -> None:
        """In the loop's thread."""
        if self._followed is not process or process.exited.done():
            self._followed = process
            process.exited.add_done_callback(lambda _: self._process_has_gone(process))

    def _process_has_gone(self, process: GpuProcess) -> None:
        """In the loop's thread. Who still uses its widgets is told so; those of processes before it are forgotten."""
        for comm_id, comm in list(self._registry.comms.items()):
            if isinstance(comm, ProxyComm) and comm.process is process:
                comm.process_has_gone()
            elif isinstance(comm, ProxyComm) and comm.gone:
                self._registry.comms.pop(comm_id, None)

    def opener(self, own: Callable[..., Any], *, auto: bool) -> Callable[..., Any]:
        """A handler of `comm_open`.

        Args:
            own: the kernel's handler, for targets that it knows, and while there is no GPU process: ipykernel then
                closes the comm, as it does with every target that nobody has registered.
            auto: whether a target that the kernel does not know is looked for in the GPU process.
        """

        def comm_open(stream: Any, ident: Any, message: Message) -> None:
            content, process = message["content"], self._supervisor.keeper.process
            there = auto and process is not None and self._supervisor.keeper.usable
            known = content["target_name"] in self._registry.targets
            if known and content["target_name"] == _ALL_WIDGETS and self._has_widgets():
                self._refuse(content)
            elif process is None or not there or known:
                own(stream, ident, message)
            else:
                self._add(content)
                self.tell(process, "nls_comm_open", message)

        return comm_open

    def _refuse(self, content: Message) -> None:
        refused = create_comm(comm_id=content["comm_id"], target_name=content["target_name"], primary=False)
        self._registry.register_comm(refused)
        refused.close()

    def _has_widgets(self) -> bool:
        comms = list(self._registry.comms.values())
        return any(isinstance(comm, ProxyComm) and comm.target_name == _WIDGET for comm in comms)

    def tell(self, process: GpuProcess, msg_type: str, message: Message) -> None:
        """Hand a frontend's message over, and wait until it was dealt with. Ctrl-C reaches the callback."""
        future = self._thread.submit(self._pass_on(process, msg_type, message))
        interrupts = 0
        while True:
            try:
                future.result(_LOOK_AFTER_S)
            except KeyboardInterrupt:
                interrupts += 1
                self._interrupt(future, interrupts)
            except NotYet:
                if not self._thread.alive:
                    _log.error("The thread that looks after the GPU process has ended: restart the kernel.")
                    return
            except CancelledError:
                return
            else:
                return

    def _interrupt(self, future: Future[None], interrupts: int) -> None:
        if interrupts >= _GIVES_UP_AFTER:
            future.cancel()
        self._thread.soon(self._supervisor.keeper.interrupt)

    async def _pass_on(self, process: GpuProcess, msg_type: str, message: Message) -> None:
        """In the loop's thread."""
        keeper, orders = self._supervisor.keeper, self._supervisor.place.orders
        if keeper.process is not process or not keeper.still_usable():
            self._lose(process, message)
            return
        msg_id = self._relay.follow_directly(message)
        if orders is not None and msg_type != "nls_comm_close":
            await orders.tell_cell_started(msg_id)
        try:
            # While a cell runs there, the main shell would deal with it only afterwards.
            aside = keeper.executing or message["header"].get("subshell_id") is not None
            await process.tell(
                msg_type,
                message["content"],
                msg_id=msg_id,
                metadata=message.get("metadata"),
                buffers=message.get("buffers") or (),
                subshell_id=await self._subshell_of(process) if aside else None,
            )
        except GpuProcessDied:
            self._lose(process, message)
        finally:
            self._relay.finish_directly(msg_id)
            if orders is not None and msg_type != "nls_comm_close":
                await orders.tell_cell_finished(msg_id)

    async def _subshell_of(self, process: GpuProcess) -> str | None:
        """One subshell for all callbacks; `None` where ipykernel has none (before 7): there they wait for the cell."""
        if self._subshell is None or self._subshell[0] is not process:
            self._subshell = (process, await _new_subshell(process))
        return self._subshell[1]

    def _lose(self, process: GpuProcess, message: Message) -> None:
        if self._lost is not process:
            self._lost = process
            self._supervisor.log.add(_NOTHING_HAPPENED)
            self._relay.say(message, f"GPU: {_NOTHING_HAPPENED}")


async def _new_subshell(process: GpuProcess) -> str | None:
    try:
        reply = await process.request("create_subshell_request", {}, channel="control", timeout_s=_SUBSHELL_WITHIN_S)
        subshell_id: str = accepted(reply)["subshell_id"]
    except (TimeoutError, RequestFailed) as error:
        _log.info("The GPU process has no subshell, so widgets wait for the end of the running cell: %s", error)
        return None
    return subshell_id
