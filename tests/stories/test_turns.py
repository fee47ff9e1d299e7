from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StartProcess, TrimMemory
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.reasons import Reason, Why, said
from nls_scheduler.core.planning.plan import make_plan
from stage import TOTAL, Stage


def rivals(request: float = 0.5, **policy: object) -> Stage:
    """Two notebooks on one Gpu that hold 0.7 of it each: bob's turn came last."""
    stage = Stage(1, **{"min_residency_s": 2.0, "residency_per_move": 0.0, **policy})
    for name in ("alice", "bob"):
        stage.notebook(name, request)
        stage.after(5)
        stage.cell_starts(name)
        stage.holds(name, 0.7)
        stage.cell_ends(name)
        stage.after(5)
    assert stage.runs("bob")
    assert stage.phase("alice") == "suspended"
    return stage


def test_an_idle_notebook_yields_to_a_cell_that_waits_and_comes_back_with_its_own() -> None:
    stage = rivals()
    stage.cell_starts("alice")
    assert stage.runs("alice")
    assert stage.phase("bob") == "suspended"
    assert stage.reason("bob") == stage.why(Reason.LEFT_TO, "alice", gpus=[0])
    stage.cell_ends("alice")
    stage.after(5)
    stage.cell_starts("bob")
    assert stage.runs("bob")


def test_nobody_yields_whose_place_is_not_needed_although_it_would_be_the_first_to_go() -> None:
    stage = Stage(1)
    stage.notebook("carol", 0.1)
    stage.holds("carol", 0.7)
    stage.user_suspends("carol")
    for name, priority, held in (("alice", 0, 0.25), ("bob", 50, 0.6)):
        stage.notebook(name, 0.1, priority=priority)
        stage.holds(name, held)
    stage.after(100)
    stage.cell_starts("carol")
    assert stage.runs("alice", "carol")
    assert stage.phase("bob") == "suspended"


def test_who_waits_for_burst_reads_both_sizes() -> None:
    stage = rivals()
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    turn = stage.why(Reason.TURN_OF, "bob", gpus=[0])
    assert stage.reason("alice") == stage.why(Reason.SAVED_ABOVE_REQUEST, shares=[0.7, 0.5], because=[turn])
    assert stage.cause("alice") == "bob"


def test_a_running_cell_is_never_stopped_for_somebody_s_burst() -> None:
    stage = rivals()
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    stage.after(3600)
    assert stage.runs("bob")
    assert stage.plan("bob").yields
    assert stage.reason("bob") == stage.why(Reason.YIELDS, "alice", gpus=[0])
    stage.cell_ends("bob")
    assert stage.runs("alice")
    assert "stop" not in stage.orders("bob")


def test_a_holder_keeps_its_gpu_for_its_residency() -> None:
    stage = rivals(min_residency_s=10.0)
    stage.after(5)
    stage.cell_starts("alice")
    assert stage.runs("alice")
    stage.cell_ends("alice")
    stage.cell_starts("bob")
    assert stage.phase("bob") == "suspended"
    stage.after(9)
    assert stage.runs("alice")
    stage.after(2)
    assert stage.runs("bob")


def test_without_a_cell_that_waits_nobody_is_driven_out() -> None:
    stage = rivals()
    stage.user_resumes("alice")
    stage.after(3600)
    assert stage.runs("bob")
    assert stage.reason("alice").because == (Why(Reason.COMES_BACK),)


def test_who_is_away_comes_back_by_itself_when_there_is_room() -> None:
    stage = rivals()
    stage.user_resumes("alice")
    stage.ends("bob")
    assert stage.runs("alice")


def test_a_notebook_that_its_user_suspended_stays_away_until_its_next_cell() -> None:
    stage = Stage(1)
    stage.notebook("book")
    stage.user_suspends("book")
    assert stage.phase("book") == "suspended"
    assert stage.reason("book") == said("suspended by its user")
    stage.after(600)
    assert stage.phase("book") == "suspended"
    stage.cell_starts("book")
    assert stage.runs("book")


def test_a_notebook_that_its_user_resumed_comes_back_without_a_cell() -> None:
    stage = Stage(1)
    stage.notebook("book")
    stage.user_suspends("book")
    stage.user_resumes("book")
    assert stage.runs("book")


