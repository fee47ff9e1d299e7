"""An allocation fails within the limit: the daemon is asked, and answers with more room or with the reason."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import SuspendProcess, TrimMemory
from nls_scheduler.core.model.gpu import Claims
from nls_scheduler.core.model.reasons import Reason, Why
from stage import TOTAL, Stage, bare


def two_on_one_gpu(**policy: float) -> Stage:
    """alice and bob, each guaranteed a quarter and allowed half of the only Gpu; a cell of bob's runs."""
    stage = Stage(1, **policy)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.25, 1.0)
    assert stage.plan("bob").allowance_bytes == TOTAL // 2
    stage.cell_starts("bob")
    return stage


def holds(stage: Stage, name: str, share: float) -> Why:
    """It holds so much, with a request of a quarter."""
    return stage.why(Reason.HOLDS, name, shares=[share, 0.25])


def test_caches_of_a_neighbour_above_its_allowance_make_room() -> None:
    stage = two_on_one_gpu()
    stage.holds("alice", 0.3, cached=0.4)
    stage.allocates("bob", 0.2)
    answer = stage.wants("bob", 0.25)
    assert answer is not None
    assert answer.granted
    assert stage.orders("alice") == ["start", "trim"]
    assert stage.runs("alice", "bob")


def test_memory_that_is_free_by_now_is_granted_without_any_trim() -> None:
    stage = two_on_one_gpu()
    stage.allocates("bob", 0.2)
    answer = stage.wants("bob", 0.25)
    assert answer is not None
    assert answer.granted
    assert stage.orders("alice") == ["start"]


def test_more_than_the_limit_is_refused_at_once_and_the_limit_to_ask_for_is_named() -> None:
    stage = Stage(1)
    stage.notebook("bob", 0.25, 0.5)
    stage.cell_starts("bob")
    stage.allocates("bob", 0.4)
    stage.node.want_memory(stage.workload("bob").id, TOTAL // 4)
    answer = stage.workload("bob").answer
    assert answer is not None
    assert not answer.granted
    assert answer.reason == stage.why(Reason.BEYOND_LIMIT, shares=[0.65, 0.5])


def test_more_than_any_gpu_has_is_refused_with_what_the_largest_of_its_pools_has() -> None:
    stage = Stage(1)
    stage.notebook("bob", 0.25, 0.5)
    stage.cell_starts("bob")
    stage.allocates("bob", 0.4)
    stage.node.want_memory(stage.workload("bob").id, TOTAL)
    answer = stage.workload("bob").answer
    assert answer is not None
    assert not answer.granted
    assert answer.reason == Why(Reason.BEYOND_ANY_GPU, bytes=(int(0.4 * TOTAL) + TOTAL, TOTAL))


def test_more_than_the_allowance_is_refused_with_who_holds_what() -> None:
    stage = two_on_one_gpu()
    stage.holds("alice", 0.25)
    stage.allocates("bob", 0.4)
    answer = stage.wants("bob", 0.3)
    assert answer is not None
    assert not answer.granted
    held = [holds(stage, "bob", 0.4), holds(stage, "alice", 0.25)]
    assert answer.reason == stage.why(Reason.BEYOND_ALLOWANCE, gpus=[0], shares=[0.5, 0.25, 0.7], because=held)
    assert stage.orders("alice") == ["start"]


def beside_a_free_gpu() -> Stage:
    """`alice` and `bob` share a Gpu beside a free one."""
    stage = Stage(2, min_gain=2.0)
    stage.command("first", 1.0)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.25, 1.0)
    stage.ends("first")
    assert stage.gpu("alice") == stage.gpu("bob"), "a spread that gains too little moves nobody"
    return stage


