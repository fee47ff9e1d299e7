"""What must not be is told in the log and the metrics, and stops nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import ReportRefusal
from nls_scheduler.core.model.workload import Order
from nls_scheduler.daemon.watch import Watch
from nls_scheduler.views.metrics import Metrics
from stage import Stage

if TYPE_CHECKING:
    import pytest


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
