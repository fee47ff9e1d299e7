"""A socket or a lock that somebody removes under a running daemon, and one that systemd passes."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon_process import NLS, DaemonProcess, nls_environment
from left_out import thinned
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire import locate
from nls_scheduler.wire.holder import holder_of
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def remove(daemon: DaemonProcess) -> None:
    daemon.socket.unlink()


def replace(daemon: DaemonProcess) -> None:
    daemon.socket.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(daemon.socket))


def remove_directory(daemon: DaemonProcess) -> None:
    shutil.rmtree(daemon.directory)


@pytest.mark.parametrize("fault", thinned([remove, replace, remove_directory], 3, "ways to remove a socket"))
def test_a_socket_that_is_removed_is_there_again_within_seconds_and_who_is_connected_stays_so(
    tmp_path: Path, fault: Callable[[DaemonProcess], None]
) -> None:
    (tmp_path / "run").mkdir()
    daemon = DaemonProcess(tmp_path / "run", "2x1GiB")
    daemon.log_path = tmp_path / "daemon.log"
    command = daemon._command
    command[command.index("--state-dir") + 1] = str(tmp_path / "state")
    with daemon:
        assert daemon.process is not None
        with daemon.connection() as connected:
            fault(daemon)
            wait_until(lambda: locate.answers(daemon.socket))
            connected.sendall(b"GET /livez HTTP/1.1\r\nHost: nls\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in connected.recv(65536)
        assert len(daemon.status()["gpus"]) == 2
        assert daemon.socket.stat().st_mode & 0o777 == 0o600
        wait_until(lambda: daemon.socket.with_name("nls.sock.lock").exists())
        again = daemon.nls("up", "--simulate", "1x1GiB")
        assert (again.returncode, "already serves" in again.stderr) == (3, True)
        assert daemon.nls("run", "--", "echo", "ran").stdout == "ran\n"


@pytest.mark.long("ways to remove a socket")
def test_a_file_that_is_no_socket_is_left_in_its_place_and_told_of_once(daemon: DaemonProcess) -> None:
    daemon.socket.unlink()
    daemon.socket.write_text("a file of somebody's")
    wait_until(lambda: "cannot be made again" in daemon.log)
    assert daemon.socket.read_text() == "a file of somebody's"
    daemon.socket.unlink()
    wait_until(lambda: locate.answers(daemon.socket))
    assert daemon.log.count("cannot be made again") == 1


def test_a_daemon_that_is_to_serve_where_a_file_is_says_so_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "nls.sock").write_text("a file of somebody's")
    done = subprocess.run(
        [*NLS, "--socket", str(tmp_path / "nls.sock"), "up", "--simulate", "1x1GiB"],
        env=nls_environment(), capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, "something else than a socket is there, and stays" in done.stderr) == (3, True), done
    assert (tmp_path / "nls.sock").read_text() == "a file of somebody's"


@pytest.mark.long("sockets and locks that are taken away from a daemon, in rare orders")
def test_a_daemon_whose_lock_another_one_has_by_now_gives_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    first, second = DaemonProcess(tmp_path), DaemonProcess(tmp_path / "second")
    second.socket, second.environment = first.socket, first.environment
    with first:
        assert first.process is not None
        first.process.send_signal(signal.SIGSTOP)
        first.socket.unlink()
        first.socket.with_name("nls.sock.lock").unlink()
        with second:
            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(15) == 3
            first.process = None
            assert "another daemon has it now, so this one ends" in first.log
            assert len(second.status()["gpus"]) == 2
            assert first.socket.with_name("nls.sock.lock").exists()


@pytest.mark.long("ways to remove a socket")
@pytest.mark.parametrize("removed", ["journal.db*", "*"])
def test_who_removes_the_journal_lets_no_second_daemon_in(daemon: DaemonProcess, tmp_path: Path, removed: str) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)  # it has no moment to lock anything again
    for file in (daemon.directory / "state").glob(removed):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    words = ("--socket", str(tmp_path / "other.sock"), "--state-dir", str(daemon.directory / "state"))
    again = daemon.nls(*words, "up", "--simulate", "1x1GiB")
    daemon.process.send_signal(signal.SIGCONT)
    assert (again.returncode, "Another daemon keeps its journal in" in again.stderr) == (3, True), again


@pytest.mark.long("sockets and locks that are taken away from a daemon, in rare orders")
def test_what_is_said_of_a_daemon_that_does_not_answer_is_true_in_every_state(daemon: DaemonProcess) -> None:
    process = daemon.process
    assert process is not None
    pid = process.pid
    process.send_signal(signal.SIGSTOP)
    told = daemon.nls("up", "--simulate", "1x1GiB")
    assert (told.returncode, f"`kill -CONT {pid}` has it go on" in told.stderr) == (3, True), told
    daemon.socket.unlink()
    for words in (("status",), ("up", "--simulate", "1x1GiB"), ("doctor",)):
        told = daemon.nls(*words)
        assert f"`kill -CONT {pid}` has it go on" in told.stderr + told.stdout, told
        assert "start one" not in told.stderr
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: locate.answers(daemon.socket))
    daemon.kill()
    assert f"start one with `nls up --socket {daemon.socket}`" in daemon.nls("status").stderr
    daemon.start()


# A process of systemd's: it holds the socket, and starts the daemon as sd_listen_fds(3) describes it.
PASSES = """
import os, sys
passed = int(sys.argv[1])
os.dup2(passed, 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="nls.socket")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class ActivatedDaemon(DaemonProcess):
    """One whose socket is systemd's."""

    def __init__(self, directory: Path, listening: socket.socket) -> None:
        super().__init__(directory)
        self.listening = listening

    def start(self) -> None:
        """Whoever connects waits for it, so that nothing has to be awaited here."""
        number = self.listening.fileno()
        command = [sys.executable, "-c", PASSES, str(number), *self._command[1:]]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, pass_fds=[number])


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "nls.sock"))
        made.listen(64)
        yield made
        (tmp_path / "nls.sock").unlink(missing_ok=True)


