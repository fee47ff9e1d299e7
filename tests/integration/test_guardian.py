from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hidden_family import HiddenFamily, code, parent_of
from leftovers import marked_processes, wait_until_none
from nls_scheduler.processes import cgroups, guardian, signals
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GONE_WITHIN_S = 15.0

# A parent that starts a guardian for the command in its arguments and waits to be killed.
PARENT = """
import os, subprocess, sys
guardian, *command = sys.argv[1:]
subprocess.Popen([sys.executable, "-I", "-S", guardian, "--session", "--parent", str(os.getpid()), "--", *command])
sys.stdin.read()
"""
HOLDS_THE_GIL = "import ctypes; print('up', flush=True); ctypes.PyDLL(None).sleep(600)"
STOPS = "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
HAS_FAMILY = """
import multiprocessing, os, signal, subprocess, time
def double_fork():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
double_fork()
subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & kill -STOP $$"])
multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
print('up', flush=True)
"""
HAS_FAMILY_AND_SLEEPS = HAS_FAMILY + "time.sleep(600)"
HAS_FAMILY_AND_LEAVES = HAS_FAMILY + "os._exit(4)"
UNCOLLECTED_MEMORY = """
import multiprocessing, sys, time
from multiprocessing.shared_memory import SharedMemory
if __name__ == "__main__":
    memory = SharedMemory(create=True, size=4096)
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    worker.start()
    print(memory.name, flush=True)
    time.sleep(600)
"""


def guard(
    options: Sequence[str],
    command: Sequence[str],
    *,
    fds: Sequence[int] = (),
    cwd: Path | None = None,
    process_group: int | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, *options, "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=fds,
        cwd=cwd,
        process_group=process_group,
    )


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=10)
    return process.returncode, output.decode(), errors.decode()


