"""Moves by hand: what is asked, what can never be moved, and where there is no room."""

from __future__ import annotations

from typing import Any

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.step import step
from nls_scheduler.requests.migration import check, wanted
from nls_scheduler.views.veil import Viewer
from nls_scheduler.wire.errors import Problem
from stage import Stage

ANOTHER = 4711


def node() -> Stage:
    """A notebook on GPU 0; GPU 1 is free, GPU 2 is in a pool of its own."""
    stage = Stage(3, pools=(Pool("other", ("2",)),))
    stage.notebook("book", 0.5, 0.5)
    stage.command("fixed", 0.25)
    stage.command("again", 0.25, requeue=True)
    return stage


def test_a_gpu_is_named_by_its_index_or_its_uuid() -> None:
    stage = node()
    for name in ("1", "GPU-1"):
        assert wanted({"gpu": name}, stage.workload("book"), stage.node.state) == "GPU-1"
    assert wanted({"gpu": "1"}, stage.workload("again"), stage.node.state) == "GPU-1"


@pytest.mark.parametrize(
    ("name", "body", "status", "says"),
    [
        ("book", {}, 400, "The field 'gpu' is needed"),
        ("book", {"gpu": 1}, 400, "The field 'gpu' is needed"),
        ("book", {"gpu": "1", "now": True}, 400, "and no other"),
        ("book", {"gpu": "7"}, 404, "There is no GPU '7' on this node"),
        ("book", {"gpu": "0"}, 409, "It is on GPU 0 already."),
        ("book", {"gpu": "2"}, 409, "GPU 2 is in the pool 'other', which is not open to it."),
        ("fixed", {"gpu": "1"}, 409, "only one of `nls run --on-evict requeue` can be moved"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_reason(
    name: str, body: dict[str, Any], status: int, says: str
) -> None:
    stage = node()
    with pytest.raises(Problem) as caught:
        wanted(body, stage.workload(name), stage.node.state)
    assert caught.value.status == status
    assert says in caught.value.detail


@pytest.mark.parametrize("fields", [{"gpu_count": 2}, {"gang": "g", "gang_size": 1}, {"gpu_count_max": 2}])
def test_who_spans_gpus_or_is_in_a_gang_is_never_moved(fields: dict[str, Any]) -> None:
    stage = Stage(3)
    stage.command("whole", requeue=True, **fields)
    assert stage.runs("whole")
    with pytest.raises(Problem, match=r"A workload of several GPUs or of a gang is never moved\."):
        wanted({"gpu": "2"}, stage.workload("whole"), stage.node.state)


def test_a_gpu_out_of_service_and_a_workload_without_a_process_are_refused() -> None:
    stage = node()
    stage.health(1, healthy=False)
    with pytest.raises(Problem, match=r"GPU 1 is out of service\."):
        wanted({"gpu": "1"}, stage.workload("book"), stage.node.state)
    stage.user_suspends("book")
    with pytest.raises(Problem, match="It is suspended: only one that runs can be moved"):
        wanted({"gpu": "1"}, stage.workload("book"), stage.node.state)


def test_a_move_that_the_plan_does_not_grant_is_refused_with_who_has_the_room() -> None:
    stage = Stage(2)
    stage.notebook("book", 0.5, 0.5)
    stage.command("train", 0.75)
    state, book = stage.node.state, stage.workload("book")
    after, _ = step(state, ev.MigrateRequested(stage.node.now, book.id, stage.uuid(1)))
    with pytest.raises(Problem, match=r"GPU 1 \(16 GiB\) has no room for its 8 GiB .* guarantee: train has it\."):
        check(after, book, stage.uuid(1))
    with pytest.raises(Problem, match=r"guarantee: another user's command has it\."):
        check(after, book, stage.uuid(1), Viewer(ANOTHER))
    stage.ends("train")
    after, _ = step(stage.node.state, ev.MigrateRequested(stage.node.now, book.id, stage.uuid(1)))
    check(after, book, stage.uuid(1))


def test_a_move_is_refused_with_who_holds_more_than_was_asked_for_there() -> None:
    stage = Stage(2)
    stage.notebook("book", 0.25, 0.5)
    stage.notebook("full", 0.25)
    stage.holds("full", 0.875)
    assert (stage.gpu("book"), stage.gpu("full")) == (0, 1)
    state, book = stage.node.state, stage.workload("book")
    after, _ = step(state, ev.MigrateRequested(stage.node.now, book.id, stage.uuid(1)))
    with pytest.raises(Problem, match=r"has no room for its 4 GiB beside all that is held there: full has it\."):
        check(after, book, stage.uuid(1))
