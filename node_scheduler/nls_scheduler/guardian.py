"""Runs one command and makes sure that nothing of it outlives its purpose.

Started as `python -I -S guardian.py [options] -- COMMAND...` by whoever owns the command (a kernel, `nls run`). It must
stay a plain script: standard library only and few imports, because one copy lives as long as each GPU process does.

Three things end the command's whole family of processes, in whatever session or process group they hid: the command
ended, the guardian's parent died, or the guardian got SIGTERM. If the guardian itself is killed, the kernel's death
signal takes the command.

The report (`--report-fd`) is a pipe that gets one line per fact:
`started PID START_TIME` after exec succeeded, or `failed ERRNO`; `ended WAIT_STATUS` once the command is dead (its
descendants may still be dying). The guardian's own exit says that everything is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

USAGE = """usage: guardian.py [options] -- COMMAND [ARGUMENT...]
  --parent PID       end at once unless this is the parent process
  --session          own session; SIGTERM kills at once; the OOM killer prefers the command
  --grace SECONDS    without --session: time between forwarding SIGTERM and SIGKILL (default 10)
  --report-fd FD     pipe for the report
  --mask N,N,...     signals that the command begins with blocked (default: those that the guardian began with)
  --remove DIRECTORY delete this directory and the files in it at the end
  --reraise          when a signal killed the command, die from the same signal
"""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

OWN_NAME = b"guardian.py"
OOM_SCORE_RAISE = 500
CLEANERS_PATIENCE_S = 0.5
CLEANERS = (b"multiprocessing.resource_tracker", b"multiprocessing.semaphore_tracker", b"torch_shm_manager")

# In the foreground a terminal's Ctrl-Z must stop the guardian together with the command's group.
_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_FORWARDED = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH}
# A terminal sends these to the whole group itself (si_code SI_KERNEL): forwarding would deliver them twice.
_SENT_BY_TERMINALS = {signal.SIGHUP, signal.SIGWINCH}
_ENDED_BY_TERMINALS = {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}


class Options:
    """The command line, parsed. Raises `ValueError` with one sentence for a wrong one."""

    def __init__(self, arguments: list[str]) -> None:
        self.parent_pid: int | None = None
        self.session = False
        self.reraise = False
        self.grace_s = 10.0
        self.report_fd: int | None = None
        self.mask: set[int] | None = None
        self.remove: str | None = None
        rest = iter(arguments)
        for option in rest:
            if option == "--":
                break
            if option in ("--session", "--reraise"):
                setattr(self, option[2:], True)
                continue
            value = next(rest, None)
            if value is None:
                raise ValueError(f"unknown option, or one without its value: {option}")
            self._set(option, value)
        self.command = list(rest)
        if not self.command:
            raise ValueError("no command given after --")

    def _set(self, option: str, value: str) -> None:
        if option == "--parent":
            self.parent_pid = int(value)
        elif option == "--report-fd":
            self.report_fd = int(value)
        elif option == "--grace":
            self.grace_s = float(value)
        elif option == "--mask":
            self.mask = {int(number) for number in value.split(",") if number}
        elif option == "--remove":
            self.remove = value
        else:
            raise ValueError(f"unknown option: {option}")


def set_process_control(option: int, value: int) -> None:
    """prctl(2). Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def raise_oom_score(by: int) -> None:
    """Make the OOM killer prefer this process to those it came from; raising needs no privilege."""
    with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs start-up time
        score = min(1000, int(file.read()) + by)
        file.seek(0)
        file.write(str(score))


def read_stat(pid: int) -> tuple[int, int] | None:
    """Parent pid and start time (clock ticks since boot, proc(5) field 22) of a process, `None` when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # The command's name may hold anything, blanks and brackets too: fields count from the last bracket.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), int(fields[19])


def descendants(root: int) -> dict[int, int]:
    """Start time by pid of all processes below `root`, through any session, process group or namespace below it."""
    start_times: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (stat := read_stat(int(name))) is not None:
            parent, start_times[int(name)] = stat
            children.setdefault(parent, []).append(int(name))
    family: dict[int, int] = {}
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in family:
                family[pid] = start_times[pid]
                waiting.append(pid)
    return family


def is_cleaner(pid: int) -> bool:
    """Whether a process only waits for its family's end to delete the shared memory and semaphores they left."""
    command_line = _command_line(pid)
    return any(word in command_line for word in CLEANERS)


