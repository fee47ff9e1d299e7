"""Clients wait through a daemon's restart, and are not held up by a daemon that is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from left_out import thinned
from nls_scheduler.client import daemon_client
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import DaemonUnreachable
from notebooks import Bench
from waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from daemon_process import DaemonProcess
    from notebooks import Book

WAITS = "the node's daemon does not answer; waiting for it"
AT_ONCE_S = 10.0
"""Far less than the 20 s for which a client waits for an answer."""


def held_up(daemon: DaemonProcess, number: signal.Signals) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(number)


def waiting_run(daemon: DaemonProcess, *options: str) -> subprocess.Popen[str]:
    """`nls run` that has said that it waits for the daemon."""
    waits = daemon.start_nls("run", *options, "--", "echo", "ran")
    assert waits.stderr is not None
    assert WAITS in waits.stderr.readline()
    return waits


def test_nls_run_waits_for_a_daemon_that_is_started_anew(daemon: DaemonProcess) -> None:
    daemon.kill()
    waits = waiting_run(daemon)
    daemon.start()
    out, err = waits.communicate(timeout=30)
    assert (waits.returncode, out, err) == (0, "ran\n", "")


@pytest.mark.long("waits for a daemon in rare cases")
def test_nls_run_waits_for_a_socket_that_is_made_again(daemon: DaemonProcess) -> None:
    held_up(daemon, signal.SIGSTOP)
    daemon.socket.unlink()
    waits = waiting_run(daemon)
    held_up(daemon, signal.SIGCONT)
    assert waits.communicate(timeout=30) == ("ran\n", "")


@pytest.mark.long("waits for a daemon in rare cases")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_wait_for_the_daemon_is_ended_by_its_user(daemon: DaemonProcess, number: signal.Signals, code: int) -> None:
    daemon.kill()
    waits = waiting_run(daemon)
    waits.send_signal(number)
    waits.communicate(timeout=AT_ONCE_S)
    assert waits.returncode == code
    daemon.start()


def test_where_there_is_no_daemon_nobody_waits(daemon: DaemonProcess) -> None:
    daemon.stop()
    done = daemon.nls("run", "--", "true", timeout_s=AT_ONCE_S)
    assert (done.returncode, WAITS in done.stderr, "start one with" in done.stderr) == (3, False, True)


@pytest.mark.long("waits for a daemon in rare cases")
def test_a_wait_for_the_daemon_is_part_of_the_longest_wait(daemon: DaemonProcess) -> None:
    daemon.kill()
    done = daemon.nls("run", "--max-wait", "0.5s", "--", "true", timeout_s=AT_ONCE_S)
    assert done.returncode == 124
    assert done.stderr.endswith("no GPU within 0.5 s: the daemon has not answered. true was not run\n")
    daemon.start()


@pytest.mark.long("waits for a daemon in rare cases")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("queued", [True, False])
def test_who_waits_is_ended_at_once_though_the_daemon_is_stopped(
    one_gpu_daemon: DaemonProcess, number: signal.Signals, *, queued: bool
) -> None:
    daemon = one_gpu_daemon
    owner = daemon.start_nls("run", "--name", "owner", "--", "sleep", "600")
    daemon.wait_for("owner", phase="running")
    if not queued:
        held_up(daemon, signal.SIGSTOP)
    waits = daemon.start_nls("run", "--name", "waits", "--", "true")
    if queued:
        daemon.wait_for("waits", phase="queued")
        held_up(daemon, signal.SIGSTOP)
    else:
        wait_until(lambda: catches(waits, number))
    waits.send_signal(number)
    waits.communicate(timeout=AT_ONCE_S)
    held_up(daemon, signal.SIGCONT)
    wait_until(lambda: daemon.workload("waits") is None)
    owner.terminate()
    owner.communicate(timeout=20)


def catches(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether `nls run` has come so far that it waits for signals."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    return bool(blocked & 1 << number - 1)


def test_the_longest_wait_ends_though_the_daemon_is_stopped(daemon: DaemonProcess) -> None:
    held_up(daemon, signal.SIGSTOP)
    done = daemon.nls("run", "--max-wait", "0.5s", "--", "true", timeout_s=AT_ONCE_S)
    held_up(daemon, signal.SIGCONT)
    assert done.returncode == 124
    for _ in range(3):
        assert daemon.status()["workloads"] == []
    assert "queued" not in {entry["event"] for entry in daemon.request("GET", "/v1/history")[1]["entries"]}


def test_nls_run_says_that_a_daemon_is_stopped_and_goes_on_with_it(daemon: DaemonProcess) -> None:
    assert daemon.process is not None
    held_up(daemon, signal.SIGSTOP)
    waits = daemon.start_nls("run", "--", "echo", "ran")
    assert waits.stderr is not None
    told = waits.stderr.readline()
    held_up(daemon, signal.SIGCONT)
    assert f"has not answered yet: its process {daemon.process.pid} is stopped, and `kill -CONT" in told
    assert told.endswith("has it go on; waiting for it\n")
    assert waits.communicate(timeout=30) == ("ran\n", "")


ASKING = [(words,) for words in (("status",), ("history",), ("explain", "any"), ("release", "any"))]


@pytest.mark.parametrize("words", thinned(ASKING, 4, "commands that ask a stopped daemon"))
def test_who_asks_a_stopped_daemon_is_told_soon(daemon: DaemonProcess, words: tuple[str, ...]) -> None:
    assert daemon.process is not None
    held_up(daemon, signal.SIGSTOP)
    done = daemon.nls(*words, timeout_s=AT_ONCE_S)
    held_up(daemon, signal.SIGCONT)
    assert done.returncode == 3
    assert f"does not answer: its process {daemon.process.pid} is stopped, and `kill -CONT" in done.stderr


@pytest.mark.long("waits for a daemon in rare cases")
def test_who_asks_a_daemon_that_is_slow_is_told_so_and_waits(daemon: DaemonProcess) -> None:
    passed = daemon.socket.with_name("passed.sock")
    with socket.socket(socket.AF_UNIX) as listening:  # as systemd's, of a daemon that it is still starting
        listening.bind(str(passed))
        listening.listen()
        asking = daemon.start_nls("--socket", str(passed), "status")
        assert asking.stderr is not None
        assert "has not answered yet; waiting for it, for 20 s at most" in asking.stderr.readline()
    assert asking.wait(20) == 3


def test_what_was_given_up_is_not_done_when_a_stopped_daemon_goes_on(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_client, "REQUEST_TIMEOUT_S", 0.3)

    async def story() -> None:
        client = DaemonClient(daemon.socket)
        held = await client.submit(kind="notebook", name="held")
        held_up(daemon, signal.SIGSTOP)
        asked = (
            client.release(held["id"]),
            client.suspend(held["id"]),
            client.patch(held["id"], name="renamed"),
            client.submit(kind="notebook", name="late"),
        )
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(outcome, DaemonUnreachable)
            assert "is stopped, and `kill -CONT" in str(outcome)
        given_up = asyncio.create_task(client.release(held["id"]))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        held_up(daemon, signal.SIGCONT)
        monkeypatch.setattr(daemon_client, "REQUEST_TIMEOUT_S", 20.0)
        for _ in range(3):  # what was asked before is read before the second one at the latest
            entries = (await client.status())["workloads"]
        (entry,) = entries
        assert {key: entry[key] for key in ("name", "phase")} == {key: held[key] for key in ("name", "phase")}

    asyncio.run(story())


@pytest.fixture
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Book]]:
    with Bench(tmp_path_factory.mktemp("bench"), "1x256MiB") as bench:
        yield bench, bench.open("notebook.ipynb")


@pytest.mark.long("a notebook that waits for its daemon: commands do here")
def test_a_notebook_waits_for_a_daemon_that_is_started_anew(book: tuple[Bench, Book]) -> None:
    bench, notebook = book
    bench.daemon.kill()
    for cell in ("%gpu", "%%gpu\n6 * 7", "%gpu suspend"):
        waiting = notebook.start(cell)
        if cell.startswith("%%"):
            waiting.until(lambda outputs: any(WAITS in line for line in outputs.displays))
        else:
            waiting.until(lambda outputs: WAITS in outputs.stderr)
        bench.daemon.start()
        waiting.finish()
        bench.daemon.kill()
    bench.daemon.start()
