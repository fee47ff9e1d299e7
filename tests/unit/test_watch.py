"""What must not be is told in the log and the metrics, and stops nothing."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nls_scheduler.core.invariants import Broken
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import ReportRefusal, SetTimer, StopProcess
from nls_scheduler.core.model.workload import Order
from nls_scheduler.daemon import watch as watching
from nls_scheduler.daemon.daemon import Daemon
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.settings import DaemonSettings
from nls_scheduler.daemon.watch import AT_ONCE_S, FOR_ORDERS_S, PART_OF_A_CORE, TOLD_AGAIN_AFTER_S, Watch
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from nls_scheduler.views.metrics import Metrics
from stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nls_scheduler.core.model.state import NodeState


def counted(metrics: Metrics, name: str) -> float:
    families = text_string_to_metric_families(metrics.text().decode())
    return next(s.value for family in families for s in family.samples if s.name == name)


def a_notebook() -> Stage:
    stage = Stage(1)
    stage.notebook("alice")
    return stage


def test_an_order_that_is_refused_is_told_with_its_story_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    stage = a_notebook()
    state, metrics = stage.node.state, Metrics(lambda: stage.node.state)
    assert counted(metrics, "nls_plan_refusals_total") == 0
    refused = ReportRefusal(stage.workload("alice").id, Order.STOP, "it runs, and its deadline has not come")
    with caplog.at_level(logging.ERROR):
        Watch(metrics).look(ev.TimerFired(1.0), state, state, (refused,))
    (line,) = caplog.messages
    assert line.startswith("DEFECT: stop of alice")
    for part in ("TimerFired", refused.why, repr(stage.plan("alice"))):
        assert part in line
    assert counted(metrics, "nls_plan_refusals_total") == 1


@dataclass
class Clock:
    """Time as the test says; a look costs `each_s` of the processor."""

    now_s: float = 0.0
    spent_s: float = 0.0
    each_s: float = 0.0
    looks: int = 0

    def now(self) -> float:
        return self.now_s

    def cost(self) -> float:
        return self.spent_s

    def look(self, *_: object) -> tuple[()]:
        self.looks += 1
        self.spent_s += self.each_s
        return ()


def watch(stage: Stage, clock: Clock) -> tuple[Watch, Metrics]:
    metrics = Metrics(lambda: stage.node.state)
    return Watch(metrics, clock.now, clock.cost), metrics


def without_process(stage: Stage) -> NodeState:
    return stage.node.state.having(replace(stage.workload("alice"), process=None))


def test_a_sentence_that_is_broken_is_told_with_its_story_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    stage, clock = a_notebook(), Clock()
    watched, metrics = watch(stage, clock)
    alice = stage.workload("alice")
    wrong, stop = without_process(stage), StopProcess(stage.node.state.next_command, alice.id, "so", None, 0.0)
    with caplog.at_level(logging.ERROR):
        for clock.now_s in (0.0, 1.0, TOLD_AGAIN_AFTER_S - 1.0):
            watched.look(ev.CellStarted(1.0, alice.id), wrong, wrong, ())
        assert len(caplog.messages) == 1
        watched.look(ev.CellStarted(1.0, alice.id), wrong, wrong, (stop,))
    for part in ("CellStarted of alice", "who runs has a process and no command", f"{alice.id} runs without a process"):
        assert part in caplog.messages[0]
    assert "StopProcess to alice" in caplog.messages[1]
    assert counted(metrics, "nls_invariant_violations_total") >= 4
    said = len(caplog.messages)
    with caplog.at_level(logging.ERROR):
        clock.now_s = TOLD_AGAIN_AFTER_S
        watched.look(ev.TimerFired(1.0), wrong, wrong, ())
    assert len(caplog.messages) == said + 1


def test_what_is_in_order_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    stage = a_notebook()
    watched, metrics = watch(stage, Clock())
    watched.look(ev.TimerFired(1.0), stage.node.state, stage.node.state, ())
    assert caplog.messages == []
    assert counted(metrics, "nls_invariant_violations_total") == 0


def test_a_defect_of_the_watch_is_told_once_and_raises_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("GPU-gone")

    stage = a_notebook()
    watched, _ = watch(stage, Clock())
    monkeypatch.setattr(watching, "broken", broken)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            watched.look(ev.TimerFired(1.0), stage.node.state, stage.node.state, ())
    assert caplog.messages == ["DEFECT: a step could not be looked at; the daemon goes on"]


@pytest.mark.parametrize("each_s", [0.0001, 0.005, 0.2])
def test_the_sentences_cost_a_hundredth_of_a_core_whatever_a_look_costs(
    each_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, clock = a_notebook(), Clock(each_s=each_s)
    watched, _ = watch(stage, clock)
    monkeypatch.setattr(watching, "broken", clock.look)
    stop = StopProcess(stage.node.state.next_command, stage.workload("alice").id, "so", None, 0.0)
    for number in range(10_000):
        clock.now_s += 0.05
        watched.look(ev.TimerFired(1.0), stage.node.state, stage.node.state, (stop,) if number % 2 else ())
    assert clock.spent_s <= clock.now_s * PART_OF_A_CORE + AT_ONCE_S + FOR_ORDERS_S + each_s
    assert clock.looks >= min(10_000, (clock.now_s * PART_OF_A_CORE) // each_s)


def test_a_step_that_orders_something_is_looked_at_when_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, clock = a_notebook(), Clock(each_s=AT_ONCE_S)
    watched, _ = watch(stage, clock)
    monkeypatch.setattr(watching, "broken", clock.look)
    state, alice = stage.node.state, stage.workload("alice").id
    watched.look(ev.TimerFired(1.0), state, state, ())
    watched.look(ev.TimerFired(1.0), state, state, (SetTimer(2.0),))
    assert clock.looks == 1
    watched.look(ev.TimerFired(1.0), state, state, (StopProcess(state.next_command, alice, "so", None, 0.0),))
    assert clock.looks == 2


def test_the_daemon_goes_on_and_its_clients_notice_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> Iterator[Broken]:
        yield Broken("all_is_well", "nothing is")
        raise KeyError("and the check has a defect")

    async def live() -> bytes:
        driver = SimulatedDriver(tmp_path / "simulation", SimulationSpec.parse("1x16GiB"), 0)
        daemon = Daemon(driver, DaemonSettings(), Journal(tmp_path / "journal.db"))
        await daemon.start()
        daemon.apply(ev.TimerFired(daemon.state.at))
        text = daemon.metrics.text()
        await daemon.close()
        return text

    monkeypatch.setattr(watching, "broken", wrong)
    with caplog.at_level(logging.ERROR):
        text = asyncio.run(live()).decode()
    assert [line.split(":")[0] for line in caplog.messages] == ["DEFECT", "DEFECT"]
    assert "all is well: nothing is" in caplog.messages[0]
    assert "nls_invariant_violations_total 0.0" not in text
