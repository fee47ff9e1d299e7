"""Processes that nobody placed: nobody has to leave for what one sample alone has shown; starts are careful at once."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import SetTimer
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid, ProcessId
from nls_scheduler.core.simulator import GIB
from stage import TOTAL, Stage

ZERO, ONE = GpuUuid("GPU-0"), GpuUuid("GPU-1")
SMALL = 300 << 20


def seen(stage: Stage, gpu: GpuUuid, size_bytes: int) -> list[object]:
    """One sample shows a stranger with so much on `gpu`; the orders that it leads to."""
    stage.node.strangers[gpu] = size_bytes
    stage.node.sample()
    return [command for command in stage.node.history[-1][1] if not isinstance(command, SetTimer)]


@pytest.fixture
def borrowed() -> Stage:
    """Two notebooks on two Gpus; both have their home on the first."""
    stage = Stage(2)
    stage.notebook("alice")
    stage.notebook("bob")
    assert (stage.gpu("bob"), stage.home("bob")) == (1, [0])
    return stage


def test_a_borrower_stays_for_one_sample_with_a_stranger_and_goes_home_with_the_second(borrowed: Stage) -> None:
    assert seen(borrowed, ONE, SMALL) == []
    assert seen(borrowed, ONE, 0) == []
    assert seen(borrowed, ONE, SMALL) == []
    assert len(seen(borrowed, ONE, SMALL)) == 1
    borrowed.node.settle()
    assert borrowed.gpu("bob") == 0


def test_who_is_at_home_on_a_full_gpu_stays_for_one_sample_with_a_stranger_and_yields_with_the_second() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.notebook("bob")
    assert [stage.home("alice"), stage.home("bob")] == [[0], [0]]
    assert seen(stage, ZERO, SMALL) == []
    assert stage.node.state.gpus[ZERO].pressed_since is None
    assert seen(stage, ZERO, 0) == []
    seen(stage, ZERO, SMALL)
    assert len(seen(stage, ZERO, SMALL)) == 1


def test_as_much_as_two_samples_have_shown_counts_of_a_stranger_that_grows() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.5)
    stage.notebook("bob", 0.25)
    seen(stage, ZERO, SMALL)
    seen(stage, ZERO, SMALL)
    assert seen(stage, ZERO, TOTAL // 2) == []
    assert len(seen(stage, ZERO, TOTAL // 2)) == 1
    seen(stage, ZERO, SMALL)
    assert stage.node.state.gpus[ZERO].capacity_bytes == TOTAL - SMALL


def test_a_start_fits_beside_what_one_sample_has_shown() -> None:
    stage = Stage(1)
    seen(stage, ZERO, TOTAL // 2)
    assert stage.node.state.gpus[ZERO].capacity_bytes == TOTAL
    stage.node.submit(request_bytes=TOTAL // 2 + 1, limit_bytes=TOTAL)
    assert not stage.node.pending
    stage.node.submit(request_bytes=TOTAL // 4, limit_bytes=TOTAL)
    assert [command.workload for command in stage.node.pending] == ["w2"], "it is at home here, and has room"


def test_nobody_starts_to_borrow_where_one_sample_has_shown_a_stranger() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    seen(stage, ONE, SMALL)
    bob = stage.node.submit(request_bytes=TOTAL // 2, limit_bytes=TOTAL)
    assert stage.node.where(bob) == "queued"
    seen(stage, ONE, SMALL)
    assert stage.node.where(bob) == "starting on 0"


def test_who_waits_to_borrow_starts_with_the_next_sample_that_shows_no_stranger() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    seen(stage, ONE, SMALL)
    bob = stage.node.submit(request_bytes=TOTAL // 2, limit_bytes=TOTAL)
    seen(stage, ONE, 0)
    assert stage.node.where(bob) == "starting on 1"


def test_nobody_moves_for_burst_to_where_one_sample_has_shown_a_stranger() -> None:
    stage = Stage(2)
    stage.command("first", 1.0)
    stage.notebook("alice")
    stage.notebook("bob")
    assert [stage.gpu("alice"), stage.gpu("bob")] == [1, 1]
    stage.node.now += 3600.0
    seen(stage, ZERO, SMALL)
    stage.node.end_well(stage.workload("first").id)
    assert not stage.node.pending
    assert seen(stage, ZERO, 0) != [], "one of them moves there"


def test_a_command_does_not_start_again_to_grow_where_one_sample_has_shown_a_stranger() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.command("other")
    stage.command("elastic", gpu_count_max=2, requeue=True)
    stage.ends("other")
    stage.node.now += 100.0
    assert seen(stage, ZERO, SMALL) == []
    assert seen(stage, ZERO, 0) != [], "it starts again on both"


def test_who_has_to_leave_for_a_guarantee_does_not_wait_until_a_stranger_elsewhere_is_confirmed() -> None:
    stage = Stage(3)
    for name in ("alice", "bob"):
        stage.notebook(name)
    seen(stage, GpuUuid("GPU-2"), SMALL)
    owner = Owner("pod", "pod", gpus=(ONE,), request_bytes=SMALL)
    stage.node.tell(ev.GpusClaimed(stage.node.now, Claims((owner,))))
    assert stage.plan("bob").target == (GpuUuid("GPU-2"),)
    assert stage.phase("bob") == "suspending"


def test_an_owner_whom_the_cluster_has_named_needs_no_second_sample(borrowed: Stage) -> None:
    owner = Owner("pod", "pod", gpus=(ONE,), request_bytes=SMALL)
    commands = borrowed.node.tell(ev.GpusClaimed(borrowed.node.now, Claims((owner,))))
    assert [c for c in commands if not isinstance(c, SetTimer)] != []


def test_a_driver_that_does_not_say_once_who_uses_memory_drives_nobody_out(borrowed: Stage) -> None:
    """All that is used looks like a stranger's then."""
    used = {uuid: ev.GpuReading(4 * GIB, (), None) for uuid in borrowed.node.state.gpus}
    commands = borrowed.node.tell(ev.MemorySampled(borrowed.node.now, used))
    assert [c for c in commands if not isinstance(c, SetTimer)] == []
    assert borrowed.node.state.gpus[ONE].foreign_bytes == 4 * GIB


def test_processes_of_a_moment_that_follow_each_other_are_strangers_who_stay(borrowed: Stage) -> None:
    process = borrowed.node.workloads[borrowed.workload("bob").id].process
    assert process is not None
    placed = (ev.PlacedUse(borrowed.workload("bob").id, process.id, GIB),)
    for pid in (1, 2):
        reading = ev.GpuReading(2 * GIB, placed, {ProcessId(pid, pid): GIB})
        borrowed.node.tell(ev.MemorySampled(borrowed.node.now, {ONE: reading}))
    assert borrowed.node.state.gpus[ONE].has_foreigners