def reported(options: Sequence[str], command: Sequence[str]) -> tuple[int, list[str]]:
    """The guardian's exit code and the lines of its report."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as report:
        process = guard(["--report-fd", str(writer), *options], command, fds=(writer,))
        os.close(writer)
        lines = report.read().splitlines()
        return finish(process)[0], lines


def wait_for_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_commands_exit_code_is_passed_through(command: str, code: int) -> None:
    assert finish(guard([], ["sh", "-c", command]))[0] == code


WITH_CTRL_C_PENDING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # it is ignored in the background of a shell
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
os.kill(os.getpid(), signal.SIGINT)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_a_signal_that_comes_before_the_command_reaches_it() -> None:
    def guarded(mask: str, command: Sequence[str]) -> tuple[int, str, str]:
        script = ["-I", "-S", guardian.__file__, "--mask", mask, "--", *command]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return finish(subprocess.Popen([*python(WITH_CTRL_C_PENDING), *script], **pipes))

    code, _, errors = guarded("", ["sleep", "600"])
    assert (code, errors) == (128 + signal.SIGINT, "")
    numbers = f"{int(signal.SIGINT)},{int(signal.SIGUSR1)}"
    blocked = "import signal; print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))))"
    assert guarded(numbers, python(blocked))[1].strip() == "[2, 10]"


def test_the_report_names_the_command_and_its_end() -> None:
    code, lines = reported([], ["sh", "-c", "exit 5"])
    assert code == 5
    started, ended = (line.split() for line in lines)
    assert started[0] == "started"
    assert int(started[1]) > 1
    assert int(started[2]) > 0
    assert ended == ["ended", str(5 << 8)]


def test_the_reported_start_time_is_the_commands_own() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(guardian.__file__).parent)!r}); import guardian, os; "
    reader, writer = os.pipe()
    with os.fdopen(reader) as report:
        process = guard(
            ["--report-fd", str(writer)], python(code + "print(guardian.read_stat(os.getpid())[1])"), fds=(writer,)
        )
        os.close(writer)
        line = report.readline().split()
        _, output, _ = finish(process)
    assert line[2] == output.strip()


def test_a_command_that_cannot_be_executed_is_reported_with_its_errno() -> None:
    assert reported([], ["/no/such/command"]) == (127, ["failed 2"])
    assert reported([], ["/"]) == (127, ["failed 13"])


@pytest.mark.parametrize(
    "arguments", [["--unknown", "--", "true"], ["--grace"], ["--session"], ["--parent", "x", "--", "true"]]
)
def test_a_wrong_call_is_refused_with_the_usage(arguments: list[str]) -> None:
    process = subprocess.run(
        [sys.executable, "-I", "-S", guardian.__file__, *arguments], capture_output=True, check=False, timeout=10
    )
    assert process.returncode == 2
    assert b"usage:" in process.stderr


def test_nothing_starts_when_the_parent_is_gone_already(tmp_path: Path) -> None:
    assert finish(guard(["--parent", "1"], ["touch", str(tmp_path / "started")]))[0] == 125
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("options", [[], ["--session"]])
def test_no_descendant_outlives_its_command(options: list[str], mark: str) -> None:
    assert finish(guard(options, python(HAS_FAMILY_AND_LEAVES)))[0] == 4
    assert not marked_processes(mark)


def test_sigterm_ends_the_whole_family_of_a_session(mark: str) -> None:
    process = guard(["--session"], python(HAS_FAMILY_AND_SLEEPS))
    assert wait_for_line(process) == "up"
    wait_until(lambda: len(marked_processes(mark)) >= 5, GONE_WITHIN_S)
    process.terminate()
    process.communicate(timeout=GONE_WITHIN_S)
    assert process.returncode == 128 + signal.SIGKILL
    assert not marked_processes(mark)


@pytest.mark.parametrize("code", [SLEEPS, HOLDS_THE_GIL, STOPS, HAS_FAMILY_AND_SLEEPS])
def test_the_family_dies_with_the_guardians_parent(code: str, mark: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, guardian.__file__, *python(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert wait_for_line(parent) == "up"
        parent.kill()
    wait_until_none("processes", lambda: marked_processes(mark))


def test_the_family_dies_with_the_thread_that_started_the_guardian(mark: str) -> None:
    started: list[subprocess.Popen[bytes]] = []
    let_go = threading.Event()

    def launch() -> None:
        started.append(guard(["--session", "--parent", str(os.getpid())], python(SLEEPS)))
        let_go.wait()

    thread = threading.Thread(target=launch)
    thread.start()
    wait_until(lambda: started)
    assert wait_for_line(started[0]) == "up"
    let_go.set()
    thread.join()
    assert finish(started[0])[0] == 128 + signal.SIGKILL


def test_the_command_dies_with_its_guardian(mark: str) -> None:
    process = guard(["--session"], python(HOLDS_THE_GIL))
    assert wait_for_line(process) == "up"
    process.kill()
    process.communicate(timeout=GONE_WITHIN_S)
    wait_until_none("processes", lambda: marked_processes(mark))


@pytest.fixture
def family(mark: str, tmp_path: Path) -> Iterator[HiddenFamily]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, guardian.__file__, *python(code(tmp_path / "pids", SLEEPS))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert wait_for_line(parent) == "up"
        yield HiddenFamily(tmp_path / "pids", parent.pid)
        parent.kill()


@pytest.mark.parametrize(
    "killed",
    [("outer",), ("inner",), ("top", "outer"), ("outer", "top"), ("top", "inner"), ("inner", "top")],
)
def test_nothing_outlives_a_killed_guardian(family: HiddenFamily, killed: tuple[str, ...]) -> None:
    for who in killed:
        with contextlib.suppress(ProcessLookupError):  # the death of the one before may have ended it by now
            os.kill(getattr(family, who), signal.SIGKILL)
    wait_until_none("processes", family.living)


@pytest.mark.parametrize("stopped", ["outer", "inner"])
def test_the_family_dies_with_the_parent_of_a_stopped_guardian(family: HiddenFamily, stopped: str) -> None:
    os.kill(getattr(family, stopped), signal.SIGSTOP)
    os.kill(family.top, signal.SIGKILL)
    wait_until_none("processes", family.living)


def test_a_stopped_inner_guardian_goes_on_when_the_outer_one_is_killed(family: HiddenFamily) -> None:
    os.kill(family.inner, signal.SIGSTOP)
    os.kill(family.outer, signal.SIGKILL)
    wait_until_none("processes", family.living)


@pytest.fixture
def cgroup() -> Path:
    made = cgroups.make_for("test")
    if made is None:
        pytest.skip("this machine lets nobody make a cgroup")
    return made


def test_a_command_is_in_its_cgroup_and_the_guardians_are_not(cgroup: Path) -> None:
    process = guard(["--session", "--cgroup", str(cgroup)], python(SLEEPS))
    assert wait_for_line(process) == "up"
    command = cgroups.members(cgroup)
    assert len(command) == 1
    assert parent_of(parent_of(*command)) == process.pid
    assert cgroup in cgroups.made_for("test", os.geteuid())
    process.terminate()
    finish(process)
    assert not cgroup.exists()


def test_a_cgroup_ends_with_all_in_it_and_below_it(cgroup: Path, mark: str) -> None:
    (cgroup / "below").mkdir()
    sleeper = subprocess.Popen(["sleep", "600"])
    (cgroup / "below" / "cgroup.procs").write_text(str(sleeper.pid))
    assert cgroups.members(cgroup) == {sleeper.pid}
    assert guardian.end_cgroup(str(cgroup), GONE_WITHIN_S)
    assert sleeper.wait() == -signal.SIGKILL
    assert not cgroup.exists()


def test_a_command_starts_without_the_cgroup_that_is_not_there(tmp_path: Path) -> None:
    assert finish(guard(["--cgroup", str(tmp_path / "gone")], ["sh", "-c", "exit 3"]))[0] == 3


def test_the_report_ends_with_the_last_guardian(mark: str) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as report:
        process = guard(["--session", "--report-fd", str(writer)], python(HAS_FAMILY_AND_SLEEPS), fds=(writer,))
        os.close(writer)
        assert wait_for_line(process) == "up"
        wait_until(lambda: len(marked_processes(mark)) >= 5, GONE_WITHIN_S)
        process.kill()
        assert [line.split()[0] for line in report] == ["started", "ended"]
        assert not [line for line in marked_processes(mark).values() if guardian.OWN_NAME.decode() not in line]
        finish(process)


def test_a_killed_familys_shared_memory_is_collected() -> None:
    process = guard(["--session"], python(UNCOLLECTED_MEMORY))
    memory = Path("/dev/shm") / wait_for_line(process)
    assert memory.exists()
    process.terminate()
    process.communicate(timeout=GONE_WITHIN_S)
    assert not memory.exists()


@pytest.mark.parametrize("package", ["multiprocessing", "joblib.externals.loky.backend", "loky.backend"])
def test_whatever_tracks_resources_is_known_by_its_command_line(package: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"input()\nfrom {package}.resource_tracker import main;main(3)"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: guardian.is_cleaner(process.pid), GONE_WITHIN_S)  # a moment after it has begun
        assert not guardian.is_cleaner(os.getpid())
        process.kill()


def test_the_directory_is_removed_at_the_end(tmp_path: Path) -> None:
    directory = tmp_path / "private"
    directory.mkdir()
    (directory / "connection.json").write_text("{}")
    finish(guard(["--remove", str(directory)], ["true"]))
    assert not directory.exists()


def test_in_the_foreground_sigterm_reaches_the_command_first() -> None:
    process = guard(["--grace", "60"], ["sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done"])
    assert wait_for_line(process) == "up"
    process.terminate()
    assert finish(process)[0] == 7


def test_in_the_foreground_a_command_that_ignores_sigterm_is_killed_after_the_grace(mark: str) -> None:
    process = guard(["--grace", "0.1"], ["sh", "-c", "trap '' TERM; echo up; sleep 600"])
    assert wait_for_line(process) == "up"
    process.terminate()
    assert finish(process)[0] == 128 + signal.SIGKILL
    assert not marked_processes(mark)


def test_in_the_foreground_a_signal_to_the_whole_group_leaves_the_command_its_time_and_reaches_it_once() -> None:
    """As timeout(1) and Slurm send it, and systemd to a whole cgroup."""
    code = """
