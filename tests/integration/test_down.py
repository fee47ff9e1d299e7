"""`nls down` ends a daemon, and `nls up` takes the place of one that nobody has asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from daemon_process import END_TIMEOUT_S, NLS, DaemonProcess, nls_environment
from nls_scheduler.cli import down
from nls_scheduler.wire import locate
from nls_scheduler.wire.holder import Holder
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Own:
    """A user whose daemon is where clients start one."""

    def __init__(self, runtime: Path) -> None:
        self.socket = runtime / "nls" / "nls.sock"
        self.environment = nls_environment(XDG_RUNTIME_DIR=str(runtime), NLS_SIMULATE="1x2GiB")

    def nls(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*NLS, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )

    def gpus(self) -> int:
        return len(json.loads(self.nls("status", "--json").stdout)["gpus"])


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    if locate.SYSTEM_SOCKET.exists():
        pytest.skip("this machine has a system daemon")
    own = Own(tmp_path)
    yield own
    own.nls("down")
    assert not own.socket.exists()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def pid_of(daemon: DaemonProcess) -> int:
    assert daemon.process is not None
    return daemon.process.pid


def test_a_daemon_is_ended_and_what_runs_goes_on_under_the_next_one(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        assert daemon.process is not None
        command = daemon.start_nls("run", "--name", "train", "--", "sleep", "600")
        wait_until(lambda: (daemon.workload("train") or {}).get("phase") == "running")
        ended = daemon.nls("down")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert f"The daemon at {daemon.socket} has ended." in ended.stdout
        assert daemon.process.wait(0) == 0
        again = daemon.nls("down")
        assert (again.returncode, again.stdout) == (3, "")
        assert f"No daemon answers at {daemon.socket}" in again.stderr
        daemon.start()
        wait_until(lambda: (daemon.workload("train") or {}).get("phase") == "running")
        assert command.poll() is None


def test_a_stopped_daemon_is_not_ended_and_the_sentence_says_how_it_goes_on(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon, stopped(pid_of(daemon)):
        done = daemon.nls("down")
        assert done.returncode == 3
        assert f"`kill -CONT {pid_of(daemon)}` has it go on" in done.stderr


@pytest.mark.long("daemons that clients started, and others")
@pytest.mark.parametrize(("variable", "sockets"), [("SYSTEMD_EXEC_PID", False), ("LISTEN_PID", True)])
def test_a_daemon_of_systemds_is_left_to_systemctl(tmp_path: Path, variable: str, sockets: bool) -> None:
    daemon = DaemonProcess(tmp_path)
    daemon._command = ["sh", "-c", f'{variable}=$$ exec "$@"', "sh", *daemon._command]
    with daemon:
        done = daemon.nls("down")
        assert done.returncode == 3
        assert "end it with `systemctl " in done.stderr
        assert (".socket " in done.stderr) == sockets
        assert pid_of(daemon)


def test_a_daemon_that_cannot_be_ended_from_here_is_left_and_the_sentence_says_by_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    with DaemonProcess(tmp_path) as daemon:
        with monkeypatch.context() as patched:
            patched.setattr(down, "holder_of", lambda _: None)
            with pytest.raises(down.Stays, match="cannot be seen from here, as one of another container"):
                down.end_daemon(daemon.socket)
        with monkeypatch.context() as patched:
            patched.setattr(signal, "pidfd_send_signal", refused)
            with pytest.raises(down.Stays, match="is another user's, its process is"):
                down.end_daemon(daemon.socket)
        with monkeypatch.context() as patched:
            patched.setattr(signal, "pidfd_send_signal", lambda *_: None)
            patched.setattr(down, "ENDS_WITHIN_S", 0.01)
            with pytest.raises(down.Stays, match=f"`kill -KILL {pid_of(daemon)}` ends it at once"):
                down.end_daemon(daemon.socket)
        monkeypatch.setattr(down, "holder_of", lambda _: Holder(2**22 + 1, stopped=False))
        down.end_daemon(daemon.socket)  # it was gone already


@pytest.mark.long("daemons that clients started, and others")
def test_a_daemon_that_a_client_has_started_and_nobody_uses_makes_room_for_the_one_that_is_asked_for(own: Own) -> None:
    assert own.nls("run", "--", "true").returncode == 0
    assert own.gpus() == 1
    up = own.nls("up", "--simulate", "2x16GiB", "--background")
    assert up.returncode == 0, up.stderr
    assert f"a client had started the daemon at {own.socket} by itself" in up.stderr
    assert own.gpus() == 2
    second = own.nls("up", "--simulate", "3x16GiB")
    assert second.returncode == 3
    assert "end it with `nls down`" in second.stderr
    assert own.gpus() == 2


@pytest.mark.long("daemons that clients started, and others")
def test_a_daemon_that_a_client_has_started_stays_while_it_looks_after_somebody(own: Own) -> None:
    with subprocess.Popen([*NLS, "run", "--", "sleep", "600"], env=own.environment, stderr=subprocess.DEVNULL) as run:
        try:
            wait_until(lambda: locate.answers(own.socket) and "sleep" in own.nls("status").stdout)
            refused = own.nls("up", "--simulate", "2x16GiB")
            assert refused.returncode == 3
            assert "already serves" in refused.stderr
            assert run.poll() is None
        finally:
            run.terminate()
            run.wait(END_TIMEOUT_S)
