"""A slow disk of the journal is named once, and nobody else is blamed for it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.core.model import events as ev
from nls_scheduler.daemon.daemon import Daemon
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.journal_slowness import TOLD_FOR_S, Slowness
from nls_scheduler.daemon.peers import Peer
from nls_scheduler.daemon.settings import DaemonSettings
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from nls_scheduler.units.clock import awake_s

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PATH = Path("/var/lib/nls/journal.db")


def test_a_slow_write_is_named_once_with_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    slowness = Slowness(PATH, lambda: now_s)
    with caplog.at_level(logging.WARNING):
        slowness.wrote(0.2)
        assert slowness.told is None
        slowness.wrote(15.0)
        slowness.wrote(3.0)
        assert slowness.told == (f"A write of the journal {PATH} took 15.0 s, and all else waited: its disk is slow.")
        assert caplog.messages == [slowness.told]
        now_s = TOLD_FOR_S + 1
        assert slowness.told is None
        slowness.wrote(3.0)
    assert len(caplog.messages) == 2


def lived(tmp_path: Path, then: Callable[[Daemon, Journal], None]) -> tuple[list[ev.Event], str | None]:
    """What a daemon of one GPU has heard since `then`, and what its journal tells of a slow disk."""
    heard: list[ev.Event] = []

    class Kept(Journal):
        def record(self, event: ev.Event, *others: object) -> None:
            heard.append(event)
            super().record(event, *others)  # type: ignore[arg-type]

    async def live() -> str | None:
        driver = SimulatedDriver(tmp_path / "simulation", SimulationSpec.parse("1x16GiB"), 0)
        journal = Kept(tmp_path / "journal.db")
        daemon = Daemon(driver, DaemonSettings(), journal)
        await daemon.start()
        journal.slowness.take_late_s()
        heard.clear()
        then(daemon, journal)
        await daemon.close()
        return journal.slowness.told

    return heard, asyncio.run(live())


def test_what_the_daemon_does_after_a_slow_write_is_told_that_it_stood_still(tmp_path: Path) -> None:
    def slow(daemon: Daemon, journal: Journal) -> None:
        journal.slowness.wrote(15.0)
        for _ in range(2):
            daemon.apply(ev.TimerFired(daemon.state.at))

    heard, told = lived(tmp_path, slow)
    assert "took 15.0 s" in (told or "")
    assert [type(event) for event in heard] == [ev.DaemonStoodStill, ev.TimerFired, ev.TimerFired]
    assert isinstance(heard[0], ev.DaemonStoodStill)
    assert heard[0].seconds >= 15.0


def test_a_daemon_that_did_not_run_when_it_wanted_to_wake_is_told_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(daemon: Daemon, _journal: Journal) -> None:
        daemon._arm(awake_s() + 1.0)
        monkeypatch.setattr("nls_scheduler.daemon.loop.awake_s", lambda: awake_s() + 41.0)
        for _ in range(2):
            daemon.apply(ev.TimerFired(daemon.state.at))

    heard, _ = lived(tmp_path, stopped)
    assert [type(event) for event in heard] == [ev.DaemonStoodStill, ev.TimerFired, ev.TimerFired]
    assert isinstance(heard[0], ev.DaemonStoodStill)
    assert 40.0 <= heard[0].seconds < 50.0


def test_one_trouble_hides_no_other_in_the_status(tmp_path: Path) -> None:
    """Whoever reads of a full disk alone takes the configuration for the one that was written."""
    messages: list[str] = []

    def troubled(daemon: Daemon, journal: Journal) -> None:
        journal.trouble = "The journal cannot be written."
        daemon.refused_configuration = "The new configuration is refused and the old one stays: so."
        messages.append(daemon.status(Peer(0, None, -1, administrator=True))["message"])

    lived(tmp_path, troubled)
    assert messages == ["The journal cannot be written. The new configuration is refused and the old one stays: so."]
