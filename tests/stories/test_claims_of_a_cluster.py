"""Homes that a cluster's scheduler gave, and owners whom nobody here looks after."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.pools import Placement
from nls_scheduler.core.model.reasons import Mention, Reason, Why
from nls_scheduler.views.status import cause_view
from stage import TOTAL, Stage

ZERO, ONE, TWO = GpuUuid("GPU-0"), GpuUuid("GPU-1"), GpuUuid("GPU-2")


def at_home(*gpus: GpuUuid) -> dict[str, object]:
    return {"given_home": gpus}


def claim(stage: Stage, *owners: Owner, allocated: tuple[GpuUuid, ...] = ()) -> None:
    stage.node.tell(ev.GpusClaimed(stage.node.now, Claims(owners, frozenset(allocated))))
    stage.node.settle()


def to_come(name: str = "train", count: int = 1) -> Owner:
    return Owner(name, name, devices_to_come=count)


def alice_and_bob(gpus: int = 2, **policy: object) -> Stage:
    """Both at home on GPU 0 with half of it; bob has spread to GPU 1."""
    stage = Stage(gpus, reclaim_deadline_s=3.0, stop_grace_s=0.5, **policy)
    stage.notebook("alice", **at_home(ZERO))
    stage.notebook("bob", **at_home(ZERO))
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}
    return stage


def borrower(stage: Stage) -> str:
    return "bob" if stage.gpu("bob") != 0 else "alice"


def test_notebooks_of_one_home_spread_over_the_gpus_that_nobody_owns() -> None:
    stage = alice_and_bob()
    assert stage.workload("alice").home == stage.workload("bob").home == (ZERO,)


def test_who_is_at_home_on_a_gpu_that_is_out_of_service_waits_and_reads_so() -> None:
    stage = Stage(2)
    stage.health(0, healthy=False)
    stage.notebook("alice", 0.5, 0.5, **at_home(ZERO))
    assert stage.phase("alice") == "queued"
    assert stage.reason("alice") == stage.why(Reason.OUT_OF_SERVICE, gpus=[0])
    assert stage.plan("alice").target == ()
    stage.health(0, healthy=True)
    assert stage.runs("alice")


@pytest.mark.parametrize("limit", [0.25, 1.0])
@pytest.mark.parametrize("names", [("alice",), ("alice", "bob")])
def test_who_is_at_home_on_a_gpu_that_goes_out_of_service_leaves_it_and_reads_so(
    limit: float, names: tuple[str, ...]
) -> None:
    stage = Stage(1)
    for name in names:
        stage.command(name, 0.25, limit, requeue=True, **at_home(ZERO))
    stage.health(0, healthy=False)
    stage.after(60)
    for name in names:
        assert stage.phase(name) == "queued"
        assert stage.workload(name).home == (ZERO,)
        assert stage.reason(name) == stage.why(Reason.OUT_OF_SERVICE, gpus=[0])
        assert stage.plan(name).cause is None  # nobody has to leave for it
    stage.health(0, healthy=True)
    assert stage.runs(*names)


def test_a_command_that_cannot_move_is_at_home_where_it_runs_whatever_the_cluster_says_later() -> None:
    stage = Stage(2)
    stage.command("train", 0.5, 1.0, **at_home(ZERO))
    stage.node.tell(ev.HomeAssigned(stage.node.now, stage.workload("train").id, (ONE,)))
    stage.command("other", 0.25, 1.0, **at_home(ZERO))
    stage.holds("other", 0.4)
    stage.command("whole", 1.0, **at_home(ZERO))
    stage.after(600)
    assert stage.workload("train").home == (ZERO,)
    assert stage.runs("train", "other")
    assert stage.reason("whole") == stage.why(Reason.HOME_OVERFULL, gpus=[0])
    stage.ends("train")
    stage.ends("other")
    assert stage.runs("whole")


def test_who_starts_at_home_beside_an_owner_reads_that_and_not_that_it_waits() -> None:
    stage = Stage(1)
    claim(stage, Owner("pod", "pod", (ZERO,), TOTAL // 4), allocated=(ZERO,))
    stage.stranger_uses(0, 0.2)
    stage._ids["alice"] = stage.node.submit(name="alice", given_home=(ZERO,), request_bytes=TOTAL // 4)
    started = stage.pending("alice")
    assert started is not None
    assert started.reason.kind is Reason.AT_HOME_WITH_BURST


def test_a_device_to_come_vacates_the_borrowed_gpu_and_both_are_home_again() -> None:
    stage = alice_and_bob()
    claim(stage, to_come(), allocated=(ZERO,))
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)
    assert [o.name for o in stage.node.state.gpus[ONE].owners] == ["train"]


def test_a_running_cell_has_until_the_deadline_to_end() -> None:
    stage = alice_and_bob()
    leaver = borrower(stage)
    stage.cell_starts(leaver)
    claim(stage, to_come(), allocated=(ZERO,))
    assert stage.gpu(leaver) == 1
    stage.after(2.5)
    assert stage.gpu("alice") == stage.gpu("bob") == 0


def test_whoever_leaves_for_a_pod_of_the_cluster_reads_which_one() -> None:
    stage = alice_and_bob()
    leaver = borrower(stage)
    stage.cell_starts(leaver)
    claim(stage, Owner("uid-7", "default/train", devices_to_come=1), allocated=(ZERO,))
    entry = stage.node.state.plan[stage.workload(leaver).id]
    assert entry.reason == Why(Reason.NEEDED, (ONE,), (Mention("uid-7", "default/train", "pod"),))
    assert cause_view(stage.node.state, entry.cause) == {"id": "uid-7", "name": "default/train"}
    stage.after(5)
    assert stage.gpu(leaver) == 0


def test_whoever_is_at_home_beside_a_pod_of_the_cluster_s_is_not_told_of_it() -> None:
    stage = Stage(1)
    claim(stage, Owner("train", "train", (ZERO,), TOTAL // 2), allocated=(ZERO,))
    stage.notebook("alice", **at_home(ZERO))
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "its user asked"))
    assert stage.node.state.plan[stage.workload("alice").id].cause is None


def test_a_pod_that_vanishes_in_mid_move_lets_the_move_end_and_leaves_nobody_without_a_gpu() -> None:
    stage = alice_and_bob()
    leaver = borrower(stage)
    workload = stage.workload(leaver).id
    state = stage.node.state
    stage.node.tell(ev.GpusClaimed(stage.node.now, Claims((to_come(),), frozenset({ZERO}))))
    moving = stage.node.state.workloads[workload]
    assert moving.pending is not None, (state.plan[workload], moving)
    stage.node.tell(ev.GpusClaimed(stage.node.now, Claims((), frozenset({ZERO}))))
    stage.node.settle()
    stage.after(120)
    assert stage.phase("alice") == stage.phase("bob") == "running"
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_the_gpu_kept_free_stays_the_same_until_the_kubelet_has_chosen() -> None:
    stage = alice_and_bob(3)
    claim(stage, to_come(), allocated=(ZERO,))
    kept = [uuid for uuid, gpu in stage.node.state.gpus.items() if gpu.owners]
    stage.after(60)
    stage.cell_starts("alice")
    stage.cell_ends("alice")
    assert [uuid for uuid, gpu in stage.node.state.gpus.items() if gpu.owners] == kept
    assert kept == [ONE]


def test_the_kubelet_chose_another_gpu_and_that_one_is_vacated_too() -> None:
    stage = Stage(3, reclaim_deadline_s=3.0, stop_grace_s=0.5)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.3, **at_home(ZERO))
    assert {stage.gpu(name) for name in ("alice", "bob", "carol")} == {0, 1, 2}
    claim(stage, to_come(), allocated=(ZERO,))
    (kept,) = [uuid for uuid, gpu in stage.node.state.gpus.items() if gpu.owners]
    other = TWO if kept == ONE else ONE
    claim(stage, Owner("train", "train", (other,)), allocated=(ZERO, other))
    stage.after(60)
    there = {stage.gpu(name) for name in ("alice", "bob", "carol")}
    assert stage.node.state.gpus[other].index not in there
    assert stage.node.state.gpus[kept].index in there


def test_two_devices_to_come_vacate_two_borrowed_gpus() -> None:
    stage = Stage(3, reclaim_deadline_s=3.0, stop_grace_s=0.5)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.3, **at_home(ZERO))
    claim(stage, to_come(count=2), allocated=(ZERO,))
    assert {stage.gpu(name) for name in ("alice", "bob", "carol")} == {0}


def test_an_owners_part_of_a_home_leaves_the_rest_to_those_at_home() -> None:
    stage = Stage(2)
    claim(stage, Owner("train", "train", (ZERO,), TOTAL // 2), allocated=(ZERO,))
    stage.notebook("alice", **at_home(ZERO))
    assert stage.gpu("alice") == 1
    claim(stage, Owner("train", "train", (ZERO,), TOTAL // 2), Owner("big", "big", (ONE,)), allocated=(ZERO, ONE))
    assert stage.gpu("alice") == 0
    assert stage.node.state.plan[stage.workload("alice").id].allowance_bytes == TOTAL // 2


def test_nobody_borrows_where_a_stranger_owns_a_part() -> None:
    stage = Stage(2)
    claim(stage, Owner("train", "train", (ONE,), TOTAL // 4), allocated=(ZERO, ONE))
    stage.notebook("alice", 0.25, **at_home(ZERO))
    stage.notebook("bob", 0.25, **at_home(ZERO))
    stage.after(60)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)


def test_an_owner_that_uses_more_than_its_request_counts_with_what_it_uses() -> None:
    stage = Stage(1)
    claim(stage, Owner("train", "train", (ZERO,), TOTAL // 4), allocated=(ZERO,))
    stage.stranger_uses(0, 0.5)
    assert stage.node.state.gpus[ZERO].capacity_bytes == TOTAL // 2
    stage.stranger_uses(0, 0.1)
    assert stage.node.state.gpus[ZERO].capacity_bytes == TOTAL * 3 // 4


def test_a_notebook_whose_home_is_not_known_yet_waits_and_says_so() -> None:
    stage = Stage(2)
    stage.notebook("alice", **at_home())
    assert stage.phase("alice") == "queued"
    assert stage.reason("alice") == Why(Reason.NO_HOME_YET)
    stage.node.tell(ev.HomeAssigned(stage.node.now, stage.workload("alice").id, (ONE,)))
    stage.node.settle()
    assert stage.workload("alice").home == (ONE,)
    assert stage.phase("alice") == "running"


def test_who_goes_to_the_home_that_the_cluster_says_later_reads_that_and_not_that_it_is_there() -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.5, 0.5, **at_home(ZERO))
    stage.cell_starts("alice")
    stage.node.tell(ev.HomeAssigned(stage.node.now, stage.workload("alice").id, (ONE,)))
    assert (stage.gpu("alice"), stage.plan("alice").target) == (0, (ONE,))
    assert stage.reason("alice") == stage.why(Reason.HOME, gpus=[1])
    stage.cell_ends("alice")
    assert stage.gpu("alice") == 1
    assert stage.reason("alice") == stage.why(Reason.AT_HOME, gpus=[1], shares=[0.5])


def test_a_gang_of_which_only_some_have_been_given_a_home_waits_and_has_no_other_one() -> None:
    stage = Stage(2)
    stage.gang("red", 2, request=0.5, **at_home())
    stage.node.tell(ev.HomeAssigned(stage.node.now, stage.workload("red-0").id, (ONE,)))
    assert stage.home("red-0") == stage.home("red-1") == []
    assert stage.reason("red-0") == stage.why(Reason.GANG_MEMBER_WITHOUT_PLACE, "red-1", names=["red"])
    assert stage.reason("red-1") == Why(Reason.NO_HOME_YET)
    stage.node.tell(ev.HomeAssigned(stage.node.now, stage.workload("red-1").id, (ONE,)))
    stage.node.settle()
    assert stage.home("red-0") == stage.home("red-1") == [1]
    assert stage.runs("red-0", "red-1")


def test_a_gang_with_an_over_full_home_waits_for_that_one_and_starts_whole() -> None:
    stage = Stage(2)
    stage.command("train", 0.75, **at_home(ONE))
    stage.gang("red", 2, request=0.25, **at_home(ONE))
    assert stage.home("red-0") == stage.home("red-1") == []
    assert stage.reason("red-0") == stage.why(Reason.GANG_MEMBER_WITHOUT_PLACE, "red-1", names=["red"])
    assert stage.reason("red-1") == stage.why(Reason.HOME_OVERFULL, gpus=[1])
    stage.ends("train")
    assert stage.runs("red-0", "red-1")


def test_an_over_full_home_keeps_the_first_and_says_so_to_the_last() -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.75, **at_home(ZERO))
    stage.notebook("bob", 0.75, **at_home(ZERO))
    assert stage.phase("alice") == "running"
    assert stage.phase("bob") == "queued"
    assert stage.reason("bob") == stage.why(Reason.HOME_OVERFULL, gpus=[0])
    stage.ends("alice")
    assert stage.phase("bob") == "running"


def test_a_home_that_is_no_gpu_of_this_node_is_waited_for() -> None:
    stage = Stage(1)
    elsewhere = GpuUuid("GPU-elsewhere")
    stage.notebook("alice", **at_home(elsewhere))
    assert stage.phase("alice") == "queued"
    assert stage.reason("alice") == Why(Reason.HOME_ELSEWHERE, (elsewhere,))


def test_a_given_home_is_never_exchanged_for_somebody_else() -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.5, 0.5, **at_home(ZERO))
    stage.notebook("bob", 0.5, 0.5, **at_home(ONE))
    stage.command("train")
    assert stage.phase("train") == "queued"
    assert stage.workload("alice").home == (ZERO,)
    assert stage.workload("bob").home == (ONE,)


def test_a_broken_home_does_not_keep_a_notebook_from_borrowing() -> None:
    stage = Stage(2)
    stage.notebook("alice", **at_home(ZERO))
    stage.health(0, healthy=False)
    assert stage.gpu("alice") == 1
    assert stage.workload("alice").home == (ZERO,)


def test_claims_that_are_withdrawn_give_the_gpu_back_to_bursters() -> None:
    stage = alice_and_bob()
    claim(stage, to_come(), allocated=(ZERO,))
    claim(stage, allocated=(ZERO,))
    stage.after(60)
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_where_nothing_is_lent_any_more_whoever_borrows_goes_home_when_it_is_idle() -> None:
    stage = alice_and_bob()
    away = borrower(stage)
    stage.cell_starts(away)
    stage.changes(placement=Placement.BINPACK)
    stage.after(60)
    assert stage.gpu(away) == 1, "a running cell is left alone"
    stage.cell_ends(away)
    stage.after(60)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)
    stage.changes(placement=Placement.SPREAD)
    stage.after(60)
    assert {stage.gpu("alice"), stage.gpu("bob")} == {0, 1}


def test_who_borrows_goes_home_where_that_takes_nothing_from_anybody() -> None:
    stage = alice_and_bob()
    away = borrower(stage)
    stage.ends("alice" if away == "bob" else "bob")
    stage.after(60)
    assert stage.gpu(away) == 0
    assert stage.orders(away) == ["start", "suspend", "start"]


def test_nobody_comes_or_moves_to_where_that_takes_from_who_has_less() -> None:
    """The sum of the shares would grow: whom it leaves would have the Gpu alone."""
    stage = Stage(3)
    gpus = [at_home(stage.uuid(gpu)) for gpu in range(3)]
    stage.command("full", 0.25, **gpus[0])
    stage.command("for now", **gpus[1])
    stage.command("and here", **gpus[2])
    stage.notebook("none", 0.75, **gpus[0])
    stage.cell_starts("none")
    stage.ends("and here")
    stage.command("fuller", 0.2, **gpus[2])
    stage.notebook("less", 0.75, **gpus[2])
    stage.cell_starts("less")
    stage.ends("for now")
    stage.notebook("more", 0.5, **gpus[1])
    stage.cell_starts("more")
    stage.notebook("comes", 0.05, **gpus[1])
    stage.after(200)
    assert [stage.gpu(name) for name in ("none", "more", "less", "comes")] == [0, 1, 2, 1]
    assert stage.orders("comes") == ["start"]


def test_where_nothing_is_lent_nobody_leaves_home_for_memory_that_was_refused() -> None:
    stage = Stage(2, placement=Placement.BINPACK)
    for name in ("alice", "bob"):
        stage.notebook(name, **at_home(ZERO))
        stage.holds(name, 0.4)
    stage.cell_starts("bob")
    answer = stage.wants("bob", 0.4)
    assert answer is not None
    assert not answer.granted
    assert answer.reason is not None
    stage.cell_ends("bob")
    stage.after(600)
    assert stage.orders("bob") == stage.orders("alice") == ["start"]


def test_owners_are_known_again_after_a_restart() -> None:
    stage = alice_and_bob()
    claim(stage, Owner("train", "train", (ONE,)), allocated=(ZERO, ONE))
    stage.node.go_down()
    stage.node.come_back()
    stage.after(60)
    assert (stage.gpu("alice"), stage.gpu("bob")) == (0, 0)


def test_an_owner_has_on_each_gpu_what_its_claims_give_it_there() -> None:
    stage = Stage(2)
    claim(stage, Owner("train", "train", (ZERO, ONE), TOTAL // 2, differs_on={ONE: TOTAL // 8}))
    assert [stage.node.state.gpus[uuid].owners[0].bytes for uuid in (ZERO, ONE)] == [TOTAL // 2, TOTAL // 8]
    stage.notebook("alice", 0.75, 0.75, **at_home(ONE))
    assert stage.gpu("alice") == 1
    claim(stage, Owner("train", "train", (ZERO, ONE), TOTAL // 2, differs_on={ONE: None}))
    stage.after(60)
    assert not stage.runs("alice")


def test_a_home_that_a_process_nobody_placed_has_filled_is_not_said_to_be_over_full() -> None:
    stage = Stage(2)
    stage.stranger_uses(0, 0.625)
    stage.after(1)
    stage.notebook("alice", 0.5, **at_home(ZERO))
    assert stage.reason("alice") == stage.no_room(0.5, stage.why(Reason.HELD, gpus=[0], shares=[0.625]))
    stage.stranger_uses(0, 0.0)
    assert stage.runs("alice")