def test_what_was_refused_is_there_after_the_cell_where_another_gpu_has_room() -> None:
    stage = beside_a_free_gpu()
    stage.cell_starts("bob")
    stage.holds("bob", 0.4)
    answer = stage.wants("bob", 0.3)
    assert answer is not None
    assert not answer.granted
    assert bare(answer.reason) == stage.why(Reason.ROOMIER_ELSEWHERE, gpus=[1, 0], shares=[0.5, 0.25])
    stage.cell_ends("bob")
    assert stage.gpu("alice") != stage.gpu("bob")
    assert stage.plan("bob").allowance_bytes == TOTAL
    stage.after(600)
    assert stage.orders("bob") == ["start", "suspend", "start"]


@pytest.mark.parametrize("why_not", ["nobody moves for burst", "its user keeps it", "the node is cordoned"])
def test_who_will_not_move_when_its_cell_has_ended_is_not_told_so(why_not: str) -> None:
    stage = beside_a_free_gpu()
    stage.cell_starts("bob")
    stage.holds("bob", 0.4)
    if why_not == "nobody moves for burst":
        stage.changes(max_moves_per_hour=0)
    elif why_not == "its user keeps it":
        stage.user_keeps("bob", 3600.0)
    else:
        stage.node.tell(ev.GpusClaimed(stage.node.now, Claims(cordoned=True)))
    answer = stage.wants("bob", 0.3)
    assert answer is not None
    assert answer.reason.kind is Reason.BEYOND_ALLOWANCE
    stage.cell_ends("bob")
    assert stage.gpu("alice") == stage.gpu("bob")


def test_memory_within_the_request_is_waited_for_until_who_is_above_theirs_has_left() -> None:
    stage = two_on_one_gpu()
    stage.allocates("bob", 0.1)
    alice = stage.node.workloads[stage.workload("alice").id]
    alice.process.held_bytes = int(0.85 * TOTAL)
    stage.node.want_memory(stage.workload("bob").id, int(0.1 * TOTAL))
    stage.node.sample()
    assert stage.workload("bob").answer is None
    assert isinstance(stage.pending("alice"), TrimMemory)
    stage.trims()
    assert stage.workload("bob").answer is None
    assert isinstance(stage.pending("alice"), SuspendProcess)
    stage.node.settle()
    answer = stage.workload("bob").answer
    assert answer is not None
    assert answer.granted