def test_a_cell_that_gives_up_waiting_leaves_its_notebook_suspended() -> None:
    stage = rivals()
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    assert stage.position("alice") == 1
    stage.cell_ends("alice")
    assert stage.position("alice") is None
    stage.cell_ends("bob")
    stage.after(60)
    assert stage.runs("bob")
    assert stage.phase("alice") == "suspended"


def test_a_third_notebook_within_its_request_runs_beside_those_who_take_turns() -> None:
    stage = rivals(0.4)
    stage.notebook("carol", 0.0625)
    stage.cell_starts("bob")
    stage.cell_starts("alice")
    stage.after(1)
    assert stage.runs("carol", "bob")
    stage.cell_ends("bob")
    assert stage.runs("alice", "carol")


@pytest.mark.parametrize("request_", [1.0, 0.75])
def test_who_has_waited_longest_for_what_is_promised_twice_is_next_whoever_came_first(request_: float) -> None:
    stage = Stage(1, oversubscribe=3.0)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, request_)
        stage.cell_starts(name)
        stage.cell_ends(name)
        stage.after(100)
    stage.cell_starts("carol")
    assert stage.runs("carol")
    for name in ("bob", "alice"):
        stage.cell_starts(name)
        stage.after(1)
    assert (stage.position("bob"), stage.position("alice")) == (1, 2)
    stage.cell_ends("carol")
    stage.after(60)
    assert stage.runs("bob")


def away(stage: Stage, *names: str) -> None:
    """Notebooks that hold 0.7 of a Gpu with a request of 0.3, and were suspended one after another."""
    for name in names:
        stage.notebook(name, 0.3)
        stage.holds(name, 0.7)
        stage.user_suspends(name)
        stage.after(60)


def test_whose_cell_waits_goes_before_one_that_only_wants_to_be_back() -> None:
    stage = Stage(1, residency_per_move=0.0)
    away(stage, "alice", "bob", "carol")
    stage.cell_starts("carol")
    stage.user_resumes("alice")
    stage.after(60)
    stage.cell_starts("bob")
    stage.ends("carol")
    assert stage.runs("bob")
    assert stage.orders("bob") == ["start", "suspend", "start"]
    assert stage.orders("alice") == ["start", "suspend"]


def test_whose_cell_has_waited_longest_for_burst_is_next_whoever_came_first() -> None:
    stage = Stage(1, residency_per_move=0.0)
    away(stage, "alice", "bob", "carol")
    stage.cell_starts("carol")
    for name in ("bob", "alice"):
        stage.after(60)
        stage.cell_starts(name)
    assert (stage.position("bob"), stage.position("alice")) == (1, 2)
    stage.cell_ends("carol")
    assert stage.runs("bob")
    assert stage.orders("alice") == ["start", "suspend"]


def test_a_cell_that_has_to_leave_a_broken_gpu_drives_nobody_out_while_it_runs() -> None:
    stage = Stage(2, residency_per_move=0.0)
    for name in ("alice", "carol"):
        stage.notebook(name, 0.4)
        stage.holds(name, 0.7)
    stage.after(60)
    stage.cell_starts("alice")
    stage.health(stage.gpu("alice") or 0, healthy=False)
    assert stage.workload("alice").executing
    assert not stage.plan("carol").yields
    assert stage.orders("carol") == ["start"]
    stage.cell_ends("alice")
    stage.after(60)
    assert stage.phase("alice") == "suspended"
    assert stage.orders("carol") == ["start"]
    stage.cell_starts("alice")
    assert stage.runs("alice")
    assert stage.phase("carol") == "suspended"


def test_the_end_of_a_residency_is_waited_for_with_a_timer() -> None:
    stage = rivals(min_residency_s=100.0)
    resident_since = stage.workload("bob").resident_since
    assert resident_since is not None
    stage.cell_starts("alice")
    assert stage.runs("bob")
    assert stage.node.state.timer_at == resident_since + 100.0


def test_where_more_is_promised_than_there_is_a_cell_within_its_request_ends_a_turn() -> None:
    stage = Stage(1, oversubscribe=2.0)
    for name in ("alice", "bob"):
        stage.notebook(name, 1.0)
    stage.cell_starts("alice")
    stage.cell_starts("bob")
    assert stage.plan("alice").yields
    assert stage.reason("alice") == stage.why(Reason.YIELDS, "bob", gpus=[0])
    assert stage.reason("bob").because == (stage.why(Reason.TURN_OF, "alice", gpus=[0]),)


