"""Starts a command under a guardian and knows when it, and all that it started, has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from nls_jupyter.between.seams import INTERPRETER_FLAGS
from nls_jupyter.supervisor.own_code import OWN_CODE
from nls_scheduler.processes import cgroups, debuggers, guardian, signals
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)

OUTPUT_TAIL_BYTES = 16 * 1024
_CAUSE_LIMIT = 200
_NO_WORKLOAD = "process"
_PIPE_READ_BYTES = 64 * 1024
_WITH_ITS_GUARDIAN = "ended together with its guardian, the process that looks after it, which was killed"
# At their first use JAX takes three quarters of a Gpu's memory and TensorFlow all of it, as if it were theirs alone
# (docs.jax.dev, "GPU memory allocation"; tensorflow.org, "Use a GPU"). Whoever sets these means what they say.
_AS_NEEDED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
# All GPU processes of this kernel hash alike, as one process does: a set goes on in the order that cells have seen, and
# what they have made of hashes fits. It is not there for what cells start. Whoever sets a seed has that one.
_HASH_SEED = "PYTHONHASHSEED"
_HASHES_ALIKE = {_HASH_SEED: str(1 + secrets.randbelow(2**32 - 1)), "NLS_OWN_HASH_SEED": "1"}


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: by an exit code or by a signal; neither is known when its guardian was killed first.

    Attributes:
        why: a predicate for a message where it is known why it ended.
    """

    returncode: int | None
    signal: int | None
    why: str | None = None

    @classmethod
    def from_wait_status(cls, wait_status: int) -> ExitStatus:
        """From what waitpid(2) gives."""
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(returncode=code, signal=None) if code >= 0 else cls(returncode=None, signal=-code)

    def describe(self) -> str:
        """A predicate for a message: `was killed by SIGSEGV (signal 11)`, `exited with code 3`."""
        if self.why is not None:
            return self.why
        if self.signal is not None:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = "a signal"
            hint = ", as the out-of-memory killer does" if self.signal == signal.SIGKILL else ""
            return f"was killed by {name} (signal {self.signal}){hint}"
        if self.returncode is not None:
            return f"exited with code {self.returncode}"
        return _WITH_ITS_GUARDIAN


class LaunchFailed(Exception):  # noqa: N818 - says what happened
    """A process could not be started or ended before it was of use. The message is one line.

    Attributes:
        output: the end of what it wrote; the message has the line of it that says why.
    """

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(f"{reason}: {_cause_in(output)}" if output else reason)
        self.output = output


class GpuProcessDied(Exception):  # noqa: N818
    """The GPU process ended while something was still expected of it."""

    def __init__(self, status: ExitStatus) -> None:
        super().__init__(f"the GPU process {status.describe()}")
        self.status = status