def test_an_allocation_is_answered_in_time_though_nobody_else_answers() -> None:
    stage = two_on_one_gpu(allocation_wait_s=5.0, trim_timeout_s=20.0)
    stage.allocates("bob", 0.1875)
    stage.node.hold(stage.workload("alice").id, TOTAL // 4, TOTAL // 2)
    stage.node.want_memory(stage.workload("bob").id, int(0.25 * TOTAL))
    stage.node.sample()
    assert isinstance(stage.pending("alice"), TrimMemory)
    asked_at = stage.node.now
    while stage.workload("bob").answer is None:
        stage.node.fire_timer()
    assert stage.node.now - asked_at <= 5.0
    answer = stage.workload("bob").answer
    assert answer is not None
    assert not answer.granted
    held = [holds(stage, "alice", 0.75), holds(stage, "bob", 0.1875)]
    assert answer.reason == stage.why(Reason.TOO_LITTLE_FREE, gpus=[0], shares=[0.0625], because=held)


def test_an_allocation_that_is_told_twice_is_one() -> None:
    stage = two_on_one_gpu()
    stage.allocates("bob", 0.4)
    first = stage.wants("bob", 0.3)
    bob = stage.workload("bob")
    again = ev.MemoryWanted(stage.node.now, bob.id, first.number if first else 0, bob.current[0], TOTAL, 0)
    stage.node.tell(again)
    assert stage.workload("bob").wanted is None
    assert stage.workload("bob").answer == first


def test_an_answer_ends_with_the_process_that_asked() -> None:
    stage = two_on_one_gpu()
    stage.allocates("bob", 0.4)
    assert stage.wants("bob", 0.3) is not None
    stage.dies("bob")
    assert stage.workload("bob").answer is None


def test_nobody_moves_for_an_allocation_where_that_would_cost_others_more() -> None:
    """On GPU 1 bob could have a little more than beside a command that may burst, and everybody's share would fall."""
    stage = Stage(2)
    stage.notebook("bob", 0.25, 1.0)
    stage.cell_starts("bob")
    stage.command("train", 0.25, 1.0)
    stage.notebook("carol", 0.25, 0.75)
    stage.cell_starts("carol")
    assert (stage.gpu("train"), stage.gpu("carol"), stage.gpu("bob")) == (0, 1, 0)
    stage.allocates("bob", 0.3)
    answer = stage.wants("bob", 0.24)
    assert answer is not None
    assert not answer.granted
    assert bare(answer.reason) == stage.why(Reason.BEYOND_ALLOWANCE, gpus=[0], shares=[0.5, 0.25, 0.54])
    stage.cell_ends("bob")
    stage.after(600)
    assert stage.gpu("bob") == 0
    assert stage.orders("bob") == ["start"]


def test_an_allocation_on_a_gpu_on_which_its_process_is_not_is_refused() -> None:
    stage = Stage(2)
    stage.notebook("bob", 0.25)
    stage.cell_starts("bob")
    bob = stage.workload("bob")
    stage.node.tell(ev.MemoryWanted(stage.node.now, bob.id, 1, stage.uuid(1), TOTAL // 16, 0))
    answer = stage.workload("bob").answer
    assert answer is not None
    assert answer.reason == Why(Reason.NOT_THERE)


def test_for_a_burst_nobody_who_computes_within_its_allowance_gives_caches_back() -> None:
    stage = Stage(1)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.2, 1.0)
    for name, share in (("alice", 0.3), ("bob", 0.2)):
        stage.cell_starts(name)
        stage.allocates(name, share)
    stage.holds("carol", 0.3, cached=0.2)
    answer = stage.wants("bob", 0.1)
    assert answer is not None
    assert answer.granted
    assert (stage.orders("alice"), stage.orders("carol")) == (["start"], ["start", "trim"])


def test_an_allocation_that_is_told_again_later_keeps_its_deadline() -> None:
    stage = two_on_one_gpu(allocation_wait_s=5.0, trim_timeout_s=20.0)
    stage.allocates("bob", 0.2)
    stage.node.hold(stage.workload("alice").id, int(0.3 * TOTAL), int(0.45 * TOTAL))
    number = stage.node.want_memory(stage.workload("bob").id, int(0.25 * TOTAL))
    wanted = stage.workload("bob").wanted
    assert wanted is not None
    stage.node.now += 3
    again = ev.MemoryWanted(
        stage.node.now, stage.workload("bob").id, number, wanted.gpu, wanted.bytes, wanted.held_bytes
    )
    stage.node.tell(again)
    assert stage.workload("bob").wanted == wanted


def test_who_was_refused_memory_has_its_place_and_its_neighbour_no_more_than_before_until_the_cell_ends() -> None:
    stage = beside_a_free_gpu()
    stage.cell_starts("bob")
    stage.holds("bob", 0.4)
    stage.wants("bob", 0.3)
    stage.after(60)
    assert stage.plan("bob").target == stage.workload("bob").current
    assert stage.plan("alice").allowance_bytes == stage.plan("bob").allowance_bytes == TOTAL // 2
    stage.cell_ends("bob")
    assert stage.gpu("alice") != stage.gpu("bob")
    assert stage.plan("alice").allowance_bytes == stage.plan("bob").allowance_bytes == TOTAL


def test_an_allocation_is_not_answered_by_a_sample_from_before_it_was_asked_for() -> None:
    stage = two_on_one_gpu()
    stage.allocates("bob", 0.2)
    stage.after(10)
    stage.node.want_memory(stage.workload("bob").id, TOTAL // 4)
    stage.node.now -= 5
    stage.node.sample()
    assert stage.workload("bob").answer is None
    stage.node.now += 5
    stage.node.sample()
    answer = stage.workload("bob").answer
    assert answer is not None
    assert answer.granted
