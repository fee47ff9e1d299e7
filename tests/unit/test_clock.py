"""The clock of decisions: it stands while the machine sleeps, and never goes back behind a journal."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.daemon.daemon import Daemon
from nls_scheduler.daemon.journal import Journal, boot_id
from nls_scheduler.daemon.settings import DaemonSettings
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from nls_scheduler.units import clock

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3600.0
BOOK = WorkloadId("book")
SPEC = WorkloadSpec("book", Kind.NOTEBOOK, os.geteuid(), 2**30, 2**30)


class Machine:
    """Its clocks as this process reads them, and how long it sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asleep_s, clock_gettime, wall = 0.0, time.clock_gettime, time.time

        def read(which: int) -> float:
            return clock_gettime(which) + (self._asleep_s if which == time.CLOCK_BOOTTIME else 0.0)

        monkeypatch.setattr(time, "clock_gettime", read)
        monkeypatch.setattr(time, "time", lambda: wall() + self._asleep_s)

    def sleeps(self, seconds: float) -> None:
        self._asleep_s += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(clock, "_CLOCK", clock.Clock())
    return Machine(monkeypatch)


def made(tmp_path: Path) -> Daemon:
    driver = SimulatedDriver(tmp_path / "simulation", SimulationSpec.parse("1x16GiB"), 0)
    return Daemon(driver, DaemonSettings(), Journal(tmp_path / "journal.db"))


def test_time_asleep_counts_for_no_deadline(tmp_path: Path, machine: Machine) -> None:
    async def live() -> None:
        daemon = made(tmp_path)
        await daemon.start()
        daemon.apply(ev.WorkloadSubmitted(daemon.state.at, BOOK, SPEC))
        starting = daemon.state.workloads[BOOK].pending
        machine.sleeps(HOUR_S)
        await daemon._poller.poll()
        assert starting is not None
        assert starting.deadline_at - daemon.state.at > DaemonSettings().policy.start_timeout_s / 2
        assert daemon.state.workloads[BOOK].pending == starting
        await daemon.close()

    asyncio.run(live())


def test_times_of_day_are_those_that_people_lived_through(machine: Machine) -> None:
    before = clock.awake_s()
    was = datetime.fromisoformat(clock.wall_time(before))
    machine.sleeps(HOUR_S)
    after = clock.awake_s()
    assert after - before < HOUR_S
    assert abs((datetime.fromisoformat(clock.wall_time(before)) - was).total_seconds()) < 1
    assert HOUR_S <= (datetime.fromisoformat(clock.wall_time(after)) - was).total_seconds() < HOUR_S + 60
    soon = datetime.fromisoformat(clock.wall_time(after + 60)) - datetime.fromisoformat(clock.wall_time(after))
    assert abs(soon.total_seconds() - 60) < 1


@pytest.mark.usefixtures("machine")
def test_after_a_journal_that_is_ahead_deadlines_begin_with_the_daemon_and_it_goes_on(tmp_path: Path) -> None:
    """One that an earlier version has written by a clock which counts the time asleep."""

    async def live() -> None:
        ahead_at = clock.awake_s() + HOUR_S
        workload = Workload(id=BOOK, spec=SPEC, submitted_at=ahead_at, waiting_since=ahead_at)
        with closing(Journal(tmp_path / "journal.db")) as journal:
            journal.begin(replace(NodeState(), at=ahead_at).having(workload), boot_id())
        daemon = made(tmp_path)
        await daemon.start()
        assert ahead_at <= daemon.state.at < ahead_at + 60
        assert ahead_at <= daemon.active_at
        quiet_s = daemon.state.quiet_until - clock.awake_s()
        assert quiet_s <= daemon.state.policy.reconnect_grace_s
        await daemon.close()

    asyncio.run(live())
