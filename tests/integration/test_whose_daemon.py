"""Nothing is told to another user's daemon, and nothing is done for it; nobody takes what is another user's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from access_lists import let_nobody_write
from daemon_process import DaemonProcess, nls_environment
from integration.test_who_asks import BECOME, shared, user
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.link import Report
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE, look_up
from nls_scheduler.wire import locate, trust
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.protocol import CommandMessage
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nls_scheduler.core.model.ids import ProcessId

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

MALLORY = 65533
# Prints what it was sent by each who connects.
LISTENER = """
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
os.chmod(sys.argv[1], 0o666)
print("listens", flush=True)
while True:
    connected, _ = listening.accept()
    connected.settimeout(20)
    print(json.dumps(connected.recv(1000).decode()), flush=True)
    connected.close()
"""


def let_everybody_in(directory: Path) -> None:
    """Through root's directories above it."""
    for parent in (directory, *directory.parents):
        if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)


class Listener:
    """A process of Mallory's at a socket."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.chown(path.parent, MALLORY, MALLORY)
        let_everybody_in(path.parent)
        arguments = [str(path), json.dumps([MALLORY]), json.dumps(sys.path)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", BECOME + LISTENER, *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "listens\n"

    def was_sent(self) -> str:
        return str(json.loads(self._line()))

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "nls" / "nls.sock"


@pytest.fixture
def mallory(path: Path) -> Iterator[Listener]:
    listener = Listener(path)
    with listener.process:
        yield listener
        listener.process.kill()


def test_a_socket_in_another_users_directory_is_not_even_connected_to(mallory: Listener, path: Path) -> None:
    with pytest.raises(DaemonUnreachable, match=r"its directory belongs to .*NLS_DAEMON_UID"):
        locate.find(path)
    status = subprocess.run(
        [sys.executable, "-m", "nls_scheduler", "--socket", str(path), "status"],
        capture_output=True, text=True, env=nls_environment(), timeout=60, check=False,
    )  # fmt: skip
    assert status.returncode != 0
    assert "another user could have put a daemon of theirs there" in status.stderr
    assert "Traceback" not in status.stderr


def test_another_users_daemon_in_a_directory_of_roots_gets_not_a_byte(mallory: Listener, path: Path) -> None:
    os.chown(path.parent, 0, 0)
    with pytest.raises(DaemonUnreachable, match=r"is run by .*neither you nor root"):
        locate.find(path)
    assert mallory.was_sent() == ""

    async def asks() -> None:
        client = DaemonClient(path)
        with pytest.raises(DaemonUnreachable, match="neither you nor root"):
            await client.submit(kind="notebook")
        with pytest.raises(DaemonUnreachable, match="neither you nor root"):
            await anext(client.events())

    asyncio.run(asks())
    assert [mallory.was_sent(), mallory.was_sent()] == ["", ""]


def test_whom_the_administrator_names_is_trusted(
    mallory: Listener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(trust.UID_VARIABLE, str(MALLORY))
    assert locate.find(path) == path
    assert mallory.was_sent() == ""


@pytest.mark.parametrize("named", ["x", "-1", "1.0", "²"])
def test_what_names_nobody_is_refused_also_for_a_daemon_of_one_s_own(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(trust.UID_VARIABLE, named)
    with pytest.raises(DaemonUnreachable, match=f"NLS_DAEMON_UID is {named!r}, which is no user's number"):
        trust.check_place(tmp_path / "nls.sock")


IN_A_USER_NAMESPACE = """
import ctypes, os, pathlib, sys
from nls_scheduler.wire import trust
from nls_scheduler.wire.errors import DaemonUnreachable

os.setresuid(65533, 65533, 65533)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its maps are its own again
if ctypes.CDLL(None).unshare(0x10000000):  # CLONE_NEWUSER
    sys.exit("no user namespaces")
for maps in sys.argv[2:]:
    pathlib.Path("/proc/self/uid_map").write_text(maps)
try:
    trust.check_place(pathlib.Path(sys.argv[1]))
except DaemonUnreachable as error:
    print(error)
