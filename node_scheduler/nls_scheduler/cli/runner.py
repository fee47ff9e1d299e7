"""What `nls run` does: wait for a GPU, run one command on it under a guardian, obey the daemon, give it back."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.waiting_line import WaitingLine
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.link import Report
from nls_scheduler.client.patience import Patience
from nls_scheduler.processes.foreground import ForegroundCommand, NotStarted
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE
from nls_scheduler.processes.signals import heeded
from nls_scheduler.units.sizes import format_seconds
from nls_scheduler.wire.errors import DaemonUnreachable, Problem
from nls_scheduler.wire.protocol import CommandMessage, DaemonMessage, ErrorMessage, beside_users

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from nls_scheduler.client.link import SupervisorLink

TICK_S: Final = 1.0
RELEASE_S: Final = 1.0
"""A daemon that does not hear of the end within this sees it by the end of this process."""
GOODBYE_S: Final = 5.0
"""A member that has ended waits so long for the daemon to have heard of it."""
# A terminal sends these to the command itself, as to everybody in the foreground: twice would be once too often.
_SENT_BY_TERMINALS: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
# A gang's member that its user ends is not one that died: the gang does not start it again.
_MEANT_TO_END: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM})
_RELEASED: Final = "the workload was released"


@dataclass(frozen=True, slots=True)
class Ending:
    """How `nls run` ends: by a signal, or with an exit code and perhaps a sentence for the user.

    Attributes:
        why: for the history, where nothing else has told it and it is not that its user has ended it.
    """

    code: int | None = None
    signal: int | None = None
    message: str = ""
    why: str = ""


class Runner:
    """One `nls run`, from the submission to the exit code."""

    SIGNALS: ClassVar = frozenset(
        {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
    )

    def __init__(
        self,
        command: Sequence[str],
        fields: Mapping[str, Any],
        socket: Path | None,
        tell: Callable[[str], None],
        max_wait_s: float | None = None,
    ) -> None:
        """`fields` go to the daemon as they are; `tell` prints one sentence for the user; see `_give_up`."""
        self._command = command
        self.signals = heeded(self.SIGNALS)
        self._fields = fields
        self._socket = socket
        self._tell_user = tell
        self._max_wait_s = max_wait_s
        self._patience: asyncio.TimerHandle | None = None
        self._why = "the daemon has not answered"
        self._line = WaitingLine(sys.stderr)
        self._running: ForegroundCommand | None = None
        self._starting = False
        self._early_signals: list[int] = []
        self._stopping: CommandMessage | None = None
        self._signalled = self._given_up = False
        self._died: Ending | None = None
        """How the command of a gang's member ended, until the gang starts again."""
        self._finished: Ending | None = None
        """How it ended for good, while the daemon is yet to say that it knows."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, mask: set[signal.Signals]) -> Ending:
        """The whole life. `signals` are blocked in all threads; `mask` is what the command's mask is to be.

        Raises DaemonUnreachable and Problem while there is nothing to lose yet.
        """
        loop = asyncio.get_running_loop()
        self._mask = mask
        self._ending: asyncio.Future[Ending] = loop.create_future()
        threading.Thread(target=self._await_signals, args=(loop,), daemon=True, name="signals").start()
        life = asyncio.create_task(self._live())
        try:
            await asyncio.wait({life, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            if not self._ending.done():
                self._end(life.result())
            return self._ending.result()
        finally:
            self._line.clear()
            self._wait_no_longer()
            life.cancel()
            with suppress(asyncio.CancelledError, DaemonUnreachable, Problem):
                await life

    async def _live(self) -> Ending:
        self._wait_patiently()
        client = await DaemonClient.connect(self._socket, patience=Patience(self._tell))
        self._spawn(self._tick())
        try:
            while (ending := await self._queue_up(client)) is None:
                self._tell("the daemon has lost its journal, and this command's place in line; it is submitted again")
            return ending
        finally:
            for task in tuple(self._tasks):
                task.cancel()

    async def _queue_up(self, client: DaemonClient) -> Ending | None:
        """From a submission on; `None`: nothing runs, and the daemon knows nothing of it any more."""
        view = await client.submit(**self._fields)
        try:
            if WORKLOAD_VARIABLE in os.environ and (why := _held_by_its_parent(await client.status(), view)):
                await client.release(view["id"], f"it {why}")
                message = f"{self._command[0]} {why}: start it there without nls run, or ask for less"
                return Ending(exit_codes.NO_DAEMON, message=message)
            async with client.supervise(view["id"], self._report, only=True) as link:
                link.on_connection = self._on_connection
                self._wait_patiently()
                return await self._obey(link)
        except Problem as problem:
            if problem.status != HTTPStatus.NOT_FOUND:
                raise
            return _not_begun(_RELEASED)  # before it was connected
        finally:
            # Where the daemon has gone there is nothing to release, and our own end ends the lease.
            why = self._ending.result().why if self._ending.done() else ""
            with suppress(DaemonUnreachable, Problem, TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await DaemonClient(client.socket).release(view["id"], why)

    def _tell(self, sentence: str) -> None:
        self._line.make_way()
        self._tell_user(sentence)

    def _report(self) -> Report:
        running = self._running
        if running is None:
            return Report()
        return Report(process=(running.process.pid, running.process.start_time), ready=True)

    async def _obey(self, link: SupervisorLink) -> Ending | None:
        try:
            async for message in link:
                await self._handle(link, message)
            why = _RELEASED
        except Problem as problem:
            why = str(problem)
            if problem.status == HTTPStatus.NOT_FOUND and self._waits:
                return None
        if self._finished is not None:
            return self._finished
        if self._running is None and self._stopping is not None:
            return Ending(exit_codes.EVICTED, message=f"{self._command[0]} was stopped: {self._stopping.reason}")
        if self._running is None and not self._starting:
            return _not_begun(why)
        if self._stopping is None:
            self._tell(f"{why}; the command goes on without the daemon")
        return await self._ending

    async def _handle(self, link: SupervisorLink, message: DaemonMessage) -> None:
        if isinstance(message, ErrorMessage):
            self._tell(str(message.problem))
        elif not isinstance(message, CommandMessage):
            self._why = message.view["reason"]
            self._line.show(message.view)
            self._see_failure(message.view)
        elif message.command == "start_process":
            await self._start(link, message)
        elif message.command == "stop_process":
            await self._stop(link, message)
        else:
            reason = "a command has no saved state"
            await link.send("suspend_failed", command_id=message.command_id, reason=reason)

    def _see_failure(self, view: Mapping[str, Any]) -> None:
        """What is given up ends, a gang as a whole; whose own command died tells with that one's exit code."""
        if view["phase"] == "failed":
            died = self._died or Ending(exit_codes.EVICTED)
            self._end(Ending(died.code, died.signal, message=view["reason"], why=view["reason"]))

    @property
    def _waits(self) -> bool:
        """Whether nothing runs or is on its way, and something is still to."""
        return self._running is None and not self._starting and self._finished is None

    @property
    def _in_gang(self) -> bool:
        return self._fields.get("gang") is not None

    async def _start(self, link: SupervisorLink, message: CommandMessage) -> None:
        self._line.clear()
        self._wait_no_longer()
        self._starting, self._stopping, self._died, self._signalled = True, None, None, False
        environment = {**os.environ, **beside_users(message.environment, os.environ)}
        try:
            running = await ForegroundCommand.start(self._command, environment, self._mask)
        except (NotStarted, OSError) as error:
            number = error.number if isinstance(error, NotStarted) else error.errno
            await link.send("start_failed", command_id=message.command_id, reason=f"{self._command[0]}: {error}")
            self._end(_not_started(number or 0))
            return
        self._running, self._starting = running, False
        process = running.process
        await link.send(
            "process_started", command_id=message.command_id, pid=process.pid, start_time=process.start_time
        )
        await link.send("process_ready", command_id=message.command_id)
        self._spawn(self._await_end(link, running))
        for number in self._early_signals:
            self._pass_on(running, number)
        self._early_signals.clear()

    def _await_the_gang(self, ending: Ending, how: str) -> None:
        """The daemon has all of the gang start again, or gives it up; both come as messages."""
        if self._stopping is None:
            self._died = ending
            self._tell(f"{self._command[0]} {how}; gang {self._fields['gang']} stops and starts again")

    async def _stop(self, link: SupervisorLink, message: CommandMessage) -> None:
        running = self._running
        if running is None:
            await link.send("process_exited", reason="it was not running")
            return
        if self._stopping is None:
            self._tell(f"stopping {self._command[0]}: {message.reason}")
            self._pass_on(running, signal.SIGTERM)
        self._stopping = message
        self._spawn(running.kill_after(message.grace_s))

    async def _await_end(self, link: SupervisorLink, running: ForegroundCommand) -> None:
        code = os.waitstatus_to_exitcode(await running.wait())
        self._running = None
        how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        process = running.process
        status = code if code >= 0 else 128 - code
        await link.send("process_exited", pid=process.pid, start_time=process.start_time, reason=how, code=status)
        stopped = self._stopping
        ending = Ending(code) if code >= 0 else Ending(signal=-code)
        meant_to_end = self._signalled if stopped is None else self._given_up
        if self._in_gang and not meant_to_end and (stopped is not None or status):
            self._await_the_gang(ending, how)
        elif self._in_gang and stopped is None:
            # A release could overtake the news that it ended well, and its gang would take it for one that went away.
            self._finished = ending
            asyncio.get_running_loop().call_later(GOODBYE_S, self._end, ending)
        elif stopped is None:
            self._end(ending)
        elif not self._fields.get("requeue"):
            self._end(Ending(exit_codes.EVICTED, message=f"{self._command[0]} was stopped: {stopped.reason}"))
        elif self._given_up:
            self._end(ending)
        else:
            self._wait_patiently()

    def _wait_patiently(self) -> None:
        """From now on it is without a GPU."""
        if self._max_wait_s is not None and self._patience is None and self._waits:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._max_wait_s, self._give_up, self._max_wait_s)

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self, waited_s: float) -> None:
        not_run = "was not run" if self._stopping is None else "was not started again"
        why = f"no GPU within {format_seconds(waited_s)}"
        message = f"{why}: {self._why}. {self._command[0]} {not_run}"
        self._end(Ending(exit_codes.NO_GPU_IN_TIME, message=message, why=f"{why} (--max-wait)"))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._line.tick()

    def _await_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: only this way is it known whether a terminal or somebody else sent a signal."""
        while True:
            received = signal.sigwaitinfo(self.signals)
            with suppress(RuntimeError):  # the loop has just ended, and with it the need
                loop.call_soon_threadsafe(self._on_signal, received.si_signo, received.si_code > 0)

    def _on_signal(self, number: int, from_kernel: bool) -> None:  # noqa: FBT001 - passed by position by the loop
        if self._finished is not None:
            return  # it ends within GOODBYE_S
        if self._running is None and not self._starting:
            self._end(Ending(exit_codes.INTERRUPTED) if number == signal.SIGINT else Ending(signal=number))
            return
        meant_to_end = number in _MEANT_TO_END
        self._signalled = self._signalled or meant_to_end
        # Any earlier one the command may have taken and gone on, as an interpreter takes Ctrl-C.
        self._given_up = self._given_up or (meant_to_end and self._stopping is not None)
        if from_kernel and number in _SENT_BY_TERMINALS:
            return
        if self._running is None:
            self._early_signals.append(number)
        else:
            self._pass_on(self._running, number)

    def _pass_on(self, running: ForegroundCommand, number: int) -> None:
        """What has become another user's (sudo) a terminal's signals reach, and ours do not."""
        if not running.send(number):
            pid = running.process.pid
            self._tell(f"{self._command[0]} runs as another user, who alone can end it: `kill {pid}`")

    def _on_connection(self, connected: bool) -> None:  # noqa: FBT001 - the link's callback
        if not connected and self._running is None and not self._ending.done():
            self._tell("the daemon does not answer; waiting for it")

    def _end(self, ending: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = f"a defect of nls run, please report it: {type(error).__name__}: {error}"
            self._end(Ending(exit_codes.START_FAILED, message=message))


def _held_by_its_parent(status: Mapping[str, Any], view: Mapping[str, Any]) -> str | None:
    """Why what is started inside a workload can never run while that is there; `None`: it can."""
    inside = os.environ.get(WORKLOAD_VARIABLE)
    parent = next((each for each in status["workloads"] if each["id"] == inside), None)
    if parent is None:
        return None
    gpus = [gpu for gpu in status["gpus"] if gpu["pool"] in view["pools"]]
    held = dict.fromkeys(parent["home"], parent["request_bytes"])
    free = [gpu["memory_total_bytes"] - held.get(gpu["uuid"], 0) for gpu in gpus]
    if sum(room >= view["request_bytes"] for room in free) >= view["gpu_count"]:
        return None
    return f"was started inside {parent['name']}, which holds what it would need as long as it runs"


def _not_begun(why: str) -> Ending:
    return Ending(exit_codes.NO_DAEMON, message=f"ended before the command could start: {why}")


def _not_started(number: int) -> Ending:
    """`number` is the errno of exec, of which the guardian has told; 0: the guardian itself ended."""
    if number == errno.ENOENT:
        return Ending(exit_codes.NOT_FOUND)
    if number == 0:
        return Ending(exit_codes.START_FAILED, message="the command could not be started: its guardian ended first")
    return Ending(exit_codes.CANNOT_EXECUTE)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
