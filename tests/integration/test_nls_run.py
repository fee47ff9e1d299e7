"""`nls run` against a real daemon."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon_process import NLS
from leftovers import MARK
from waiting import has_ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon_process import DaemonProcess

TELL_PID = "echo $$; exec sleep 600"


@pytest.fixture
def daemon(shared_daemon: DaemonProcess, mark: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """One of all tests that end whatever they start; it is without a workload before and after each."""
    monkeypatch.setitem(shared_daemon.environment, MARK, mark)
    yield shared_daemon
    wait_until(lambda: shared_daemon.status()["workloads"] == [])


def test_the_exit_code_and_the_output_are_the_commands_own(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    wait_until(lambda: daemon.status()["workloads"] == [])


def test_the_command_sees_its_own_gpu_only(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $NLS_WORKLOAD")
    masked, workload = done.stdout.split()
    assert masked.split(",") == [gpu["uuid"] for gpu in daemon.status()["gpus"]]
    assert re.fullmatch("[0-9a-f]{12}", workload)


def test_nls_run_dies_from_the_signal_that_killed_its_command(daemon: DaemonProcess) -> None:
    assert daemon.nls("run", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert daemon.nls("run", "--", "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_signals_reach_the_command_which_decides(daemon: DaemonProcess, number: signal.Signals) -> None:
    script = f"trap 'echo got; exit 5' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    running = daemon.start_nls("run", "--", "bash", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    out, _ = running.communicate(timeout=20)
    assert (running.returncode, out) == (5, "got\n")


def test_a_command_that_does_not_exist_ends_with_127_and_one_sentence(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--", "no-such-command")
    assert done.returncode == 127
    assert done.stderr == "cannot run no-such-command: No such file or directory\n"
    assert daemon.status()["workloads"] == []


def test_a_file_that_cannot_be_executed_ends_with_126(daemon: DaemonProcess, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("just text")
    done = daemon.nls("run", "--", str(path))
    assert done.returncode == 126
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("command", ["/", "./", "/usr/", "no-such-folder/", "\x01"])
def test_a_command_without_a_name_to_show_is_told_what_is_wrong_with_it(daemon: DaemonProcess, command: str) -> None:
    done = daemon.nls("run", "--", command)
    there = command.startswith((".", "/"))
    assert done.returncode == (126 if there else 127)
    assert ("Permission denied" if there else "No such file or directory") in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--request", "much"], "'much' is not a size"),
        (["--request", "0.5", "--limit", "0.25"], "above the limit"),
        (["--request", "64GiB"], "the largest is GPU 0 (Simulated GPU) with 16 GiB"),
        (["--gpus", "3"], "This node has 2 usable GPUs, not 3"),
        (["--name", "  "], "A name is a text"),
    ],
)
def test_what_can_never_run_is_refused_with_one_sentence(
    daemon: DaemonProcess, arguments: list[str], says: str
) -> None:
    done = daemon.nls("run", *arguments, "--", "true")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_number_of_gpus_that_is_none_is_a_wrong_call(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--gpus", "0", "--", "true")
    assert done.returncode == 2
    assert "at least 1 GPU, and MIN..MAX" in done.stderr


def test_a_command_waits_for_its_gpu_says_so_and_starts_when_it_is_free(one_gpu_daemon: DaemonProcess) -> None:
    daemon = one_gpu_daemon
    first = daemon.start_nls("run", "--name", "first", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    second = daemon.start_nls("run", "--name", "second", "--", "echo", "ran")
    waiting = daemon.wait_for("second", phase="queued", current=[], pid=None, position=1)
    assert waiting["reason"]
    first.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=20)
    assert (second.returncode, out) == (0, "ran\n")
    assert err.startswith("nls: waiting for a GPU (1. in line): ")
    first.communicate(timeout=20)


@pytest.fixture
def without_hangups() -> Iterator[None]:
    """What begins meanwhile begins as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.long("`nls run` in rare cases")