"""


@pytest.mark.parametrize("mapped", [["0 65533 1"], []])
def test_the_number_of_all_whom_a_user_namespace_does_not_know_is_nobody_s(tmp_path: Path, mapped: list[str]) -> None:
    """In a rootless container root's directory and everybody else's have one number, and so may one's own user."""
    directory = tmp_path / "nls"
    directory.mkdir(mode=0o755)
    let_everybody_in(tmp_path)
    command = [sys.executable, "-c", IN_A_USER_NAMESPACE, str(directory / "nls.sock"), *mapped]
    environment = {**os.environ, trust.UID_VARIABLE: "65534"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if done.stderr == "no user namespaces\n":
        pytest.skip("users may make no namespaces here")
    assert "a user whom this user namespace does not know (uid 65534 is all of them)" in done.stdout, done.stderr


def test_the_nodes_socket_is_served_by_whom_root_has_given_its_directory(
    mallory: Listener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "SYSTEM_SOCKET", path)
    assert locate.find(path) == path
    assert mallory.was_sent() == ""
    path.parents[1].chmod(0o777)
    with pytest.raises(DaemonUnreachable, match="its directory belongs to"):
        locate.find(path)


@pytest.mark.parametrize("mode", [0o1777, 0o775, 0o730], ids=["everybody", "a group", "a group that cannot read"])
def test_a_directory_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "nls").mkdir()
    (tmp_path / "nls").chmod(mode)
    with pytest.raises(DaemonUnreachable, match="others may write to its directory"):
        locate.find(tmp_path / "nls" / "nls.sock")


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nls").symlink_to(tmp_path)
    with pytest.raises(DaemonUnreachable, match="is a symbolic link"):
        locate.find(tmp_path / "nls" / "nls.sock")


def test_whom_an_access_control_list_lets_write_can_put_no_daemon_there(tmp_path: Path) -> None:
    (tmp_path / "nls").mkdir(0o700)
    let_nobody_write(tmp_path / "nls")
    with pytest.raises(DaemonUnreachable, match="others may write to its directory"):
        locate.find(tmp_path / "nls" / "nls.sock")


