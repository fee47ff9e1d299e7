"""How the real daemon starts, refuses to start, is started by clients, and ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from daemon_process import NLS, DaemonProcess, nls_environment
from left_out import thinned
from nls_scheduler.cli import up
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.patience import Patience
from nls_scheduler.wire import locate
from nls_scheduler.wire.holder import holder_of
from waiting import wait_until


def test_a_daemon_that_does_not_serve_in_time_is_not_left_to_serve_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(_: object) -> None:
        raise AssertionError("not within no time at all")

    late = DaemonProcess(tmp_path)
    monkeypatch.setattr("daemon_process.wait_until", give_up)
    with pytest.raises(AssertionError, match="no time at all"):
        late.start()
    assert late.process is None


def test_a_second_daemon_on_the_same_socket_is_refused_and_the_first_goes_on(daemon: DaemonProcess) -> None:
    second = daemon.nls("up", "--simulate", "1x1GiB")
    assert second.returncode == 3
    assert "already serves" in second.stderr
    assert len(daemon.status()["gpus"]) == 2
    wait_until(lambda: f"serving {daemon.socket}, for our own user and root alone" in daemon.log)


def test_a_second_daemon_on_the_same_journal_is_refused_whatever_its_socket(daemon: DaemonProcess) -> None:
    second = daemon.nls(
        "--state-dir",
        str(daemon.directory / "state"),
        "up",
        "--simulate",
        "1x1GiB",
        "--socket",
        str(daemon.directory / "b"),
    )
    assert second.returncode == 3
    assert f"keeps its journal in {daemon.directory / 'state'}" in second.stderr
    assert len(daemon.status()["gpus"]) == 2
    daemon.kill()
    daemon.start()


def test_a_socket_that_a_killed_daemon_left_behind_is_replaced(daemon: DaemonProcess) -> None:
    daemon.kill()
    assert daemon.socket.exists()
    unreachable = daemon.nls("status")
    assert unreachable.returncode == 3
    assert f"nls up --socket {daemon.socket}" in unreachable.stderr
    daemon.start()
    assert len(daemon.status()["gpus"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    thinned(
        [
            (["--simulate", "many"], "does not describe simulated GPUs"),
            (["--simulate", "1x1GiB", "--context-memory", "2GiB"], "does not fit"),
            (["--simulate", "1x1GiB", "--set", "stop_grace_s=40"], "contradicts reclaim_deadline_s"),
            (["--simulate", "1x1GiB", "--set", "reclaim_deadlin_s=4"], "did you mean reclaim_deadline_s?"),
            (["--simulate", "1x1GiB", "--set", "default_request=0.9", "--set", "default_limit=0.5"], "contradicts"),
            (["--simulate", "1x1GiB", "--idle-exit", "-1"], "'-1' is not a number of seconds above zero"),
        ],
        3,
        "wrong settings of a daemon",
    ),
)
def test_a_daemon_that_is_told_nonsense_does_not_start(tmp_path: Path, arguments: list[str], says: str) -> None:
    command = [*NLS, "--socket", str(tmp_path / "nls.sock"), "up", *arguments]
    done = subprocess.run(command, env=nls_environment(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.glob("nls.sock*")) == []


def test_a_daemon_in_the_background_lets_go_of_whoever_reads_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "nls.sock"
    command = [*NLS, "--socket", str(path), "up", "--simulate", "1x1GiB", "--background", "--idle-exit", "60"]
    (tmp_path / locate.LOG_NAME).touch(0o644)  # an earlier version's
    try:
        done = subprocess.run(
            command, env=nls_environment(), capture_output=True, text=True, timeout=30, check=False, umask=0o022
        )
        files = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir() if file.is_file()}
    finally:
        end_who_serves(path)
    assert done.returncode == 0, done.stderr
    assert {locate.LOG_NAME, "journal.db", "journal.db-wal", "journal.db-shm", "adoption.key"} <= files.keys()
    assert set(files.values()) == {0o600}


def end_who_serves(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        (daemon,) = struct.unpack("i8x", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(daemon, signal.SIGTERM)
    wait_until(lambda: not path.exists())


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_a_daemon_in_the_background_says_that_it_answers_whatever_is_closed(tmp_path: Path, closed: str) -> None:
    path = tmp_path / "nls.sock"
    command = [*NLS, "--socket", str(path), "up", "--simulate", "1x1GiB", "--background", "--idle-exit", "60"]
    try:
        done = subprocess.run(
            ["sh", "-c", f"exec {shlex.join(command)} {closed}"], env=nls_environment(), timeout=30, check=False
        )
    finally:
        end_who_serves(path)
    assert done.returncode == 0


def test_what_a_daemon_in_the_background_has_told_reaches_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines are written by a thread of their own: only then its stderr is another."""
    told, shown = logging.Handler(), []
    monkeypatch.setattr(told, "flush", lambda: shown.append("all lines"))
    monkeypatch.setattr(logging.root, "handlers", [told])
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 2)
    monkeypatch.setattr(os, "dup2", lambda *_: shown.append("elsewhere"))
    up._let_go_of_whoever_waits(tmp_path / locate.LOG_NAME)
    assert shown[0] == "all lines"
    assert set(shown[1:]) == {"elsewhere"}


