"""`nls observe` while it looks: how long, by which clock, and how it stops."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING

from nls_scheduler.core.model.ids import GpuUuid, ProcessId
from nls_scheduler.daemon.ports import GpuSample
from nls_scheduler.what_if.observing.observer import observe
from nls_scheduler.what_if.observing.record import Recorder, facts_of
from nls_scheduler.what_if.observing.rows import observed_rows
from nls_scheduler.what_if.observing.servers import Server
from nls_scheduler.what_if.scenario import Node, Scenario
from nls_scheduler.what_if.workload_file.rows import Command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from nls_scheduler.daemon.ports import GpuInfo

GIB = 2**30


class OneProcess:
    """A driver that sees one process; what happens at each look is the test's choice."""

    def __init__(self, looked: Callable[[int], None] = lambda _: None) -> None:
        self.looks = 0
        self._looked = looked

    def discover(self) -> tuple[GpuInfo, ...]:
        return ()

    def sample(self) -> dict[GpuUuid, GpuSample]:
        self.looks += 1
        self._looked(self.looks)
        return {GpuUuid("g"): GpuSample(GIB, {ProcessId(os.getpid(), 1): GIB})}

    def use_by_process(self) -> dict[ProcessId, float]:
        return {}


class TwoGpus(OneProcess):
    """Its process is on both, with as much as one has; another is on one of them."""

    def sample(self) -> dict[GpuUuid, GpuSample]:
        super().sample()
        process, other = ProcessId(os.getpid(), 1), ProcessId(os.getppid(), 1)
        return {
            GpuUuid("g"): GpuSample(60 * GIB, {process: 60 * GIB}),
            GpuUuid("h"): GpuSample(61 * GIB, {process: 60 * GIB, other: GIB}),
        }


def observed(path: Path, driver: OneProcess, servers: list[Server], every_s: float, for_s: float | None) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await observe(recorder, driver, servers, every_s, for_s, lambda _: None)

    with Recorder(path, names=True) as recorder:
        asyncio.run(bounded())


def test_a_clock_that_is_set_back_costs_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(5000, -1000)
    monkeypatch.setattr("nls_scheduler.what_if.observing.observer.time.time", lambda: next(clock))
    stop = lambda looks: os.kill(os.getpid(), signal.SIGINT) if looks == 4 else None  # noqa: E731
    observed(tmp_path / "o.jsonl", OneProcess(stop), [], 0.01, None)
    (command,) = observed_rows(tmp_path / "o.jsonl", 0.5, 1.0)
    assert command.end_s >= 0.02


def test_who_is_on_several_gpus_is_recorded_and_not_played(tmp_path: Path) -> None:
    stop = lambda looks: os.kill(os.getpid(), signal.SIGINT) if looks == 4 else None  # noqa: E731
    observed(tmp_path / "o.jsonl", TwoGpus(stop), [], 0.01, None)
    recorded = [fact for _, fact in facts_of(tmp_path / "o.jsonl") if "command" in fact]
    assert {(fact["memory_bytes"], fact.get("gpus", 1)) for fact in recorded} == {(120 * GIB, 2), (GIB, 1)}
    (command,) = Scenario(observed_rows(tmp_path / "o.jsonl", 0.5, 1.0), Node(2, 80 * GIB)).rows()
    assert isinstance(command, Command)
    assert command.memory_bytes == GIB


def test_an_observation_is_as_long_as_was_asked_for(tmp_path: Path) -> None:
    driver = OneProcess()
    observed(tmp_path / "o.jsonl", driver, [], 60.0, 0.1)
    assert driver.looks == 1


def test_who_stops_an_observation_waits_for_no_silent_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nls_scheduler.what_if.observing.servers.TIMEOUT_S", 600.0)  # longer than a test may take
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted: list[socket.socket] = []

        def stop_when_asked() -> None:
            accepted.append(listening.accept()[0])
            os.kill(os.getpid(), signal.SIGINT)

        asked = threading.Thread(target=stop_when_asked)
        asked.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        observed(tmp_path / "o.jsonl", OneProcess(), [Server(url, "")], 5.0, None)
        asked.join()
        accepted[0].close()