def test_a_cell_within_its_request_yields_to_nobody_s_burst() -> None:
    stage = Stage(1)
    away(stage, "alice")
    stage.notebook("bob", 0.5)
    stage.holds("bob", 0.4)
    stage.cell_starts("bob")
    stage.after(60)
    stage.cell_starts("alice")
    assert stage.phase("alice") == "suspended"
    assert stage.reason("alice").because == (Why(Reason.NOBODY_YIELDS),)
    assert not stage.plan("bob").yields


def two_holders(first: float, second: float) -> Stage:
    """alice is away with 0.7; `one` and `two` hold so much of a Gpu each, with a request of 0.3."""
    stage = Stage(2, residency_per_move=0.0)
    away(stage, "alice")
    for name, share in (("one", first), ("two", second)):
        stage.notebook(name, 0.3)
        stage.holds(name, share)
    stage.after(60)
    assert (stage.gpu("one"), stage.gpu("two")) == (0, 1)
    return stage


def test_who_could_not_be_suspended_just_now_is_passed_over_for_another_holder() -> None:
    stage = two_holders(0.5, 0.8)
    alice = stage.workload("alice").id
    stage.node.start_cell(alice)
    stage.trims()
    stage.completes("one", fail=True)
    stage.node.settle()
    assert stage.runs("one", "alice")
    assert stage.phase("two") == "suspended"
    assert stage.gpu("alice") == 1
    assert stage.orders("one").count("suspend") == 1


def test_who_can_leave_at_once_goes_before_a_cell_that_has_to_be_waited_for() -> None:
    stage = two_holders(0.5, 0.8)
    stage.cell_starts("one")
    stage.cell_starts("alice")
    assert stage.runs("one", "alice")
    assert stage.gpu("alice") == 1
    assert stage.phase("two") == "suspended"
    assert not stage.plan("one").yields


def test_a_command_that_holds_burst_takes_no_turns() -> None:
    """It has no end of a cell at which it could yield, and is not stopped for anybody's burst."""
    stage = Stage(1)
    away(stage, "alice")
    stage.command("train", 0.3, 1.0, requeue=True)
    stage.holds("train", 0.6)
    stage.after(60)
    stage.cell_starts("alice")
    stage.after(3600)
    assert stage.orders("train") == ["start"]
    assert not stage.plan("train").yields
    assert stage.reason("alice").because == (Why(Reason.NOBODY_YIELDS),)


def alternating(**policy: object) -> Stage:
    """alice's cell waits for what one and two hold together, and one of these always runs a cell."""
    stage = Stage(1, min_residency_s=2.0, residency_per_move=0.0, **policy)
    for name, share in (("alice", 0.7), ("one", 0.4), ("two", 0.4)):
        stage.notebook(name, 0.125)
        stage.holds(name, share)
        stage.user_suspends(name)
    stage.cell_starts("one")
    stage.cell_starts("two")
    stage.after(5)
    stage.cell_starts("alice")
    assert stage.phase("alice") == "suspended"
    assert stage.runs("one", "two")
    return stage


def test_who_holds_a_gpu_together_leaves_together_until_the_cell_that_waits_for_them_starves() -> None:
    stage = alternating(starvation_s=300.0)
    stage.cell_ends("one")
    stage.after(290)
    assert stage.node.state.timer_at == stage.workload("alice").waiting_since + 300.0
    assert stage.runs("one", "two")
    stage.after(10)
    assert stage.phase("one") == "suspended"
    stage.cell_starts("one")
    assert stage.reason("one").because == (stage.why(Reason.KEPT_FOR, "alice", gpus=[0]),)
    assert stage.runs("two")
    stage.cell_ends("two")
    assert stage.runs("alice")
    assert stage.phase("one") == stage.phase("two") == "suspended"


def test_who_comes_later_does_not_get_the_room_that_is_kept_for_a_cell() -> None:
    stage = alternating(starvation_s=300.0)
    stage.after(300)
    stage.cell_ends("one")
    assert stage.phase("one") == "suspended"
    stage.notebook("new", 0.125)
    assert stage.runs("new"), "its request is guaranteed"
    stage.cell_starts("one")
    assert stage.phase("one") == "suspended"
    assert stage.runs("two")


