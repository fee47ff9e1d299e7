"""`nls top` in a real terminal, and `nls status --watch` in a pipe, against a real daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import NLS, DaemonProcess
from hub import BERT, CANNOT
from left_out import thinned
from terminals import InTerminal
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

SLEEP = ("--", sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def node(one_gpu_daemon: DaemonProcess) -> DaemonProcess:
    return one_gpu_daemon


def top(daemon: DaemonProcess, *before: str, **variables: str) -> InTerminal:
    environment = {**daemon.environment, "TERM": "xterm-256color", "PYTHONUTF8": "1", **variables}
    return InTerminal([*before, *NLS, "top"], environment)


@pytest.mark.long("daemons of their own for a terminal or a pipe")
def test_top_shows_the_node_acts_and_goes_on_through_a_restart(node: DaemonProcess) -> None:
    node.start_nls("run", "--name", "training", *SLEEP)
    with top(node) as terminal:
        terminal.shows("training")
        terminal.shows("q quit")
        terminal.press("s")
        terminal.shows("only notebooks can be suspended")
        terminal.press("e")
        terminal.shows("Its request is counted on GPU 0.")
        terminal.press("q")
        terminal.forget()
        terminal.resize(120, 30)
        terminal.shows("1 GPU (simulated)   1 workload   0 in line")
        node.kill()
        terminal.shows("Waiting for a daemon")
        terminal.forget()
        node.start()
        node.start_nls("run", "--name", "another", *SLEEP)
        terminal.shows("another")
        terminal.press("q")
        assert terminal.ended() == 0
        assert_restored(terminal)


@pytest.mark.parametrize(
    ("number", "code"), thinned([(signal.SIGTERM, 143), (signal.SIGINT, 0), (signal.SIGHUP, 143)], 3, "each signal")
)
def test_a_signal_leaves_the_terminal_as_it_was(shared_daemon: DaemonProcess, number: int, code: int) -> None:
    with top(shared_daemon) as terminal:
        terminal.shows("Nobody asks for a GPU.")
        terminal.process.send_signal(number)
        assert terminal.ended() == code
        assert_restored(terminal)
        assert "Traceback" not in terminal.read()


def assert_restored(terminal: InTerminal) -> None:
    assert termios.tcgetattr(terminal.master) == terminal.before
    assert terminal.received.endswith(b"\x1b[?25h\x1b[?1049l")  # its cursor, and the screen that was there before


def test_a_terminal_that_cannot_move_its_cursor_gets_no_control_characters(shared_daemon: DaemonProcess) -> None:
    with top(shared_daemon, TERM="dumb") as terminal:
        terminal.shows("Nobody asks for a GPU.")
        terminal.press("o")
        terminal.shows("sorted by name")
        terminal.press("q")
        assert terminal.ended() == 0
        assert b"\x1b" not in terminal.received


@pytest.mark.long("daemons of their own for a terminal or a pipe")
def test_no_color_means_none(node: DaemonProcess) -> None:
    def colours(received: bytes) -> bool:
        return any(b"\x1b[%dm" % number in received for number in range(30, 38))

    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        node.start_nls("run", "--name", "training", *SLEEP)
        with top(node, **variables) as terminal:
            terminal.shows("running")
            assert colours(terminal.received) is coloured
            terminal.press("\x03")
            assert terminal.ended() == 0


@pytest.mark.long("daemons of their own for a terminal or a pipe")
@pytest.mark.skipif(CANNOT is not None, reason=str(CANNOT))
def test_what_is_anothers_is_refused_with_the_daemons_sentence(node: DaemonProcess) -> None:
    node.start_nls("run", "--name", "training", *SLEEP)
    node.wait_for("training", phase="running")
    node.socket.chmod(0o666)
    for parent in node.socket.parents:
        if parent.stat().st_uid == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    other = ("setpriv", f"--reuid={BERT}", f"--regid={BERT}", "--clear-groups", "--inh-caps=+dac_read_search")
    with top(node, *other, "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search") as terminal:
        terminal.shows("training")
        terminal.press("s")
        terminal.shows("belongs to another user")
        terminal.press("q")
        assert terminal.ended() == 0


@pytest.mark.long("daemons of their own for a terminal or a pipe")
def test_without_a_terminal_or_without_a_daemon_it_says_so(node: DaemonProcess, tmp_path: Path) -> None:
    done = node.nls("top")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs a terminal" in done.stderr
    assert "nls status --watch" in done.stderr
    with top(node, NLS_SOCKET=str(tmp_path / "none.sock")) as terminal:
        assert terminal.ended() == 3
        assert "No daemon answers at" in terminal.read()
        assert b"\x1b[?1049h" not in terminal.received


# status --watch ----------------------------------------------------------------------------------------------------


def names(status: Any) -> list[tuple[str, str]]:
    return [(workload["name"], workload["phase"]) for workload in status["workloads"]]


@pytest.mark.long("daemons of their own for a terminal or a pipe")
def test_watching_tells_each_change_once_and_goes_on_through_a_restart(node: DaemonProcess) -> None:
    watching = node.start_nls("status", "--watch", "--json")
    assert watching.stdout is not None
    assert names(json.loads(watching.stdout.readline())) == []
    command = node.start_nls("run", "--name", "training", *SLEEP)
    seen = [names(json.loads(watching.stdout.readline()))]
    while seen[-1] != [("training", "running")]:
        seen.append(names(json.loads(watching.stdout.readline())))
    node.kill()
    node.start()
    node.wait_for("training", phase="running")
    command.terminate()
    while names(status := json.loads(watching.stdout.readline())):
        assert status["gpus"]
    watching.send_signal(signal.SIGINT)
    said = watching.communicate(timeout=15)[1]
    assert watching.returncode == 130
    assert "Waiting for a daemon." in said
    assert "the daemon is there again" in said
    assert "Traceback" not in said


def test_watching_ends_when_nobody_reads_any_more_although_nothing_happens(shared_daemon: DaemonProcess) -> None:
    reading, writing = os.pipe()
    command = [*NLS, "status", "--watch"]
    with subprocess.Popen(command, env=shared_daemon.environment, stdout=writing, stderr=subprocess.PIPE) as watching:
        os.close(writing)
        assert b"Nobody asks for a GPU." in read_until(reading, b"GPU.")
        os.close(reading)
        assert watching.wait(15) == 141
        assert watching.stderr is not None
        assert watching.stderr.read() == b""


def read_until(descriptor: int, end: bytes) -> bytes:
    received = b""
    while end not in received:
        received += os.read(descriptor, 4096)
    return received


@pytest.mark.long("daemons of their own for a terminal or a pipe")
def test_watching_a_file_and_no_daemon(node: DaemonProcess, tmp_path: Path) -> None:
    path = tmp_path / "statuses"
    with path.open("wb") as file:
        watching = subprocess.Popen([*NLS, "status", "--watch"], env=node.environment, stdout=file)
    try:
        wait_until(lambda: "Nobody asks for a GPU." in path.read_text())
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(15) == 130
    done = node.nls("--socket", str(tmp_path / "none.sock"), "status", "--watch")
    assert done.returncode == 3
    assert "No daemon answers at" in done.stderr