def test_a_daemon_whose_driver_hangs_ends_when_it_is_told_to(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path)
    daemon.start()
    ledger = tmp_path / "state" / "simulated" / f"{daemon.status()['gpus'][0]['uuid']}.ledger"
    with ledger.open("rb+") as gpu:
        fcntl.flock(gpu, fcntl.LOCK_EX)
        daemon.stop()
        assert "ends without it" in daemon.log
        begins = subprocess.Popen(daemon._command, env=daemon.environment, stderr=subprocess.DEVNULL)
        wait_until(lambda: holder_of(daemon.socket) is not None)
        begins.send_signal(signal.SIGINT)
        assert begins.wait(15) == -signal.SIGINT


def test_a_node_without_gpu_serves_and_every_request_says_why_and_what_to_do(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has an NVIDIA driver")
    command = [*NLS, "--socket", str(tmp_path / "nls.sock"), "up"]
    environment = nls_environment(NLS_SOCKET=str(tmp_path / "nls.sock"))
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: locate.answers(tmp_path / "nls.sock"))
        status = subprocess.run([*NLS, "status"], env=environment, capture_output=True, text=True, check=True)
        assert "There is no NVIDIA driver on this machine" in status.stdout
        refused = subprocess.run(
            [*NLS, "run", "--", "true"], env=environment, capture_output=True, text=True, check=False
        )
        assert refused.returncode == 3
        assert "nls up --simulate 2x16GiB" in refused.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0


def test_an_idle_daemon_ends_by_itself(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path)
    done = daemon.nls("--state-dir", str(tmp_path / "state"), "up", "--simulate", "1x1GiB", "--idle-exit", "0.3")
    assert (done.returncode, "nobody has used this daemon" in done.stderr) == (0, True)
    assert not daemon.socket.exists()


@pytest.mark.long("daemons that clients started, and others")
def test_a_client_starts_this_users_daemon_only_at_the_default_path(tmp_path: Path) -> None:
    if locate.SYSTEM_SOCKET.exists():
        pytest.skip("this machine has a system daemon")
    environment = nls_environment(XDG_RUNTIME_DIR=str(tmp_path), NLS_SIMULATE="1x2GiB")
    named = subprocess.run(
        [*NLS, "--socket", str(tmp_path / "named.sock"), "run", "--", "true"],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert named.returncode == 3
    assert "No daemon answers" in named.stderr
    clients = [subprocess.Popen([*NLS, "run", "--", "sh", "-c", f"exit {code}"], env=environment) for code in (0, 5)]
    assert [client.wait(60) for client in clients] == [0, 5]
    try:
        status = subprocess.run([*NLS, "status", "--json"], env=environment, capture_output=True, check=True)
        assert json.loads(status.stdout)["gpus"][0]["memory_total_bytes"] == 2 * 2**30
    finally:
        pid = _daemon_pid(tmp_path)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not (tmp_path / "nls" / "nls.sock").exists())


