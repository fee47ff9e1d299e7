"""A journal whose files are taken from under a running daemon: it goes on, says so, and its successor knows all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from daemon_process import DaemonProcess
from left_out import thinned
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path, "1x16GiB") as running:
        yield running


def delete(state: Path) -> None:
    for file in state.glob("journal.db*"):
        file.unlink()


def empty(state: Path) -> None:
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        os.truncate(state / name, 0)


def replace(state: Path) -> None:
    (state / "other").write_bytes(b"this is no database at all" * 1000)
    (state / "other").replace(state / "journal.db")


HARMS = [(delete, "deleted"), (empty, "cut"), (replace, "replaced")]


@pytest.mark.parametrize(("harm", "said"), thinned(HARMS, 3, "ways to harm a journal"))
def test_a_daemon_whose_journal_is_harmed_goes_on_and_the_next_one_knows_everything(
    daemon: DaemonProcess, harm: Callable[[Path], None], said: str
) -> None:
    command = daemon.start_nls("run", "--name", "kept", "--", "sleep", "600")
    before = daemon.wait_for("kept", phase="running")
    harm(daemon.directory / "state")
    message = wait_until(lambda: daemon.status()["message"])
    assert f"was {said}: the journal was written anew from memory" in message
    assert wait_until(lambda: daemon.log.count(message)) == 1
    daemon.kill()
    daemon.start()
    after = daemon.wait_for("kept", phase="running")
    assert (after["id"], after["pid"]) == (before["id"], before["pid"])
    events = [entry["event"] for entry in daemon.request("GET", "/v1/history")[1]["entries"]]
    assert "started" in events, "what was told before is known"
    assert "adopted" not in events, "nobody had to bring it back"
    assert daemon.status()["message"] is None
    assert command.poll() is None
    assert daemon.nls("replay", str(daemon.directory / "state" / "journal.db")).returncode == 0
