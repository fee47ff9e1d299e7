"""Runs one command and makes sure that nothing of it outlives its purpose.

Started as `python -I -S guardian.py [options] -- COMMAND...` by whoever owns the command (a kernel, `nls run`). It must
stay a plain script: standard library only and few imports, because one copy lives as long as each GPU process does.

Three things end the command's whole family of processes, in whatever session or process group they hid: the command
ended, the guardian's parent died, or the guardian got SIGTERM. A guardian may be killed as well, so there are two: the
outer one guards the inner one, which guards the command. Both are subreapers: whichever is left ends the family.

The report (`--report-fd`) is a pipe that gets one line per fact:
`started PID START_TIME` after exec succeeded, or `failed ERRNO`; `ended WAIT_STATUS` once the command is dead (its
descendants may still be dying). Its end says that both guardians have ended, and so that everything is gone.

With `--session` a SIGINT stays pending, so that the parent can see whether all its descendants got one; SIGUSR1 has it
forgotten.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = """usage: guardian.py [options] -- COMMAND [ARGUMENT...]
  --parent PID       end at once unless this is the parent process
  --cgroup DIRECTORY begin the command in this cgroup (v2); kill what is in it and delete it at the end
  --session          own session; SIGTERM kills at once; the OOM killer prefers the command
  --grace SECONDS    without --session: time between forwarding SIGTERM and SIGKILL (default 10)
  --report-fd FD     pipe for the report
  --mask N,N,...     signals that the command begins with blocked (default: those that the guardian began with)
  --remove DIRECTORY delete this directory and the files in it at the end