def test_what_nohup_began_stays_in_line_when_the_terminal_goes(
    one_gpu_daemon: DaemonProcess, without_hangups: None
) -> None:
    daemon = one_gpu_daemon
    first = daemon.start_nls("run", "--name", "first", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    second = daemon.start_nls("run", "--name", "second", "--", "sh", "-c", "kill -HUP $PPID $$; echo ran")
    daemon.wait_for("second", phase="queued", position=1)
    second.send_signal(signal.SIGHUP)
    first.send_signal(signal.SIGHUP)
    first.send_signal(signal.SIGTERM)  # comes after it
    assert second.communicate(timeout=20)[0] == "ran\n"
    assert second.returncode == 0
    first.communicate(timeout=20)
    assert first.returncode == -signal.SIGTERM


def test_it_is_running_only_after_exec_with_the_commands_own_pid(daemon: DaemonProcess) -> None:
    running = daemon.start_nls("run", "--name", "sleeper", "--", "sh", "-c", TELL_PID)
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    entry = daemon.wait_for("sleeper", phase="running")
    assert entry["pid"] == pid
    assert entry["executing"]
    assert len(entry["current"]) == len(entry["gpus"]) == 1
    assert entry["request_bytes"] == entry["limit_bytes"] == 16 * 2**30
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=20)
    assert has_ended(pid)


@pytest.mark.long("commands that wait through a daemon's deaths")
def test_who_waits_is_submitted_again_to_a_daemon_that_has_lost_its_journal(one_gpu_daemon: DaemonProcess) -> None:
    daemon = one_gpu_daemon
    first = daemon.start_nls("run", "--name", "first", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    second = daemon.start_nls("run", "--name", "second", "--max-wait", "10m", "--", "echo", "ran")
    before = daemon.wait_for("second", phase="queued")
    assert second.stderr is not None
    assert "waiting for a GPU" in second.stderr.readline()
    daemon.kill()
    for file in (daemon.directory / "state").glob("journal.db*"):
        file.unlink()
    daemon.start()
    daemon.wait_for("first", phase="running")
    assert daemon.wait_for("second", phase="queued")["id"] != before["id"]
    first.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=20)
    assert (second.returncode, out) == (0, "ran\n")
    assert "nls: the daemon has lost its journal, and this command's place in line; it is submitted again\n" in err
    first.communicate(timeout=20)


@pytest.mark.long("`nls run` in rare cases")
def test_what_would_wait_for_the_command_that_started_it_is_refused(daemon: DaemonProcess) -> None:
    inner = [*NLS, "run", "--name", "inner"]
    both = daemon.nls("run", "--name", "outer", "--gpus", "2", "--", *inner, "--", "echo", "ran")
    assert (both.returncode, both.stdout) == (3, "")
    told = "was started inside outer, which holds what it would need as long as it runs"
    assert f"nls: echo {told}: start it there without nls run, or ask for less\n" in both.stderr
    assert last_entry(daemon, "released")["reason"] == f"it {told}"
    one = daemon.nls("run", "--name", "outer", "--", *inner, "--", "echo", "ran")
    assert (one.returncode, one.stdout) == (0, "ran\n")
    part = daemon.nls("run", "--gpus", "2", "--request", "0.5", "--", *inner, "--request", "0.5", "--", "echo", "ran")
    assert (part.returncode, part.stdout) == (0, "ran\n")


def test_ctrl_c_while_waiting_ends_with_130_and_releases(one_gpu_daemon: DaemonProcess) -> None:
    daemon = one_gpu_daemon
    first = daemon.start_nls("run", "--name", "first", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    second = daemon.start_nls("run", "--name", "second", "--", "true")
    daemon.wait_for("second", phase="queued")
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=20)
    assert second.returncode == 130
    # The signal may overtake the answer to the submission: then the end of the process is what releases.
    wait_until(lambda: daemon.workload("second") is None)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=20)
    assert first.returncode == -signal.SIGTERM


def test_kill_9_of_nls_run_leaves_no_process_of_its_command(daemon: DaemonProcess) -> None:
    script = "import os, subprocess, sys, time; "
    script += "child = subprocess.Popen(['sleep', '600'], start_new_session=True); "
    script += "print(os.getpid(), child.pid, flush=True); time.sleep(600)"
    running = daemon.start_nls("run", "--name", "victim", "--", sys.executable, "-c", script)
    assert running.stdout is not None
    pids = [int(word) for word in running.stdout.readline().split()]
    daemon.wait_for("victim", phase="running")
    running.kill()
    running.communicate(timeout=20)
    wait_until(lambda: all(has_ended(pid) for pid in pids))
    wait_until(lambda: daemon.workload("victim") is None)


