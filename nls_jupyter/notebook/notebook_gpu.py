"""One kernel's GPU: the thread, the supervisor and the relay, put together at first use."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import sys
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_core.paths import jupyter_runtime_dir

from nls_jupyter.between import seams
from nls_jupyter.between.errors import GpuUnavailable
from nls_jupyter.notebook import breakpoints
from nls_jupyter.notebook.cells import CellRunner
from nls_jupyter.notebook.comms import GpuComms
from nls_jupyter.notebook.ending import Ending
from nls_jupyter.notebook.questions import Questions
from nls_jupyter.notebook.relay import OutputRelay
from nls_jupyter.notebook.retry import LOST, Retries
from nls_jupyter.notebook.status_view import GpuStatus
from nls_jupyter.supervisor.keep_now import KeepRequests
from nls_jupyter.supervisor.loop_thread import LoopThread
from nls_jupyter.supervisor.memory_guard import MemoryGuard
from nls_jupyter.supervisor.supervisor import Supervisor
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.patience import Patience
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ipykernel.ipkernel import IPythonKernel

    from nls_jupyter.between.cell_result import CellResult
    from nls_jupyter.notebook.cells import Answer, Ask
    from nls_jupyter.saved_state.on_volume import KeptFiles
    from nls_jupyter.supervisor.ahead import Ahead
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.standby_settings import StandbySettings

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 3.0
# For a cell that runs when the kernel is told to end: Jupyter's server waits for five seconds in all.
_GRACE_S = 1.0


class NotebookGpu:
    """What the magics use. Every method is called from the thread that runs the notebook's cells."""

    def __init__(
        self,
        kernel: IPythonKernel,
        defaults: Callable[[], Mapping[str, Any]],
        command: Callable[[str], GpuStatus | None],
        standby: StandbySettings | None = None,
        kept_files: KeptFiles | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        self._kernel = kernel
        relay = OutputRelay(kernel)
        numbers = itertools.count(1)
        runtime = Path(jupyter_runtime_dir()) / "nls"
        self._thread = LoopThread("nls-supervisor") if ahead is None else ahead.thread
        self._owner = os.getpid()
        self._waiting: set[SimpleQueue[str | None]] = set()
        patience = Patience(self._tell)
        self.supervisor = Supervisor(
            connect=partial(DaemonClient.connect, patience=patience),
            forward=self._forward,
            directory=lambda: runtime / f"gpu-{os.getpid()}-{next(numbers)}",
            defaults=defaults,
            standby=standby,
            patience=patience,
            kept_files=kept_files,
            ahead=ahead,
        )
        for sentence in seams.missing():
            self.supervisor.log.add_once(sentence)
        self._relay = relay
        self._runner = CellRunner(kernel, self._thread, self.supervisor, relay, command)
        self.comms = GpuComms(kernel, self._thread, self.supervisor, relay)
        self.questions = Questions(self._thread, self.supervisor)
        self._thread.submit(self._guard().run())
        self._ending = Ending(kernel, self._keep, self.close)
        self._keep_requests: KeepRequests | None = None
        if kept_files is not None:
            self._keep_requests = KeepRequests(self.supervisor.lasting, runtime, kept_files.notebook)
        self._thread.submit(self._look_back())
        atexit.register(self.close)

    async def _look_back(self) -> None:
        """What will be asked of this kernel, from its first cell on, and what an earlier one has left."""
        if self._keep_requests is not None:
            try:
                await self._keep_requests.listen()
            except OSError as error:
                self.supervisor.log.add_once(f"A pod's hook cannot ask this kernel to keep its variables: {error}.")
        await self.supervisor.lasting.announce()

    def _guard(self) -> MemoryGuard:
        supervisor = self.supervisor
        return MemoryGuard(supervisor.keeper, supervisor.log, rest=supervisor.place.rest)

    @property
    def belongs_here(self) -> bool:
        """False in a forked child of the kernel, where there is only a dead copy of all this."""
        return os.getpid() == self._owner

    def call(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Do `work` in the supervisor's thread. What the daemon refuses becomes GpuUnavailable with its sentence."""
        future, told = self._thread.submit(work), SimpleQueue[str | None]()
        future.add_done_callback(lambda _: told.put(None))
        self._waiting.add(told)
        try:
            while (sentence := told.get()) is not None:
                print(f"GPU: {sentence}; Ctrl-C ends this.", file=sys.stderr, flush=True)  # noqa: T201 - where users look
            return future.result()
        except (Problem, DaemonUnreachable) as error:
            raise GpuUnavailable(str(error)) from None
        finally:
            future.cancel()  # with whoever has interrupted this
            self._waiting.discard(told)

    def _tell(self, sentence: str) -> None:
        """In the supervisor's thread, for those that wait; a cell has its live line."""
        for told in tuple(self._waiting):
            told.put(sentence)

    def status(self) -> GpuStatus:
        """The node's status. Raises GpuUnavailable when there is no daemon and none can be started."""

        async def ask() -> GpuStatus:
            status = await (await self.supervisor.place.client()).status()
            keeper = self.supervisor.keeper
            saved = keeper.saved and keeper.saves.summary(keeper.saved.manifest, runs=keeper.usable)
            return GpuStatus(status, self.supervisor.workload_id, saved or "")

        return self.call(ask())

    def run(self, code: str, *, retry: bool = False, **options: Any) -> CellResult | None:
        """Run a cell in the GPU process; see `CellRunner.run`. `retry`: again if that is taken away, see `Retries`."""
        if breakpoints.are_unreached(self._kernel):
            print(f"GPU: {breakpoints.UNREACHED}", file=sys.stderr, flush=True)  # noqa: T201 - where users look
            options["alone"] = False
        first = options

        def attempt(number: int) -> CellResult | None:
            return self._runner.run(code, **(first if number == 1 else {**first, "wait": True, "alone": False}))

        return self._attempts(attempt, retry=retry)

    def keep_quiet(self, code: str) -> bool:
        """Keep what is no cell of the user's for GPU processes to come; False: there has been one, which gets it."""
        return self._thread.call(self.supervisor.keep_quiet(code))

    def execute(self, ask: Ask, *, retry: bool = False) -> Answer:
        """Run a cell of auto mode in the GPU process; see `CellRunner.execute`, and `run` for `retry`."""
        return self._attempts(lambda _: self._runner.execute(ask), retry=retry)

    def _attempts(self, attempt: Callable[[int], _Value], *, retry: bool) -> _Value:
        retries = Retries()
        if retry:
            self.call(self.supervisor.keeper.saves.hurry())
        while True:
            try:
                return attempt(retries.attempt)
            except (Problem, DaemonUnreachable) as error:
                raise GpuUnavailable(str(error)) from None
            except LOST as error:
                if not retry or self.supervisor.workload_id is None or not retries.again(error):
                    raise
                retries.announce(error, self.supervisor.keeper.saved)

    def _forward(self, message: Message) -> None:
        """In the supervisor's thread."""
        self.comms.notice(message)
        self._relay.forward(message)

    def _keep(self) -> None:
        """The kernel is told to end. However long it takes: who is in a hurry kills the kernel."""
        with contextlib.suppress(CancelledError):
            self._thread.submit(self.supervisor.lasting.keep(_GRACE_S)).result()

    def close(self) -> None:
        """End the GPU process with this kernel; a forked child of the kernel leaves it alone. Idempotent."""
        if not self.belongs_here or not self._thread.alive:
            return
        if not self._ending.came:
            self._keep()  # the user's exit()
        try:
            self._thread.submit(self._close()).result(_CLOSE_TIMEOUT_S)
        except (TimeoutError, CancelledError):
            _log.warning("The GPU process did not end in time; its guardian ends it with this kernel.")
        self._thread.stop()

    async def _close(self) -> None:
        if self._keep_requests is not None:
            self._keep_requests.close()
        await self.supervisor.close()