def test_the_first_residency_that_ends_is_waited_for_though_another_holder_would_be_cheaper_now() -> None:
    stage = Stage(2, min_residency_s=100.0, residency_per_move=0.0)
    stage.notebook("alice", 0.25)
    stage.holds("alice", 0.7)
    stage.user_suspends("alice")
    stage.notebook("carol", 0.25)
    stage.holds("carol", 0.9)
    stage.after(50)
    stage.notebook("bob", 0.25)
    stage.holds("bob", 0.8)
    assert stage.gpu("carol") != stage.gpu("bob")
    stage.cell_starts("alice")
    assert stage.cause("alice") == "bob"
    assert stage.node.state.timer_at == 100.0
    stage.node.fire_timer()
    stage.node.settle()
    assert stage.runs("alice", "bob")


@pytest.mark.parametrize("limit", [0.75, 1.0])
def test_who_begins_to_wait_goes_before_who_is_on_its_way_out_at_once_and_later(limit: float) -> None:
    """Who is still on the Gpu has waited for nothing: not even for as long as who begins to wait at this moment."""
    stage = Stage(1, oversubscribe=2.0)
    stage.notebook("first", 0.75, limit)
    first = stage.workload("first").id
    stage.node.tell(ev.SuspendRequested(stage.node.now, first, "suspended by its user"))
    stage.node.tell(ev.ResumeRequested(stage.node.now, first))
    second = stage.node.submit(request_bytes=int(0.75 * TOTAL), limit_bytes=int(limit * TOTAL))
    for later_s in (0.0, 1.0):
        entries = make_plan(replace(stage.node.state, at=stage.node.now + later_s)).entries
        assert [bool(entries[key].target) for key in (first, second)] == [False, True]


@pytest.mark.parametrize("limit", [1.0, 0.9])
def test_who_may_not_borrow_has_its_turn_in_line_as_well(limit: float) -> None:
    stage = Stage(1, oversubscribe=2.0)
    stage.notebook("alice", 0.9, limit)
    stage.notebook("bob")
    stage.cell_starts("alice")
    stage.after(5)
    stage.cell_starts("bob")
    stage.node.finish_cell(stage.workload("alice").id)
    stage.node.tell(ev.CellStarted(stage.node.now, stage.workload("alice").id))  # it waits for who is being suspended
    stage.node.settle()
    stage.after(5)
    assert stage.runs("bob")


def test_whose_residency_ends_first_is_replaced_then_and_named_before() -> None:
    stage = Stage(1)
    for name, share in (("bob", 0.45), ("alice", 0.4), ("carol", 0.5)):
        stage.notebook(name, 0.0625)
        stage.holds(name, share)
        stage.user_suspends(name)
    stage.after(100)
    for name, moves_for_s in (("bob", 10), ("alice", 1)):
        stage.node.tell(ev.ResumeRequested(stage.node.now, stage.workload(name).id))
        stage.node.now += moves_for_s
        stage.node.settle()
    came = stage.node.now
    stage.cell_starts("carol")
    assert stage.cause("carol") == "alice"
    stage.after(2 * stage.node.state.policy.residency_per_move)
    assert stage.runs("carol", "bob")
    *_, start = [at.at for at, given in stage.node.history for c in given if isinstance(c, StartProcess)]
    assert came < start <= came + stage.node.state.policy.residency_per_move * 1.01


def test_a_suspend_for_a_turn_that_failed_is_tried_again() -> None:
    stage = Stage(1, max_moves_per_hour=0)
    stage.notebook("carol", 0.0625)
    stage.holds("carol", 0.5)
    stage.user_suspends("carol")
    stage.notebook("bob", 0.0625)
    stage.holds("bob", 0.6)
    stage.after(60)
    stage.node.start_cell(stage.workload("carol").id)
    while isinstance(stage.pending("bob"), TrimMemory):
        stage.completes("bob")
    stage.completes("bob", fail=True)
    stage.after(stage.node.state.policy.cool_down_s)
    assert stage.runs("carol")