def is_guardian(pid: int) -> bool:
    """Whether a process runs this script, or says so."""
    return any(os.path.basename(word) == OWN_NAME for word in _command_line(pid).split(b"\0"))  # noqa: PTH119


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def kill(pid: int, start_time: int) -> bool:
    """SIGKILL the process of that pid and start time. False when it may not be signalled (another user's)."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        stat = read_stat(pid)
        if stat is not None and stat[1] == start_time:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(handle)
    return True


def _taken(signals: set[signal.Signals]) -> list[int]:
    """Those of `signals` (blocked) that have come."""
    taken = []
    while (received := signal.sigtimedwait(signals, 0)) is not None:
        taken.append(received.si_signo)
    return taken


def _unlink(path: str) -> None:
    try:  # noqa: SIM105 - one import fewer
        os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        pass  # its owner, dying in the middle of the same work, got this far


class Guardian:
    """Watches one command from its start to the end of its last descendant."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.commands_mask: set[int] = set()
        self.pid = 0
        self.wait_status: int | None = None

    def run(self) -> int:
        """The whole life. Returns the exit code; 125 without a start because the parent was gone already."""
        options = self.options
        ours = signal.valid_signals() if options.session else signal.valid_signals() - _JOB_CONTROL
        inherited = set(signal.pthread_sigmask(signal.SIG_BLOCK, ours))
        self.commands_mask = inherited if options.mask is None else options.mask
        set_process_control(PR_SET_CHILD_SUBREAPER, 1)
        set_process_control(PR_SET_PDEATHSIG, signal.SIGTERM)
        if options.parent_pid is not None and os.getppid() != options.parent_pid:
            self._remove_directory()
            return 125
        if options.session and os.getsid(0) != os.getpid():
            os.setsid()
        if options.report_fd is not None:
            os.set_inheritable(options.report_fd, False)  # noqa: FBT003 - its only signature
        number = self._start()
        if number:
            self._report(f"failed {number}")
            sys.stderr.write(f"cannot run {options.command[0]}: {os.strerror(number)}\n")
            self._remove_directory()
            return 127
        self._wait()
        self._kill_family()
        self._remove_directory()
        return self._exit_code()

    def _start(self) -> int:
        """Start the command; 0, or the errno with which exec failed."""
        guardian_pid = os.getpid()
        outcome, outcome_of_exec = os.pipe()  # closed by a successful exec, since Python's pipes are not inherited
        early = [] if self.options.session else _taken(_ENDED_BY_TERMINALS)
        self.pid = os.fork()
        if self.pid == 0:
            self._exec(guardian_pid, outcome_of_exec)
        os.close(outcome_of_exec)
        answer = os.read(outcome, 16)
        os.close(outcome)
        if answer:
            os.waitpid(self.pid, 0)
            return int(answer)
        stat = read_stat(self.pid)
        self._report(f"started {self.pid} {stat[1] if stat else 0}")
        for early_signal in early:  # whatever a terminal sends from now on reaches the command itself
            os.kill(self.pid, early_signal)
        return 0

    def _exec(self, guardian_pid: int, outcome: int) -> None:
        """In the forked child: become the command. Never returns."""
        try:
            set_process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian_pid:
                os._exit(125)
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
            if self.options.session:
                os.setpgid(0, 0)
                raise_oom_score(OOM_SCORE_RAISE)
                # An idle ipykernel ignores SIGINT, and ignoring is inherited.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, set())
            else:
                signal.pthread_sigmask(signal.SIG_SETMASK, self.commands_mask)
            os.execvp(self.options.command[0], self.options.command)  # noqa: S606 - a list, never a shell line
        except OSError as error:
            os.write(outcome, str(error.errno).encode())
        finally:
            os._exit(127)

    def _wait(self) -> None:
        """Until the command has ended or must end."""
        deadline: float | None = None
        watched = {signal.SIGCHLD} | (_FORWARDED if not self.options.session else {signal.SIGTERM})
        while True:
            self._reap()
            if self.wait_status is not None:
                return
            if deadline is None:
                received: signal.struct_siginfo | None = signal.sigwaitinfo(watched)
            else:
                received = signal.sigtimedwait(watched, max(0.0, deadline - time.monotonic()))
            if received is None:
                return
            if received.si_signo == signal.SIGCHLD:
                continue
            if self.options.session:
                return
            if received.si_signo in _SENT_BY_TERMINALS and received.si_code > 0:
                continue
            # Not yet reaped, so that the pid still is the command's.
            os.kill(self.pid, received.si_signo)
            if received.si_signo == signal.SIGTERM and deadline is None:
                os.kill(self.pid, signal.SIGCONT)
                deadline = time.monotonic() + self.options.grace_s

    def _reap(self) -> bool:
        """Collect what has died, adopted orphans included. False when no child is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.wait_status = status
                self._report(f"ended {status}")

    def _kill_family(self) -> None:
        """SIGKILL until no descendant is left, but those that clean up after the others get a moment to do so.

        A process that is stuck in a driver cannot die: then this waits with it, since its memory is not free either.
        """
        guardian_pid = os.getpid()
        patience_ends = time.monotonic() + CLEANERS_PATIENCE_S
        pause_s = 0.002
        while self._reap():
            family = descendants(guardian_pid)
            patient = time.monotonic() < patience_ends
            spared = {pid for pid in family if patient and is_cleaner(pid)}
            ours = [kill(pid, start_time) for pid, start_time in family.items() if pid not in spared]
            if family and not spared and not any(ours):
                return  # only other users' processes (sudo) are left; nobody here may end them
            signal.sigtimedwait({signal.SIGCHLD}, pause_s)
            pause_s = min(0.1, pause_s * 1.5)

    def _report(self, line: str) -> None:
        if self.options.report_fd is not None:
            try:
                os.write(self.options.report_fd, f"{line}\n".encode("ascii"))
            except BrokenPipeError:
                self.options.report_fd = None  # the reader died; the work here goes on without it

    def _remove_directory(self) -> None:
        directory = self.options.remove
        if directory is None:
            return
        try:
            for name in os.listdir(directory):  # noqa: PTH208
                _unlink(os.path.join(directory, name))  # noqa: PTH118
            os.rmdir(directory)  # noqa: PTH106
        except FileNotFoundError:
            pass  # the owner removes it too
        except OSError as error:
            sys.stderr.write(f"cannot remove {directory}: {error}\n")

    def _exit_code(self) -> int:
        code = os.waitstatus_to_exitcode(self.wait_status) if self.wait_status is not None else -signal.SIGKILL
        if code >= 0:
            return code
        if self.options.reraise:
            set_process_control(PR_SET_DUMPABLE, 0)  # one core dump, the command's, is enough
            if -code not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
            os.kill(os.getpid(), -code)
        return 128 - code


def main(arguments: list[str]) -> int:
    """The script. Exit code: the command's, 128+n for a signal, 127 when it can't be run, 2 for a wrong call."""
    try:
        options = Options(arguments)
    except ValueError as error:
        sys.stderr.write(f"guardian: {error}\n{USAGE}")
        return 2
    return Guardian(options).run()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