def test_a_daemon_that_a_client_has_started_makes_room_for_other_gpus_unless_somebody_uses_it(tmp_path: Path) -> None:
    if locate.SYSTEM_SOCKET.exists():
        pytest.skip("this machine has a system daemon")

    def environment(simulate: str) -> dict[str, str]:
        return nls_environment(XDG_RUNTIME_DIR=str(tmp_path), NLS_SIMULATE=simulate)

    def gpus_after_a_run(simulate: str) -> list[int]:
        subprocess.run([*NLS, "run", "--", "true"], env=environment(simulate), check=True, timeout=60)
        told = subprocess.run([*NLS, "status", "--json"], env=environment(simulate), capture_output=True, check=True)
        return [gpu["memory_total_bytes"] >> 30 for gpu in json.loads(told.stdout)["gpus"]]

    assert gpus_after_a_run("1x2GiB") == [2]
    try:
        assert gpus_after_a_run("2x3GiB") == [3, 3]
        waits = [*NLS, "run", "--", "sh", "-c", "echo on; read line"]
        with subprocess.Popen(
            waits, env=environment("2x3GiB"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "on\n"
            assert gpus_after_a_run("1x2GiB") == [3, 3]
            running.communicate("over\n", timeout=60)
    finally:
        os.kill(_daemon_pid(tmp_path), signal.SIGTERM)
        wait_until(lambda: not (tmp_path / "nls" / "nls.sock").exists())


@pytest.mark.long("a daemon that is killed under who waits for it")
def test_a_killed_daemon_of_this_users_own_is_started_anew_by_who_runs_under_it_and_by_who_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if locate.SYSTEM_SOCKET.exists():
        pytest.skip("this machine has a system daemon")
    environment = nls_environment(XDG_RUNTIME_DIR=str(tmp_path), XDG_STATE_HOME=str(tmp_path), NLS_SIMULATE="1x2GiB")
    command = [*NLS, "run", "--name", "held", "--", "sh", "-c", "echo on; read line"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "on\n"
        _kill_daemon(tmp_path)
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "NLS_SIMULATE"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.delenv("NLS_SOCKET", raising=False)
        wait_until(lambda: _answers(tmp_path / "nls" / "nls.sock"))
        client = asyncio.run(DaemonClient.connect(patience=Patience(print)))
        wait_until(lambda: [(w["name"], w["phase"]) for w in _workloads(client)] == [("held", "running")])
        running.communicate("over\n", timeout=60)
        assert running.returncode == 0
    _kill_daemon(tmp_path)
    try:
        assert _workloads(client) == []
    finally:
        os.kill(_daemon_pid(tmp_path), signal.SIGTERM)
        wait_until(lambda: not (tmp_path / "nls" / "nls.sock").exists())


def _workloads(client: DaemonClient) -> list[Any]:
    return list(asyncio.run(client.status())["workloads"])


def _answers(path: Path) -> bool:
    return path.is_socket() and locate.answers(path)


def _kill_daemon(runtime: Path) -> None:
    os.kill(_daemon_pid(runtime), signal.SIGKILL)
    wait_until(lambda: not _answers(runtime / "nls" / "nls.sock"))


def test_a_daemon_that_is_started_by_hand_simulates_what_one_would_that_a_client_starts(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, None)
    daemon.environment["NLS_SIMULATE"] = "1x2GiB"
    with daemon:
        assert daemon.status()["gpus"][0]["memory_total_bytes"] == 2 * 2**30


@pytest.mark.long("daemons that clients started, and others")
def test_a_client_that_is_stopped_while_it_starts_a_daemon_holds_nobody_up_for_longer_than_they_wait(
    tmp_path: Path,
) -> None:
    if locate.SYSTEM_SOCKET.exists():
        pytest.skip("this machine has a system daemon")
    (tmp_path / "nls").mkdir(mode=0o700)
    with (tmp_path / "nls" / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [*NLS, "run", "--max-wait", "3s", "--", "true"],
            env=nls_environment(XDG_RUNTIME_DIR=str(tmp_path)), capture_output=True, text=True, check=False, timeout=25,
        )  # fmt: skip
    assert done.returncode == 124
    assert f"process {os.getpid()} starts the daemon at {tmp_path / 'nls' / 'nls.sock'}; waiting for it" in done.stderr


def _daemon_pid(runtime: Path) -> int:
    needle = str(runtime / "nls" / "nls.sock").encode()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
        except FileNotFoundError:
            continue
        if needle in words and b"up" in words:
            return int(directory.name)
    raise AssertionError("there is no daemon")


def test_a_daemon_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    if locate.SYSTEM_SOCKET.exists():
        pytest.skip("this machine has a system daemon")
    environment = nls_environment(XDG_RUNTIME_DIR=str(tmp_path), NLS_SIMULATE="nonsense")
    done = subprocess.run(
        [*NLS, "run", "--", "true"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 3
    assert "'nonsense' does not describe simulated GPUs" in done.stderr