class GuardedProcess:
    """One command below its guardian.

    Everything here runs in the event loop's thread. That thread must live as long as the process should: the kernel
    sends the guardian its death signal when the thread that started it ends.

    Attributes:
        pid: of the command; `start_time` (clock ticks since boot) makes it unmistakable.
        ended: done as soon as the command itself is dead.
        exited: done when nothing is left: no descendant, no file in its directory.
    """

    def __init__(
        self, guardian_process: subprocess.Popen[bytes], directory: Path, cgroup: Path | None, report: int, output: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._guardian = guardian_process
        self._guardian_handle = os.pidfd_open(guardian_process.pid)
        self._handle: int | None = None
        self._directory = directory
        self._cgroup = cgroup
        self._ending: asyncio.Task[None] | None = None
        self._report = report
        self._report_text = b""
        self._report_closed = False
        self._guardian_killed = False
        self._why: str | None = None
        self._output = output
        self._output_tail = b""
        self.pid = 0
        self.start_time = 0
        self._started: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[ExitStatus] = self._loop.create_future()
        self.exited: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._loop.add_reader(report, self._read_report)
        self._loop.add_reader(output, self._read_output)
        self._loop.add_reader(self._guardian_handle, self._guardian_ended)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str | None],
        directory: Path,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> GuardedProcess:
        """Start `command`; returns after its exec succeeded.

        Args:
            command: program and arguments.
            environment: added to this process's own; `None` removes a variable.
            directory: its private directory, flat; deleted when it has ended, or when this process has.
            pass_fds: file descriptors that the command inherits.
            cwd: working directory, else this process's own.

        Raises:
            LaunchFailed: the command can't be executed.
            OSError: this process can open no more files.
        """
        with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
            report, report_of_guardian = _pipe(kept, given)
            output, output_of_command = _pipe(kept, given)
            cgroup = cgroups.make_for(environment.get(WORKLOAD_VARIABLE) or _NO_WORKLOAD)
            options = ["--session", "--report-fd", str(report_of_guardian)]
            options += [] if cgroup is None else ["--cgroup", str(cgroup)]
            try:
                with debuggers.not_followed(), signals.ctrl_c_waits():
                    process = subprocess.Popen(  # noqa: ASYNC220 - the thread that forks must be the one that lives on
                        [*OWN_CODE.guardian(), *options, "--remove", str(directory), "--", *command],
                        stdin=subprocess.DEVNULL,
                        stdout=output_of_command,
                        stderr=output_of_command,
                        env=_merged(environment),
                        cwd=cwd,
                        pass_fds=(report_of_guardian, *OWN_CODE.descriptors, *pass_fds),
                        start_new_session=True,  # from its first moment out of reach of a Ctrl-C meant for this process
                    )
            except OSError as error:
                if cgroup is not None:
                    cgroup.rmdir()
                raise LaunchFailed(f"{command[0]} cannot be started: {error}") from error
            kept.pop_all()
        self = cls(process, directory, cgroup, report, output)
        try:
            await self._started
        except asyncio.CancelledError:
            self.kill()
            raise
        return self

    def belong_to(self, workload: str) -> None:
        """Have the command, which was started for nobody, and all that it starts from now on, be of this workload."""
        if self._cgroup is not None and (cgroup := cgroups.make_for(workload, above=self._cgroup)) is not None:
            with contextlib.suppress(OSError):  # as for the guardian: an additional safety
                (cgroup / "cgroup.procs").write_text(str(self.pid), encoding="ascii")

    @property
    def alive(self) -> bool:
        """Whether the command itself lives. Asks the system: the news of an end takes a moment."""
        if self._handle is None or self.ended.done():
            return False
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return not poll.poll(0)

    def kill(self, why: str | None = None) -> None:
        """End the command and all its descendants now. Idempotent; `exited` tells when it is done.

        `why`: what its `ExitStatus` says then, unless it has ended before.
        """
        if why is not None and self.alive:
            self._why = why
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._guardian_handle, signal.SIGTERM)
                signal.pidfd_send_signal(self._guardian_handle, signal.SIGCONT)

    def interrupt(self) -> None:
        """SIGINT to the command's process group, as Jupyter interrupts a kernel: what it runs stops too.

        Whoever has sent it to all descendants of this process, as VS Code does, has reached the command already: a
        second one would interrupt what the cell does about the first.
        """
        if self._handle is None or self.ended.done():
            return
        with contextlib.suppress(ProcessLookupError):
            if signals.pends(self._guardian.pid, signal.SIGINT):
                signal.pidfd_send_signal(self._guardian_handle, signal.SIGUSR1)
                return
            signal.pidfd_send_signal(self._handle, 0)  # the group's leader is still there, so the number is its own
            os.killpg(self.pid, signal.SIGINT)

    def output_tail(self) -> str:
        """The end of what the command wrote to its standard output and error (not to a notebook)."""
        return self._output_tail.decode("utf-8", errors="replace").strip()

    def _read_report(self) -> None:
        chunk = _read(self._report)
        if chunk == b"":
            self._loop.remove_reader(self._report)
            self._report_closed = True
            if self._guardian_killed:
                self._guardians_ended()
        elif chunk is not None:
            *lines, self._report_text = (self._report_text + chunk).split(b"\n")
            for line in lines:
                self._understand(line.decode("ascii").split())

    def _understand(self, words: list[str]) -> None:
        match words:
            case ["started", pid, start_time]:
                self.pid, self.start_time = int(pid), int(start_time)
                self._open_handle()
                _finish(self._started, None)
            case ["failed", number]:
                reason = f"the command cannot be executed: {os.strerror(int(number))}"
                if not self._started.done():
                    self._started.set_exception(LaunchFailed(reason))
            case ["ended", wait_status]:
                _finish(self.ended, self._explained(ExitStatus.from_wait_status(int(wait_status))))
            case _:
                _log.error("The guardian reported %r, which means nothing.", words)

    def _explained(self, status: ExitStatus) -> ExitStatus:
        """The inner guardian kills the command as soon as the outer one is dead, which is the reason then."""
        if self._why is not None:
            return replace(status, why=self._why)
        if status.signal == signal.SIGKILL and (self._guardian.poll() or 0) < 0:
            return replace(status, why=_WITH_ITS_GUARDIAN)
        return status

    def _open_handle(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        stat = guardian.read_stat(self.pid)
        if stat is None or stat[1] != self.start_time:
            os.close(handle)  # it has ended already and the number is another's
        else:
            self._handle = handle

    def _read_output(self) -> None:
        chunk = _read(self._output)
        if chunk == b"":
            self._loop.remove_reader(self._output)
        elif chunk is not None:
            self._output_tail = (self._output_tail + chunk)[-OUTPUT_TAIL_BYTES:]

    def _guardian_ended(self) -> None:
        self._loop.remove_reader(self._guardian_handle)
        self._read_report()
        self._guardian_killed = self._guardian.wait() < 0
        if not self._guardian_killed or self._report_closed:
            self._guardians_ended()  # else the inner guardian is at work: the report ends with it

    def _guardians_ended(self) -> None:
        if not self._started.done():
            self._read_output()
            reason = "the guardian ended before the process started"
            self._started.set_exception(LaunchFailed(reason, self.output_tail() or "it said nothing"))
        if self._cgroup is not None and self._cgroup.exists():
            self._ending = self._loop.create_task(self._end_cgroup(self._cgroup))
        else:
            self._await_command()

    async def _end_cgroup(self, cgroup: Path) -> None:
        """Both guardians were killed: of what the command started only its cgroup still knows."""
        if not await asyncio.to_thread(guardian.end_cgroup, str(cgroup), guardian.CGROUP_TIMEOUT_S):
            _log.warning("Processes in %s do not end.", cgroup)
        self._await_command()

    def _await_command(self) -> None:
        if self._handle is not None and not self.ended.done():
            # It follows its guardians by its death signal, which takes a moment.
            self._loop.add_reader(self._handle, self._all_ended)
        else:
            self._all_ended()

    def _all_ended(self) -> None:
        self._read_output()
        for descriptor in (self._report, self._output, self._guardian_handle, self._handle):
            if descriptor is not None:
                self._loop.remove_reader(descriptor)
                os.close(descriptor)
        self._handle = None
        try:
            shutil.rmtree(self._directory)
        except FileNotFoundError:
            pass  # the guardian was first
        except OSError as error:
            _log.warning("%s cannot be removed: %s", self._directory, error)
        _finish(self.ended, ExitStatus(returncode=None, signal=None))
        _finish(self.exited, self.ended.result())


def interpreter() -> list[str]:
    """Python with the same options (-X, -W, -O) as this one, as multiprocessing starts its workers."""
    options: list[str] = INTERPRETER_FLAGS.of(subprocess, list)()
    # Jupyter starts its kernels so too: debugpy, which ipykernel loads, complains about frozen modules.
    frozen = [] if "frozen_modules" in sys._xoptions else ["-Xfrozen_modules=off"]
    return [sys.executable, *options, *frozen]


def _cause_in(output: str) -> str:
    """The first line of the last exception's text, or else the last line."""
    _, traceback, text = output.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    raised = next((line for line in lines if not line[0].isspace()), lines[-1]) if traceback else lines[-1]
    cause = raised.strip()
    return cause if len(cause) <= _CAUSE_LIMIT else f"{cause[:_CAUSE_LIMIT]}…"


def _finish(future: asyncio.Future[_Value], value: _Value) -> None:
    if not future.done():
        future.set_result(value)


def _pipe(kept: contextlib.ExitStack, given: contextlib.ExitStack) -> tuple[int, int]:
    """The end that is read here without waiting, and the guardian's; each is its stack's to close."""
    read, write = os.pipe2(os.O_CLOEXEC)
    kept.callback(os.close, read)
    given.callback(os.close, write)
    os.set_blocking(read, False)
    return read, write


def _read(descriptor: int) -> bytes | None:
    """What there is; `b""` at the end, `None` when nothing is there now."""
    try:
        return os.read(descriptor, _PIPE_READ_BYTES)
    except BlockingIOError:
        return None


def _merged(environment: Mapping[str, str | None]) -> dict[str, str]:
    is_random = os.environ.get(_HASH_SEED, "random") in {"", "random"}
    merged: dict[str, str | None] = {
        **_AS_NEEDED,
        **os.environ,
        **(_HASHES_ALIKE if is_random else {}),
        **environment,
    }
    return {name: value for name, value in merged.items() if value is not None}