def test_a_killed_guardian_takes_its_command_along_and_the_daemon_does_the_rest(daemon: DaemonProcess) -> None:
    running = daemon.start_nls("run", "--name", "victim", "--", "sh", "-c", TELL_PID)
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    daemon.wait_for("victim", phase="running")
    guardian = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert guardian != running.pid
    os.kill(guardian, signal.SIGKILL)
    running.communicate(timeout=20)
    assert running.returncode == -signal.SIGKILL
    assert has_ended(pid)
    wait_until(lambda: daemon.workload("victim") is None)


def test_a_command_outlives_the_daemon(one_gpu_daemon: DaemonProcess, tmp_path: Path) -> None:
    daemon = one_gpu_daemon
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    running = daemon.start_nls("run", "--name", "survivor", "--", "sh", "-c", f"echo up; cat {fifo}; exit 4")
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    daemon.stop()
    fifo.write_text("done\n")
    out, _ = running.communicate(timeout=20)
    assert (running.returncode, out) == (4, "done\n")


def test_an_evicted_command_is_told_why_and_starts_again_where_it_asked_for_that(daemon: DaemonProcess) -> None:
    script = "trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done"
    burst = ["--request", "0.5", "--limit", "1.0", "--on-evict", "requeue", "--", "bash", "-c", script]
    sweeps = {name: daemon.start_nls("run", "--name", name, *burst) for name in ("sweep-1", "sweep-2")}
    on = {name: daemon.wait_for(name, phase="running")["current"] for name in sweeps}
    assert on["sweep-1"] != on["sweep-2"]
    owner = daemon.nls("run", "--name", "owner", "--", "echo", "mine")
    assert (owner.returncode, owner.stdout) == (0, "mine\n")
    entries = daemon.request("GET", "/v1/history")[1]["entries"]
    evicted = [entry for entry in entries if entry["event"] == "evicted" and entry["name"] in sweeps]
    assert [entry["cause"]["name"] for entry in evicted] == ["owner"]
    moved = sweeps[evicted[0]["name"]]
    assert moved.stdout is not None
    assert moved.stderr is not None
    assert [moved.stdout.readline(), moved.stdout.readline()] == ["started\n", "started\n"]
    assert moved.stderr.readline().startswith("nls: stopping bash: ")
    for name, sweep in sweeps.items():
        daemon.wait_for(name, phase="running")
        sweep.send_signal(signal.SIGTERM)
        sweep.communicate(timeout=20)
        assert sweep.returncode == 0


ENDS_WHEN_ASKED_TWICE = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
for told in ("up", "asked"):
    print(told, flush=True)
    signal.sigwait({signal.SIGTERM})
