"""Behind a reason stands since when somebody is there: who is there in fact, on a Gpu that the reason is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.views.status import settled_part, workload_view
from stage import Stage


@pytest.fixture
def stage() -> Stage:
    """bob runs on GPU 0, and alice waits."""
    stage = Stage(2)
    stage.command("bob")
    stage.command("carol")
    assert (stage.gpu("bob"), stage.gpu("carol")) == (0, 1)
    stage.notebook("alice")
    assert stage.phase("alice") == "queued"
    return stage


def view(stage: Stage, why: Why | None = None, cause: str = "bob", whose: str = "alice") -> dict[str, Any]:
    """The status of `whose`, who waits for `cause`."""
    state, workload = stage.node.state, stage.workload(whose)
    entry = state.plan[workload.id]
    planned = replace(entry, reason=why or entry.reason, cause=WorkloadId(stage.workload(cause).id))
    return workload_view(replace(state, plan={**state.plan, workload.id: planned}), workload, stage.node.now)


def is_there(stage: Stage, why: Why | None = None, cause: str = "bob", whose: str = "alice") -> bool:
    shown = view(stage, why, cause, whose)["cause"]
    assert shown["name"] == cause
    return shown["since"] is not None


def held(stage: Stage, gpu: int) -> Why:
    return stage.why(Reason.HELD, "bob", gpus=[gpu])


def test_who_holds_the_gpu_that_is_waited_for_is_there(stage: Stage) -> None:
    assert is_there(stage, held(stage, 0))
    assert is_there(stage, stage.no_room(0.5, held(stage, 1), held(stage, 0)))
    assert is_there(stage), "as the plan says it"


def test_who_is_on_another_gpu_is_not(stage: Stage) -> None:
    assert not is_there(stage, held(stage, 1))
    assert not is_there(stage, stage.why(Reason.RESERVED, "carol"))


def test_who_waits_is_not(stage: Stage) -> None:
    assert not is_there(stage, stage.why(Reason.NEEDED, "alice", gpus=[0]), cause="alice", whose="bob")


def test_who_only_comes_is_not_and_who_leaves_is_until_it_has_left(stage: Stage) -> None:
    stage.ends("carol")
    stage._ids["dora"] = stage.node.submit(name="dora")
    home = stage.node.state.gpus[stage.plan("dora").target[0]].index
    assert stage.phase("dora") == "starting"
    assert not is_there(stage, held(stage, home), cause="dora")
    stage.completes("dora")
    assert is_there(stage, held(stage, home), cause="dora")
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("dora").id, "suspended by its user"))
    assert stage.phase("dora") == "suspending"
    assert is_there(stage, held(stage, home), cause="dora")
    stage.completes("dora")
    assert stage.phase("dora") == "suspended"
    assert not is_there(stage, held(stage, home), cause="dora")


def test_a_supervisor_hears_at_once_that_somebody_is_there_no_more(stage: Stage) -> None:
    before = view(stage, held(stage, 0))
    gone = {**before, "cause": {**before["cause"], "since": None}}
    assert settled_part(before) != settled_part(gone)
    later = {**before, "cause": {**before["cause"], "since": before["cause"]["since"].replace(":", ".")}}
    assert settled_part(before) == settled_part(later), "the time of day is derived from two clocks"