@pytest.mark.parametrize(("request_share", "limit"), [(1.0, 1.0), (0.9, 1.0)])
def test_room_that_is_kept_for_who_starves_is_not_given_back_to_who_has_left_it(
    request_share: float, limit: float
) -> None:
    """Each leaves when it can, and its next cell waits; else two whose cells overlap keep a third out for ever."""
    stage = Stage(1, oversubscribe=2.0, starvation_s=60.0)
    stage.notebook("whale", request_share, limit)
    stage.user_suspends("whale")
    for name in ("ann", "bea"):
        stage.notebook(name, 0.5, 0.75)
        stage.cell_starts(name)
        stage.after(15)
    stage.cell_starts("whale")
    waited_s = 0
    while not stage.runs("whale"):
        for name in ("ann", "bea"):
            stage.cell_ends(name)
            stage.after(1)
            stage.cell_starts(name)
            stage.after(15)
            waited_s += 16
        assert waited_s < 60 + 2 * 32


def test_a_gpu_is_kept_neither_from_who_may_not_use_it_nor_from_whom_it_is_kept_for() -> None:
    second = Pool("second", ("1",), oversubscribe=2.0)
    stage = Stage(2, oversubscribe=2.0, starvation_s=60.0, pools=(second,))
    for keeps, waits, pool in (("alice", "bob", "default"), ("carol", "dave", "second")):
        stage.notebook(keeps, 1.0, pools=(pool,))
        stage.user_keeps(keeps, 1e6)
        stage.notebook(waits, 0.5, pools=(pool,))
        stage.cell_starts(waits)
    stage.after(100)
    for waits in ("bob", "dave"):
        assert stage.reason(waits).because == (Why(Reason.NOBODY_YIELDS),)


def two_that_alternate(request: float, saved: float) -> tuple[Stage, int]:
    """Half an hour in which alice's cell waits for what others have by turns, and how often those have started then."""
    stage = Stage(1, oversubscribe=2.0, starvation_s=60.0)
    stage.notebook("alice", request)
    stage.holds("alice", saved)
    stage.user_suspends("alice")
    for name in ("bob", "carol"):
        stage.notebook(name, 0.5, 0.5)
        stage.cell_starts(name)
    stage.cell_starts("alice")
    starts = sum(stage.orders(name).count("start") for name in ("bob", "carol"))
    until = {"bob": 20, "carol": 10}
    for now in range(1800):
        for name in ("bob", "carol"):
            if now == until[name] and stage.workload(name).executing:
                stage.cell_ends(name)
            elif now > until[name] and not stage.workload(name).cell_since:
                stage.cell_starts(name)
                until[name] = now + 20
        stage.after(1)
        if stage.runs("alice"):
            break
    return stage, sum(stage.orders(name).count("start") for name in ("bob", "carol")) - starts


@pytest.mark.parametrize("more", [0.0, 0.001])
def test_a_turn_comes_also_for_one_that_was_saved_a_little_above_its_request(more: float) -> None:
    stage, starts = two_that_alternate(0.75, 0.75 + more)
    assert stage.runs("alice")
    assert starts <= 2


def test_nobody_leaves_in_vain_for_one_that_is_owed_less_than_it_needs() -> None:
    """Who is at home within its request would be back with its next cell."""
    stage, starts = two_that_alternate(0.5, 0.75)
    assert starts == 0
    assert stage.reason("alice").kind is Reason.SAVED_ABOVE_REQUEST


def test_a_turn_comes_for_one_saved_above_its_request_though_one_of_the_others_fits_beside_that() -> None:
    """Only whoever could never be there with alice has to wait for her turn; carol is owed her request beside hers."""
    stage = Stage(1, oversubscribe=2.0, starvation_s=60.0)
    stage.notebook("alice", 0.5)
    stage.holds("alice", 0.8)
    stage.user_suspends("alice")
    for name, request in (("bob", 1.0), ("carol", 0.5)):
        stage.notebook(name, request, request)
        stage.cell_starts(name)
    stage.cell_starts("alice")
    waited_s = 0
    while not stage.runs("alice"):
        for name in ("bob", "carol"):
            if stage.runs(name):
                stage.cell_ends(name)
                stage.after(1)
                stage.cell_starts(name)
        stage.after(10)
        waited_s += 11
        assert waited_s < 60 + 4 * 30