"""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

OWN_NAME = b"guardian.py"
OOM_SCORE = "/proc/self/oom_score_adj"
OOM_SCORE_RAISE = 500
CLEANERS_PATIENCE_S = 3.0
INNER_PATIENCE_S = 5.0
CGROUP_TIMEOUT_S = 5.0
HELD_PATIENCE_S = 20.0
# Of a command line or an environment: without any right a process may say that it has gigabytes (prctl(2), PR_SET_MM).
WORDS_LIMIT_BYTES = 2**20
CLEANERS = (b".resource_tracker import main", b"multiprocessing.semaphore_tracker", b"torch_shm_manager")

# In the foreground a terminal's Ctrl-Z must stop the guardian together with the command's group.
_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
# In the foreground, from our parent. Terminals, timeout(1), systemd or Slurm send theirs to the whole group or cgroup:
# the command has them from there, and our parent too, which has the last word on how long it may take to end.
_FORWARDED = {signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH}
_ENDED_BY_TERMINALS = {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}


class Options:
    """The command line, parsed. Raises `ValueError` with one sentence for a wrong one."""

    def __init__(self, arguments: list[str]) -> None:
        self.parent_pid: int | None = None
        self.session = False
        self.grace_s = 10.0
        self.report_fd: int | None = None
        self.mask: set[int] | None = None
        self.remove: str | None = None
        self.cgroup: str | None = None
        rest = iter(arguments)
        for option in rest:
            if option == "--":
                break
            if option == "--session":
                self.session = True
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
        elif option in ("--remove", "--cgroup"):
            setattr(self, option[2:], value)
        else:
            raise ValueError(f"unknown option: {option}")


def beginning(*script: str) -> list[str]:
    """The first words of a guardian's command line, which ends its command when this process's thread ends.

    `script` is what Python is to run instead of this file, the last word of it with this file's name.
    """
    return [sys.executable, "-I", "-S", *(script or [__file__]), "--parent", str(os.getpid())]


def set_process_control(option: int, value: int) -> None:
    """prctl(2). Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def raise_oom_score(by: int) -> None:
    """Make the OOM killer prefer this process to those it came from; raising needs no privilege.

    Where /proc is read-only (`ReadOnlyPaths=/` in a unit of systemd) nothing happens, and `nls doctor` says so.
    """
    try:
        with open(OOM_SCORE, "r+", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs start-up time
            score = min(1000, int(file.read()) + by)
            file.seek(0)
            file.write(str(score))
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise


def read_stat(pid: int) -> tuple[int, int] | None:
    """Parent pid and start time (clock ticks since boot, proc(5) field 22); `None`: it is gone, or hidden from us."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # The command's name may hold anything, blanks and brackets too: fields count from the last bracket.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
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
        parent = waiting.pop()
        for pid in children.get(parent, ()):
            # Who is older than its parent had another one, whose number was given out again meanwhile.
            if pid not in family and start_times[pid] >= start_times.get(parent, 0):
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
            return file.read(WORDS_LIMIT_BYTES)
    except OSError:
        return b""


def name_while_held(pid: int, start_time: int) -> str:
    """The abstract socket of whoever has the GPU driver hold a process locked: its end, however it comes, lets go."""
    return f"nls-driver-holds-{pid}-{start_time}"


def some_held(processes: Callable[[], dict[int, int]]) -> bool:
    """Whether a driver may have locked any of them (start times by pid): to kill one then has hung a host.

    They are looked up only where anybody holds anything. Anybody may say so: nobody waits for that for ever.
    """
    try:
        with open("/proc/net/unix", "rb") as file:  # noqa: PTH123
            held = {line.rpartition(b"@")[2].strip() for line in file if b"@nls-driver-holds-" in line}
    except OSError:
        return False
    return bool(held) and any(name_while_held(*process).encode() in held for process in processes().items())


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


def end_cgroup(directory: str, timeout_s: float) -> bool:
    """Kill all that is in a cgroup, whoever forks there, and delete it with those below. True when it is gone."""
    deadline = time.monotonic() + timeout_s
    while os.path.exists(directory):  # noqa: PTH110
        try:
            with open(f"{directory}/cgroup.kill", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write("1")
            for place, _, _ in os.walk(directory, topdown=False):
                os.rmdir(place)  # noqa: PTH106
        except OSError:  # somebody is still dying in it, or does the same work
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
    return True


def _enter(cgroup: str) -> None:
    try:
        with open(f"{cgroup}/cgroup.procs", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("0")
    except OSError:
        pass  # it is an additional safety, and a command that cannot have it is not to suffer


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
    """Watches one process from its start to the end of its last descendant: the inner one, or that one the command."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inner = False
        self.parent_pid = options.parent_pid or os.getppid()
        self.commands_mask: set[int] = set()
        self.early: list[int] = []
        self.pid = 0
        self.wait_status: int | None = None

    def run(self) -> int:
        """The whole life. Returns the exit code; 125 without a start because the parent was gone already."""
        options = self.options
        ours = signal.valid_signals() if options.session else signal.valid_signals() - _JOB_CONTROL
        inherited = set(signal.pthread_sigmask(signal.SIG_BLOCK, ours))
        self.commands_mask = inherited if options.mask is None else options.mask
        if not self._attach():
            self._clean_up()
            return 125
        if options.report_fd is not None:
            os.set_inheritable(options.report_fd, False)  # noqa: FBT003 - its only signature
        self.early = [] if options.session else _taken(_ENDED_BY_TERMINALS)
        outer_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self.inner, self.parent_pid = True, outer_pid
            return self._run_inner()
        return self._see_through()

    def _run_inner(self) -> int:
        if not self._attach():
            return 125  # the command was not started, and the directory is its owner's
        number = self._start()
        if number:
            self._report(f"failed {number}")
            sys.stderr.write(f"cannot run {self.options.command[0]}: {os.strerror(number)}\n")
            self._clean_up()
            return 127
        return self._see_through()

    def _attach(self) -> bool:
        """Orphans come to us, and we hear of our parent's end. False when the parent has ended already."""
        set_process_control(PR_SET_CHILD_SUBREAPER, 1)
        # The one signal that reaches a stopped process.
        set_process_control(PR_SET_PDEATHSIG, signal.SIGCONT)
        if self.options.session and os.getsid(0) != os.getpid():
            os.setsid()
        return os.getppid() == self.parent_pid

    def _see_through(self) -> int:
        self._wait()
        self._kill_family()
        self._clean_up()
        return self._exit_code()

    def _start(self) -> int:
        """Start the command; 0, or the errno with which exec failed."""
        guardian_pid = os.getpid()
        outcome, outcome_of_exec = os.pipe()  # closed by a successful exec, since Python's pipes are not inherited
        if not self.options.session:
            self.early += _taken(_ENDED_BY_TERMINALS)
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
        for early_signal in self.early:  # whatever a terminal sends from now on reaches the command itself
            self._pass_on(early_signal)
        return 0

    def _exec(self, guardian_pid: int, outcome: int) -> None:
        """In the forked child: become the command. Never returns."""
        try:
            set_process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian_pid:
                os._exit(125)
            if self.options.cgroup is not None:
                _enter(self.options.cgroup)
            for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored_by_python, signal.SIG_DFL)
            if self.options.session:
                os.setpgid(0, 0)
                raise_oom_score(OOM_SCORE_RAISE)
                # Until it is an ipykernel, which listens while a cell runs: some signal all descendants of a kernel.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_SETMASK, set())
            else:
                signal.pthread_sigmask(signal.SIG_SETMASK, self.commands_mask)
            os.execvp(self.options.command[0], self.options.command)  # noqa: S606 - a list, never a shell line
        except OSError as error:
            os.write(outcome, str(error.errno).encode())
        finally:
            os._exit(127)

    def _wait(self) -> None:
        """Until what we watch has ended or must end."""
        deadline: float | None = None
        watched = {signal.SIGCHLD, signal.SIGCONT, signal.SIGTERM}
        watched |= {signal.SIGUSR1} if self.options.session else _FORWARDED
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
            number = received.si_signo
            if number in _FORWARDED and not self.options.session and received.si_pid != self.parent_pid:
                continue
            if number == signal.SIGCONT and deadline is None and self._parent_died(received):
                number = signal.SIGTERM
            if number in (signal.SIGCHLD, signal.SIGCONT):
                continue
            if number == signal.SIGUSR1 and self.options.session:
                _taken({signal.SIGINT})
                continue
            if number == signal.SIGTERM and self.inner and self.options.session:
                return
            self._pass_on(number)
            if number == signal.SIGTERM and deadline is None:
                self._pass_on(signal.SIGCONT)
                deadline = time.monotonic() + self._grace_s()

    def _pass_on(self, number: int) -> None:
        """To what we watch: it is not yet reaped, so that the pid still is its own."""
        try:  # noqa: SIM105 - one import fewer
            os.kill(self.pid, number)
        except PermissionError:
            pass  # another user's by now (sudo), who alone may end it

    def _parent_died(self, received: signal.struct_siginfo) -> bool:
        """Whether a SIGCONT is the death signal, which the end of a parent's thread sends as well."""
        return received.si_pid == self.parent_pid or os.getppid() != self.parent_pid

    def _grace_s(self) -> float:
        """How long what we watch may take to end; the outer guardian leaves the inner one time for its own grace."""
        grace_s = 0.0 if self.options.session else self.options.grace_s
        return grace_s if self.inner else grace_s + INNER_PATIENCE_S

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
                if self.inner:
                    self._report(f"ended {status}")

    def _kill_family(self) -> None:
        """SIGKILL until no descendant is left, but those that clean up after the others get a moment to do so.

        A process that is stuck in a driver cannot die: then this waits with it, since its memory is not free either.
        """
        guardian_pid = os.getpid()
        self._wait_for_the_driver()
        patience_ends = time.monotonic() + CLEANERS_PATIENCE_S
        pause_s = 0.002
        while self._reap():
            family = descendants(guardian_pid)
            patient = time.monotonic() < patience_ends
            spared = {pid for pid in family if patient and is_cleaner(pid)}
            if self.options.cgroup is not None and not spared:
                end_cgroup(self.options.cgroup, 0)
            ours = [kill(pid, start_time) for pid, start_time in family.items() if pid not in spared]
            if family and not spared and not any(ours):
                return  # only other users' processes (sudo) are left; nobody here may end them
            signal.sigtimedwait({signal.SIGCHLD}, pause_s)
            pause_s = min(0.1, pause_s * 1.5)

    def _wait_for_the_driver(self) -> None:
        """Who has had one of them locked unlocks it first, unless the driver is stuck."""
        deadline, guardian_pid = time.monotonic() + HELD_PATIENCE_S, os.getpid()
        while time.monotonic() < deadline and some_held(lambda: descendants(guardian_pid)) and self._reap():
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)

    def _report(self, line: str) -> None:
        if self.options.report_fd is not None:
            try:
                os.write(self.options.report_fd, f"{line}\n".encode("ascii"))
            except BrokenPipeError:
                self.options.report_fd = None  # the reader died; the work here goes on without it

    def _clean_up(self) -> None:
        cgroup = self.options.cgroup
        if cgroup is not None and not end_cgroup(cgroup, CGROUP_TIMEOUT_S):
            sys.stderr.write(f"cannot remove {cgroup}\n")
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
        if self.inner:  # the outer one is to see what this one saw
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
