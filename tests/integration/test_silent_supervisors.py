"""A kernel that stands still hears no order: what its user reads afterwards is what happened."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from notebooks import Bench
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK_RECLAIM = ("--set", "reclaim_deadline_s=2", "--set", "stop_grace_s=0.5")
HOLDS = """%%gpu
import time
from nls_jupyter import xp
hold = xp.ones(25 << 20)
print('up', flush=True)
time.sleep(60)"""
ENDED = "training needs GPU 0; ended by the daemon, as its supervisor does not answer"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("silent"), "1x256MiB", *QUICK_RECLAIM) as running:
        yield running


@pytest.mark.long("a supervisor that is stopped, until the daemon does its work")
def test_a_cell_that_nobody_could_interrupt_was_not_and_its_process_was_ended_by_the_daemon(bench: Bench) -> None:
    book = bench.open()
    pid = book.pid()
    book.run("%gpu request 0.25 --limit 1.0")
    cell = book.start(HOLDS)
    cell.until(lambda shown: "up" in shown.stdout)

    def history() -> list[dict[str, Any]]:
        entries = json.loads(bench.daemon.nls("history", "--json").stdout)
        return [entry for entry in entries if entry["name"] == book.name]

    os.kill(pid, signal.SIGSTOP)
    try:
        training = bench.daemon.start_nls("run", "--request", "0.75", "--name", "training", "--", "sleep", "600")
        wait_until(lambda: any(entry["reason"] == ENDED for entry in history()))
    finally:
        os.kill(pid, signal.SIGCONT)
    cell.fail()
    training.send_signal(signal.SIGTERM)
    ended = "ended by the node's daemon, as this kernel did not answer: training needs GPU 0"
    wait_until(lambda: ended in book.run("%gpu log").stdout)
    told = book.run("%gpu log").stdout
    assert "interrupted" not in told
    assert [entry["event"] for entry in history()][:2] == ["started", "evicted"]
    assert "interrupted" not in [entry["event"] for entry in history()]
    book.close()