sys.exit(3)
"""


def test_who_ends_a_command_that_is_being_stopped_does_not_have_it_start_again(daemon: DaemonProcess) -> None:
    command = [sys.executable, "-c", ENDS_WHEN_ASKED_TWICE]
    burst = ["--request", "0.5", "--limit", "1.0", "--on-evict", "requeue", "--", *command]
    sweeps = [daemon.start_nls("run", "--name", name, *burst) for name in ("sweep-1", "sweep-2")]
    for name in ("sweep-1", "sweep-2"):
        daemon.wait_for(name, phase="running")
    owner = daemon.start_nls("run", "--name", "owner", "--", "true")
    pipes = [sweep.stdout for sweep in sweeps if sweep.stdout is not None]
    assert [pipe.readline() for pipe in pipes] == ["up\n"] * 2
    asked = sweeps[pipes.index(select.select(pipes, [], [], 20)[0][0])]
    asked.send_signal(signal.SIGTERM)
    asked.communicate(timeout=20)
    assert asked.returncode == 3
    owner.communicate(timeout=20)
    (other,) = (sweep for sweep in sweeps if sweep is not asked)
    other.send_signal(signal.SIGTERM)
    assert other.stdout is not None
    assert other.stdout.readline() == "asked\n"
    other.send_signal(signal.SIGTERM)
    other.communicate(timeout=20)
    assert other.returncode == 3


USES = """
import os, time
from nls_scheduler.drivers.simulated import SimulatedGpu
SimulatedGpu.from_environment(os.environ).allocate({gib} * 2**30)
print("uses it", flush=True)
time.sleep(600)
"""


@pytest.mark.long("a command that passes its limit again and again")
def test_a_command_that_passes_its_limit_again_and_again_is_given_up_with_the_reason(daemon: DaemonProcess) -> None:
    greedy = ["--request", "4GiB", "--limit", "6GiB", "--on-evict", "requeue"]
    done = daemon.nls("run", *greedy, "--", sys.executable, "-c", USES.format(gib=8))
    assert done.returncode == 75
    assert done.stdout == "uses it\n" * 3
    gave_up = r"nls: gave up after 3 failures in a row: it used 8[.\d]* GiB, above its limit of 6 GiB\n$"
    assert re.search(gave_up, done.stderr)
    assert daemon.workload(sys.executable) is None
    assert f"nls: {last_entry(daemon, 'released')['reason']}\n" in done.stderr


@pytest.mark.long("`nls run` in rare cases")
def test_an_orphan_that_hides_its_workload_is_held_to_its_limit_all_the_same(daemon: DaemonProcess) -> None:
    hides = f"(setsid -f {sys.executable} -c '{USES.format(gib=8)}' &); sleep 600"
    done = daemon.nls("run", "--request", "4GiB", "--", "env", "-u", "NLS_WORKLOAD", "sh", "-c", hides)
    assert done.returncode == 75
    assert re.search(r"was stopped: it used 8[.\d]* GiB, above its limit of 4 GiB\n$", done.stderr)


@pytest.mark.long("`nls run` in rare cases")
@pytest.mark.parametrize("phase", ["running", "queued"])
def test_who_is_released_is_not_told_that_the_daemon_has_gone(one_gpu_daemon: DaemonProcess, phase: str) -> None:
    daemon = one_gpu_daemon
    names = ["released"] if phase == "running" else ["owner", "released"]
    commands = []
    for name in names:
        commands.append(daemon.start_nls("run", "--name", name, "--on-evict", "requeue", "--", "sleep", "600"))
        entry = daemon.wait_for(name, phase=phase if name == "released" else "running")
    assert daemon.request("DELETE", f"/v1/workloads/{entry['id']}")[0] == 202
    _, err = commands[-1].communicate(timeout=20)
    assert err.endswith(": released by its user\n" if phase == "running" else ": the workload was released\n")
    assert "does not answer" not in err
    for command in commands[:-1]:
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=20)


def last_entry(daemon: DaemonProcess, event: str) -> dict[str, object]:
    entries = daemon.request("GET", "/v1/history")[1]["entries"]
    return [entry for entry in entries if entry["event"] == event][-1]


@pytest.mark.long("commands that wait through a daemon's deaths")
def test_what_has_run_and_waits_too_long_to_start_again_is_said_to_have_run(one_gpu_daemon: DaemonProcess) -> None:
    daemon = one_gpu_daemon
    owner = daemon.start_nls("run", "--name", "owner", "--request", "0.6", "--", "sleep", "600")
    daemon.wait_for("owner", phase="running")
    more = ["--request", "0.25", "--limit", "1.0", "--on-evict", "requeue", "--max-wait", "3s"]
    done = daemon.nls("run", *more, "--", sys.executable, "-c", USES.format(gib=12))
    assert done.returncode == 124, done
    assert done.stdout == "uses it\n"
    assert "more than its request of 4 GiB" in done.stderr
    assert done.stderr.endswith(f"{sys.executable} was not started again\n")
    assert last_entry(daemon, "released")["reason"] == "no GPU within 3 s (--max-wait)"
    owner.send_signal(signal.SIGTERM)
    owner.communicate(timeout=20)


def test_a_command_that_may_not_start_again_ends_with_75_when_it_is_stopped(daemon: DaemonProcess) -> None:
    running = daemon.start_nls("run", "--name", "victim", "--", "sleep", "600")
    entry = daemon.wait_for("victim", phase="running")
    assert daemon.request("DELETE", f"/v1/workloads/{entry['id']}")[0] == 202
    _, err = running.communicate(timeout=20)
    assert running.returncode == 75
    assert err.splitlines() == [
        "nls: stopping sleep: released by its user",
        "nls: sleep was stopped: released by its user",
    ]


class Terminal:
    """A pseudo terminal with `nls run` in its foreground."""

    def __init__(self, daemon: DaemonProcess, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*NLS, *arguments],
            env=daemon.environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.text):
            readable, _, _ = select.select([self.master], [], [], 15)
            assert readable, f"{pattern!r} did not appear in {self.text!r}"
            self.text += os.read(self.master, 65536).decode()


def test_ctrl_c_in_a_terminal_reaches_the_command_once(daemon: DaemonProcess) -> None:
    script = "trap 'n=$((n+1)); echo interrupted $n' INT; trap 'echo $n in all; exit 3' USR1; echo ready; "
    script += "while :; do sleep 0.05; done"
    with Terminal(daemon, "run", "--name", "shell", "--", "bash", "-c", script) as terminal:
        terminal.read_until("ready")
        terminal.type(b"\x03")
        terminal.read_until("interrupted 1")
        terminal.process.send_signal(signal.SIGUSR1)
        terminal.read_until("1 in all")
        assert terminal.process.wait(15) == 3


def test_a_terminal_shows_one_live_line_and_ctrl_c_ends_the_wait(one_gpu_daemon: DaemonProcess) -> None:
    daemon = one_gpu_daemon
    first = daemon.start_nls("run", "--name", "first", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    with Terminal(daemon, "run", "--name", "second", "--", "true") as terminal:
        terminal.read_until(r"waiting for a GPU \(1\. in line\)")
        terminal.read_until(r"\[[1-9] s\]")
        assert "\n" not in terminal.text
        terminal.type(b"\x03")
        assert terminal.process.wait(15) == 130
    wait_until(lambda: daemon.workload("second") is None)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=20)


def test_what_is_told_during_a_wait_has_a_line_of_its_own(one_gpu_daemon: DaemonProcess) -> None:
    daemon = one_gpu_daemon
    first = daemon.start_nls("run", "--name", "first", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    with Terminal(daemon, "run", "--name", "second", "--", "true") as terminal:
        terminal.read_until(r"waiting for a GPU \(1\. in line\)")
        daemon.kill()
        terminal.read_until("waiting for it")
        assert "\r\x1b[Knls: the daemon does not answer; waiting for it" in terminal.text
        daemon.start()
    wait_until(lambda: daemon.workload("second") is None)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=20)


def test_an_empty_command_is_no_command(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--", "", "argument")
    assert (done.returncode, done.stderr) == (2, "nls: the command is empty: name one after --\n")
    assert daemon.status()["workloads"] == []


def test_a_command_runs_with_a_closed_stderr_too(daemon: DaemonProcess, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            'exec "$@" 2>&-',
            "sh",
            *NLS,
            "--socket",
            str(daemon.socket),
            "run",
            "--",
            "sh",
            "-c",
            "echo out; exit 7",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "out\n")


@pytest.mark.long("`nls run` in rare cases")
@pytest.mark.parametrize(
    ("words", "code"), [(["explain", "nobody"], 3), (["run", "--max-wait", "1s", "--", "true"], 124)]
)
def test_a_full_disk_behind_stderr_costs_the_sentence_and_not_the_exit_code(
    one_gpu_daemon: DaemonProcess, words: list[str], code: int
) -> None:
    one_gpu_daemon.start_nls("run", "--name", "holder", "--", "sleep", "600")
    one_gpu_daemon.wait_for("holder", phase="running")
    with Path("/dev/full").open("w") as full:
        command = [*NLS, "--socket", str(one_gpu_daemon.socket), *words]
        assert subprocess.run(command, stderr=full, timeout=60, check=False).returncode == code


def test_a_full_disk_behind_the_output_is_one_sentence(daemon: DaemonProcess) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*NLS, "--socket", str(daemon.socket), "status"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "nls: the output cannot be written: there is no room left for it\n")