@pytest.mark.long("sockets and locks that are taken away from a daemon, in rare orders")
def test_whoever_connects_to_systemds_socket_waits_through_a_restart(tmp_path: Path, listening: socket.socket) -> None:
    daemon = ActivatedDaemon(tmp_path, listening)

    async def story() -> None:
        client = DaemonClient(daemon.socket)
        early = asyncio.create_task(client.submit(kind="notebook", name="early"))
        await asyncio.to_thread(daemon.start)
        assert (await early)["name"] == "early"
        assert daemon.process is not None
        daemon.process.terminate()
        await asyncio.to_thread(daemon.process.wait, 15)
        asking = asyncio.create_task(client.status())
        await asyncio.to_thread(daemon.start)
        assert [each["name"] for each in (await asking)["workloads"]] == ["early"]

    try:
        asyncio.run(story())
        assert "LISTEN_FDS" not in daemon.nls("run", "--", "env").stdout
    finally:
        assert daemon.process is not None
        daemon.process.terminate()
        assert daemon.process.wait(15) == 0, daemon.log
    assert daemon.socket.exists()


def test_systemds_socket_is_not_made_again_by_us(tmp_path: Path, listening: socket.socket) -> None:
    daemon = ActivatedDaemon(tmp_path, listening)
    daemon.start()
    assert daemon.process is not None
    try:
        assert len(daemon.status()["gpus"]) == 2
        daemon.socket.unlink()
        wait_until(lambda: "`systemctl restart nls.socket` makes it again" in daemon.log)
        assert not daemon.socket.exists()
    finally:
        daemon.process.terminate()
        assert daemon.process.wait(15) == 0, daemon.log


def test_another_socket_than_the_daemons_is_refused(tmp_path: Path, listening: socket.socket) -> None:
    command = [sys.executable, "-c", PASSES, str(listening.fileno()), *NLS[1:]]
    done = subprocess.run(
        [*command, "--socket", str(tmp_path / "other.sock"), "up", "--simulate", "1x1GiB"],
        env=nls_environment(), pass_fds=[listening.fileno()], capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, "correct ListenStream= or --socket" in done.stderr) == (2, True), done
    assert not os.path.lexists(tmp_path / "other.sock")


def test_a_socket_that_is_said_to_be_passed_and_is_not_is_named(tmp_path: Path, listening: socket.socket) -> None:
    passes = PASSES.replace('LISTEN_FDS="1"', 'LISTEN_FDS="2"').replace("os.execv", "os.closerange(4, 99); os.execv")
    command = [sys.executable, "-c", passes, str(listening.fileno()), *NLS[1:]]
    done = subprocess.run(
        [*command, "--socket", str(tmp_path / "nls.sock"), "up", "--simulate", "1x1GiB"],
        env=nls_environment(), pass_fds=[listening.fileno()], capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, "LISTEN_FDS=2 says" in done.stderr) == (2, True), done


def test_a_daemon_in_the_background_has_the_socket_that_was_passed(tmp_path: Path, listening: socket.socket) -> None:
    place = (tmp_path / "nls.sock").stat()
    daemon = ActivatedDaemon(tmp_path, listening)
    daemon._command += ["--background"]
    daemon.start()
    assert daemon.process is not None
    assert daemon.process.wait(15) == 0, daemon.log
    holder = holder_of(daemon.socket)
    assert holder is not None
    try:
        assert len(daemon.status()["gpus"]) == 2
        assert os.path.samestat((tmp_path / "nls.sock").stat(), place)
    finally:
        with os.fdopen(os.pidfd_open(holder.pid)) as ended:
            os.kill(holder.pid, signal.SIGTERM)
            assert select.select([ended], [], [], 15)[0], daemon.log
    assert daemon.socket.exists()


@pytest.mark.long("ways to remove a socket")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_where_another_user_has_made_the_directory_anew_nothing_is_made(tmp_path: Path) -> None:
    """Not by their links either: a file of root's in a place of their choice would be theirs to choose."""
    tmp_path.chmod(0o1777)
    place, elsewhere = tmp_path / "run", tmp_path / "made"
    place.mkdir()
    daemon = DaemonProcess(place, "1x1GiB")
    daemon.log_path = tmp_path / "daemon.log"
    command = daemon._command
    command[command.index("--state-dir") + 1] = str(tmp_path / "state")
    with daemon:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            shutil.rmtree(place)
            # From where it is: what leads there may be root's alone.
            makes = "import os; os.setuid(65534); os.mkdir('run'); os.symlink('../made', 'run/nls.sock.lock')"
            subprocess.run([sys.executable, "-c", makes], cwd=tmp_path, check=True)
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        wait_until(lambda: "cannot be made again" in daemon.log)
        assert "its directory belongs to" in daemon.log
        assert not elsewhere.exists()
        assert [path.name for path in place.iterdir()] == ["nls.sock.lock"]