import signal, sys, time
caught = []
signal.signal(signal.SIGUSR1, lambda n, _: caught.append(n))
def save(*_):
    time.sleep(0.5)
    sys.exit(7 if caught == [signal.SIGUSR1] else 8)
signal.signal(signal.SIGTERM, save)
print('up', flush=True)
while True:
    signal.pause()
"""
    process = guard(["--grace", "0.1"], python(code), process_group=0)
    assert wait_for_line(process) == "up"
    for name in ("USR1", "TERM"):
        subprocess.run(["kill", f"-{name}", "--", f"-{process.pid}"], check=True)
    assert finish(process)[0] == 7


def test_in_the_foreground_a_stopped_command_gets_its_sigterm() -> None:
    process = guard(["--grace", "60"], ["sh", "-c", "trap 'exit 7' TERM; echo $$; kill -STOP $$; sleep 600"])
    status = Path(f"/proc/{wait_for_line(process)}/status")
    wait_until(lambda: "State:\tT" in status.read_text())
    process.terminate()
    assert finish(process)[0] == 7


def test_in_the_foreground_user_signals_are_forwarded_and_interrupts_are_not() -> None:
    code = """
import signal
caught = []
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGWINCH, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda n, _: caught.append(n))
print('up', flush=True)
while signal.SIGUSR2 not in caught:
    signal.pause()
print(*sorted(caught))
"""
    process = guard([], python(code))
    assert wait_for_line(process) == "up"
    # A pending signal of a lower number is delivered first, so that USR2 is the last of them.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1):
        process.send_signal(number)
    wait_until(lambda: not _pending(process.pid) & {signal.SIGHUP, signal.SIGUSR1})
    process.send_signal(signal.SIGUSR2)
    code_, output, _ = finish(process)
    assert code_ == 0
    assert output.split() == [str(int(number)) for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)]


def _pending(pid: int) -> set[int]:
    masks = [
        line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("ShdPnd")
    ]
    return {number for number in range(1, 65) if int(masks[0], 16) >> (number - 1) & 1}


def test_the_command_starts_with_ordinary_signals_and_its_own_group() -> None:
    code = """