def test_a_group_that_may_only_enter_the_directory_decides_who_reaches_the_daemon(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        os.chown(tmp_path, 0, MALLORY)
        tmp_path.chmod(0o710)
        assert locate.find(daemon.socket) == daemon.socket


def test_a_daemon_of_roots_reads_no_journal_that_others_could_have_written(tmp_path: Path) -> None:
    planted = tmp_path / "shared"
    planted.mkdir()
    os.chown(planted, MALLORY, MALLORY)
    command = [sys.executable, "-m", "nls_scheduler", "--socket", str(tmp_path / "s.sock"), "--state-dir", str(planted)]
    ended = subprocess.run(
        [*command, "up", "--simulate", "1x1GiB"],
        capture_output=True, text=True, env=nls_environment(), timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "belongs to another user: name a folder of its own with --state-dir" in ended.stderr
    assert list(planted.iterdir()) == []


def test_who_locks_a_folder_that_everybody_may_read_keeps_no_daemon_from_it(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        parent.chmod(parent.stat().st_mode | 0o055)
    (tmp_path / "state").mkdir(mode=0o755)
    command = ["flock", "--shared", str(tmp_path / "state"), "sh", "-c", "echo locked; cat"]
    with (
        subprocess.Popen(command, user=MALLORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as mallory,
        contextlib.ExitStack() as stack,
    ):
        assert mallory.stdout is not None
        assert mallory.stdout.readline() == b"locked\n"
        daemon = stack.enter_context(DaemonProcess(tmp_path))
        words = ("--socket", str(tmp_path / "other.sock"), "--state-dir", str(tmp_path / "state"))
        again = daemon.nls(*words, "up", "--simulate", "1x1GiB")
        assert (again.returncode, "Another daemon keeps its journal in" in again.stderr) == (3, True), again


@contextlib.contextmanager
def a_stopped_victim(daemon: DaemonProcess, *lost: str) -> Iterator[dict[str, Any]]:
    """A command whose supervisor says nothing for a while to a daemon that has `lost` these files and starts again."""
    victim = daemon.start_nls("run", "--name", "victim", "--", "sleep", "600")
    before = daemon.wait_for("victim", phase="running")
    victim.send_signal(signal.SIGSTOP)
    lose(daemon, *lost)
    daemon.socket.chmod(0o666)
    yield before
    victim.send_signal(signal.SIGCONT)
    assert daemon.wait_for("victim", phase="running")["pid"] == before["pid"]


def lose(daemon: DaemonProcess, *lost: str) -> None:
    daemon.kill()
    for file in (file for pattern in lost for file in (daemon.directory / "state").glob(pattern)):
        file.unlink()
    daemon.start()


def claim(pid: int, before: dict[str, Any], **secret: str) -> dict[str, Any]:
    record = look_up(pid)
    assert record is not None
    body = {"kind": "notebook", "request": "1GiB", "command_id": 9**9, "executing": False}
    return {**body, "pid": pid, "start_time": record.id.start_time, "current": before["current"], **secret}


@pytest.mark.long("keys of a daemon that were lost")
def test_who_knows_only_the_id_does_not_get_the_workload_of_a_lost_journal(tmp_path: Path) -> None:
    with (
        shared(tmp_path, "reconnect_grace_s=600") as daemon,
        a_stopped_victim(daemon, "journal.db*") as before,
        user(daemon, MALLORY) as thief,
    ):
        for body in (claim(thief.process.pid, before), claim(thief.process.pid, before, secret="0" * 64)):
            status, problem = thief.ask("PUT", f"/v1/workloads/{before['id']}", body)
            assert (status, problem["title"]) == (403, "Not your workload")


@pytest.mark.long("keys of a daemon that were lost")
def test_nor_does_he_where_the_key_was_lost_as_well(tmp_path: Path) -> None:
    with (
        shared(tmp_path, "reconnect_grace_s=600") as daemon,
        a_stopped_victim(daemon, "journal.db*", "adoption.key") as before,
        user(daemon, MALLORY) as thief,
        subprocess.Popen(["sleep", "600"], user=MALLORY, env={**os.environ, WORKLOAD_VARIABLE: before["id"]}) as decoy,
    ):
        try:
            for pid in (thief.process.pid, decoy.pid):
                status, problem = thief.ask("PUT", f"/v1/workloads/{before['id']}", claim(pid, before))
                assert (status, problem["title"]) == (403, "Not your workload"), problem
        finally:
            decoy.kill()


@pytest.mark.long("keys of a daemon that were lost")
def test_who_has_a_secret_of_a_lost_key_or_none_is_told_one_when_it_connects(tmp_path: Path) -> None:
    async def story(daemon: DaemonProcess) -> None:
        client = DaemonClient(daemon.socket)
        view = await client.submit(kind="notebook", name="mine")
        running: list[ProcessId] = []
        connected: asyncio.Queue[bool] = asyncio.Queue()

        def report() -> Report:
            return Report((running[0].pid, running[0].start_time), ready=True) if running else Report()

        async with client.supervise(view["id"], report) as link:
            link.on_connection = connected.put_nowait
            start = await anext(message async for message in link if isinstance(message, CommandMessage))
            process = await asyncio.create_subprocess_exec("sleep", "600", env={**os.environ, **start.environment})
            record = look_up(process.pid)
            assert record is not None
            running.append(record.id)
            ids = {"pid": record.id.pid, "start_time": record.id.start_time}
            await link.send("process_started", command_id=start.command_id, **ids)
            await link.send("process_ready", command_id=start.command_id)
            await link.all_sent()
            link._secret = ""
            for lost in (("journal.db*", "adoption.key"), ("journal.db*",)):
                await asyncio.to_thread(lose, daemon, *lost)
                while not await connected.get():
                    pass
            (entry,) = (await client.status())["workloads"]
            assert (entry["id"], entry["pid"]) == (view["id"], process.pid)
            process.kill()
            await process.wait()
            await client.release(view["id"])

    with shared(tmp_path) as daemon:
        asyncio.run(asyncio.wait_for(story(daemon), 60))


def test_a_key_that_is_deleted_under_a_daemon_is_there_again(daemon: DaemonProcess) -> None:
    key = daemon.directory / "state" / "adoption.key"
    before = key.read_bytes()
    key.unlink()
    wait_until(key.exists)
    assert key.read_bytes() == before


def test_nobody_is_told_a_secret_but_who_supervises(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:

        async def supervised() -> str:
            client = DaemonClient(daemon.socket)
            view = await client.submit(kind="notebook", name="mine")
            async with client.supervise(view["id"]) as link:
                told = json.dumps([view, await client.status(), await client.history()])
                assert link._secret not in told
                return link._secret

        secret = asyncio.run(supervised())
        assert len(secret) == 64
        assert secret not in daemon.log
