"""One command in the foreground, under a guardian that leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.processes import cgroups, guardian
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE, end_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Between SIGTERM and SIGKILL when `nls run` itself is killed; a stop asked for by the daemon brings its own grace.
ORPHAN_GRACE_S: Final = 2.0
END_TIMEOUT_S: Final = 10.0
# Blocked while the guardian starts: it keeps them for the command.
_KEPT: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})


class NotStarted(Exception):  # noqa: N818 - says what happened
    """The command could not be executed; `number` is the errno."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class ForegroundCommand:
    """The command's process and its guardian. It shares our terminal and process group, so that Ctrl-C reaches it."""

    def __init__(
        self, process: ProcessId, workload: WorkloadId, guardian_pid: int, report: asyncio.StreamReader
    ) -> None:
        self.process = process
        self._workload = workload
        self._guardian_pid = guardian_pid
        self._report = report
        self._pidfd = os.pidfd_open(guardian_pid)
        self._wait_status: int | None = None
        self._ended = False

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], mask: set[signal.Signals]
    ) -> ForegroundCommand:
        """Run `command` with signal mask `mask`; returns after exec. `environment` names its workload.

        Raises NotStarted, OSError.

        What a terminal sends from now on reaches the command, even if it has not begun. Call it in the thread that
        lives as long as the process: the guardian dies with the thread that started it.
        """
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)  # noqa: FBT003 - its only signature
        arguments = [*guardian.beginning(), "--grace", str(ORPHAN_GRACE_S), "--report-fd", str(writing)]
        arguments += ["--mask", ",".join(str(int(number)) for number in mask)]
        workload = WorkloadId(environment[WORKLOAD_VARIABLE])
        cgroup = cgroups.make_for(workload)
        arguments += [] if cgroup is None else ["--cgroup", str(cgroup)]
        try:
            # Blocks for the few milliseconds of a vfork; asyncio's own way can set no signal mask.
            pid = os.posix_spawn(  # noqa: ASYNC221
                sys.executable, [*arguments, "--", *command], environment, setsigmask=mask | _KEPT
            )
        finally:
            os.close(writing)
        report = await _reader(reading)
        first = (await report.readline()).split()
        if first[:1] != [b"started"]:
            os.waitpid(pid, 0)  # noqa: ASYNC222 - it closed its report, so it is ending
            await asyncio.to_thread(end_all, workload, os.geteuid(), [], END_TIMEOUT_S)
            raise NotStarted(int(first[1]) if first[:1] == [b"failed"] else 0)
        return cls(ProcessId(int(first[1]), int(first[2])), workload, pid, report)

    async def wait(self) -> int:
        """Until both guardians, the command and all its descendants are gone; returns its wait status. Called once."""
        async for line in self._report:
            words = line.split()
            if words[0] == b"ended":
                self._wait_status = int(words[1])
                self._ended = True
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self._pidfd, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._pidfd)
        _, status = os.waitpid(self._guardian_pid, 0)  # noqa: ASYNC222 - its pidfd says that it has ended
        self._ended = True
        os.close(self._pidfd)
        if self._wait_status is None or os.WIFSIGNALED(status):
            # Guardians that were killed left what there was; the death signal took the command with them.
            await asyncio.to_thread(end_all, self._workload, os.geteuid(), [self.process], END_TIMEOUT_S)
        return signal.SIGKILL if self._wait_status is None else self._wait_status

    def send(self, number: int) -> bool:
        """Pass a signal on to the command, if it still runs. False when it may not be signalled (another user's)."""
        if self._ended:
            return True
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.process.pid)
            try:
                stat = guardian.read_stat(self.process.pid)
                # One that is hidden from us may not be signalled either.
                if stat is None or stat[1] == self.process.start_time:
                    signal.pidfd_send_signal(handle, number)
            except PermissionError:
                return False
            finally:
                os.close(handle)
        return True

    async def kill_after(self, grace_s: float) -> None:
        """SIGKILL after `grace_s`, in which a command that was sent SIGTERM also takes it if it stands (Ctrl-Z)."""
        self.send(signal.SIGCONT)
        await asyncio.sleep(grace_s)
        self.send(signal.SIGKILL)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