import json, os, signal
print(json.dumps({
    "mask": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "ignored": [line.split()[1] for line in open("/proc/self/status") if line.startswith("SigIgn")][0],
    "leads_group": os.getpgrp() == os.getpid(),
    "session": os.getsid(0), "guardian": os.getppid(), "oom": int(open("/proc/self/oom_score_adj").read()),
}))
"""
    _, output, _ = finish(guard(["--session"], ["sh", "-c", f"exec {sys.executable} -I -S -c '{code}'"]))
    seen = json.loads(output)
    assert seen["mask"] == []
    # Python itself ignores SIGPIPE and SIGXFSZ, and ipykernel, which this will be, SIGINT between cells; real-time
    # signals are the business of whoever started the tests.
    ignored = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT}
    assert int(seen["ignored"], 16) & ((1 << 31) - 1) == sum(1 << (number - 1) for number in ignored)
    assert seen["leads_group"]
    assert seen["session"] == seen["guardian"]
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert seen["oom"] == min(1000, own + guardian.OOM_SCORE_RAISE)


def test_in_a_session_an_interrupt_is_seen_at_the_guardian_until_it_is_to_be_forgotten() -> None:
    process = guard(["--session"], python(SLEEPS))
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not signals.pends(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGINT)
        assert signals.pends(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGUSR1)
        wait_until(lambda: not signals.pends(process.pid, signal.SIGINT))
        assert process.poll() is None
    finally:
        process.terminate()
        finish(process)
    with pytest.raises(ProcessLookupError):
        signals.pends(process.pid, signal.SIGINT)


READ_ONLY = 'mount -o remount,ro,bind /proc && exec "$@"'
PROC_READ_ONLY = ["unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, "sh"]


def test_a_command_starts_where_proc_is_read_only() -> None:
    """As with `ReadOnlyPaths=/` in a unit of systemd: what the OOM killer prefers cannot be said there."""
    if subprocess.run([*PROC_READ_ONLY, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespaces of one's own here, to have /proc read-only in")
    told = "print(open('/proc/self/oom_score_adj').read())"
    command = [*PROC_READ_ONLY, sys.executable, "-I", "-S", guardian.__file__, "--session", "--", *python(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, Path("/proc/self/oom_score_adj").read_text() + "\n"), done.stderr


HIDING = 'mount -t proc -o hidepid=1 proc /proc && exec "$@"'
PROC_HIDES_OTHERS = ["unshare", "--mount", "sh", "-c", HIDING, "sh", "setpriv", "--reuid=65534", "--regid=65534"]
PROC_HIDES_OTHERS += ["--clear-groups", "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]


def test_no_descendant_outlives_its_command_where_proc_hides_what_is_others(mark: str) -> None:
    """As on shared servers: `mount -o remount,hidepid=1 /proc`."""
    if subprocess.run([*PROC_HIDES_OTHERS, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace of one's own here, to hide processes in")
    leaves = ["sh", "-c", "setsid sleep 600 & exit 3"]
    command = [*PROC_HIDES_OTHERS, sys.executable, "-I", "-S", guardian.__file__, "--session", "--", *leaves]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode == 3
    assert not marked_processes(mark)


def test_the_command_inherits_the_descriptors_that_were_passed() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as end:
        process = guard(["--session"], python(f"import os; os.write({writer}, b'hello')"), fds=(writer,))
        os.close(writer)
        assert end.read() == "hello"
        assert finish(process)[0] == 0


def test_what_a_driver_may_have_locked_is_killed_only_when_it_is_let_go() -> None:
    reports, report = os.pipe()
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with guard(["--session", "--report-fd", str(report)], python(SLEEPS), fds=[report]) as process:
        os.close(report)
        _, pid, start_time = os.read(reports, 100).decode().split()
        held.bind("\0" + guardian.name_while_held(int(pid), int(start_time)))
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert guardian.read_stat(int(pid)) is not None
        held.close()
        assert process.wait(GONE_WITHIN_S) != 0
    assert guardian.read_stat(int(pid)) is None
    os.close(reports)


@pytest.mark.long("a driver that is stuck for as long as a guardian waits for it")
def test_a_driver_that_is_stuck_keeps_no_family_alive_for_ever() -> None:
    reports, report = os.pipe()
    options = ["--session", "--report-fd", str(report)]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held,
        guard(options, python(SLEEPS), fds=[report]) as process,
    ):
        os.close(report)
        _, pid, start_time = os.read(reports, 100).decode().split()
        held.bind("\0" + guardian.name_while_held(int(pid), int(start_time)))
        process.terminate()
        assert process.wait(guardian.HELD_PATIENCE_S + GONE_WITHIN_S) != 0
    os.close(reports)
