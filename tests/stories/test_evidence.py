"""What is known and since when: old samples, Gpus that give no answer, strangers, waits and moves that are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.allocations import MemoryAnswer, Wanted
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Order, Pending, Phase, Workload
from nls_scheduler.core.planning.making_room.rooms import out_of_service
from nls_scheduler.core.simulator import GIB
from stage import TOTAL, Stage


def sampled(stage: Stage, at: float, **of_gpu_0: object) -> None:
    """A sample of that time which shows nothing on any Gpu but what is given for the first one."""
    readings = {uuid: ev.GpuReading(0, (), {}) for uuid in stage.node.state.gpus}
    if of_gpu_0:
        readings[stage.uuid(0)] = replace(readings[stage.uuid(0)], **of_gpu_0)  # type: ignore[arg-type]
    stage.node.tell(ev.MemorySampled(at, readings))


def lingering(stage: Stage) -> ProcessId:
    """`holder` has ended, and its process still holds the only Gpu."""
    process = stage.lingers("holder")
    stage.ends("holder")
    assert stage.phase("next") == "queued"
    return process.id


def handed_on() -> Stage:
    stage = Stage(1)
    stage.command("holder")
    stage.command("next")
    stage.node.now = 10.0
    return stage


def test_a_sample_from_before_the_end_of_a_process_says_nothing_about_its_memory() -> None:
    stage = handed_on()
    lingering(stage)
    sampled(stage, at=9.0)
    assert stage.phase("next") == "queued"
    sampled(stage, at=11.0)
    stage.node.settle()
    assert stage.runs("next")


def test_a_process_on_its_way_out_is_no_stranger() -> None:
    stage = handed_on()
    process = lingering(stage)
    sampled(stage, at=11.0, memory_used_bytes=GIB, unplaced={process: GIB})
    gpu = stage.node.state.gpus[stage.uuid(0)]
    assert (gpu.unplaced, gpu.unplaced_bytes, len(gpu.releasing)) == ((), 0, 1)


def test_a_sample_from_before_a_process_was_ready_does_not_measure_it() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.holds("alice", 0.75)
    stage.user_suspends("alice")
    stage.after(10)
    stage.cell_starts("alice")
    alice = stage.workload("alice")
    stage.node.state = replace(stage.node.state, workloads={alice.id: replace(alice, measured=False, memory_used={})})
    sampled(stage, at=9.0)
    assert stage.workload("alice").size_bytes == TOTAL * 3 // 4
    sampled(stage, at=11.0)
    assert stage.workload("alice").size_bytes == TOTAL // 4
    # Nor does it take more on its way out, whatever it needs to come back.
    assert replace(stage.workload("alice"), phase=Phase.SUSPENDING).size_bytes == TOTAL // 4


@pytest.mark.parametrize("unplaced", [None, {ProcessId(1, 1): None}])
def test_what_nobody_accounts_for_is_a_stranger_s_where_the_driver_hides_who_it_is(
    unplaced: dict[ProcessId, int | None] | None,
) -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    process = stage.workload("alice").process
    assert process is not None
    mine = ev.PlacedUse(stage.workload("alice").id, process, GIB)
    sampled(stage, at=1.0, memory_used_bytes=5 * GIB, placed=(mine,), unplaced=unplaced)
    assert stage.node.state.gpus[stage.uuid(0)].unplaced_bytes == 4 * GIB


def test_a_gpu_that_gives_no_answer_gets_nobody_new_and_loses_nobody() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.node.tell(ev.MemorySampled(1.0, {}))
    stage._ids["bob"] = stage.node.submit(name="bob", request_bytes=GIB)
    assert stage.runs("alice")
    assert stage.phase("bob") == "queued"
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("alice", "bob")


def test_a_gpu_of_which_the_driver_tells_nothing_is_not_said_to_be_out_of_service() -> None:
    stage = Stage(1)
    stage.node.tell(ev.MemorySampled(1.0, {}))
    stage._ids["alice"] = stage.node.submit(name="alice", request_bytes=GIB)
    assert stage.reason("alice") == stage.no_room(1 / 16, stage.why(Reason.USE_UNTOLD, gpus=[0]))


def test_a_gpu_that_vanishes_is_left_by_the_deadline_and_then_forgotten() -> None:
    stage = Stage(2, reclaim_deadline_s=30.0)
    stage.notebook("alice")
    stage.notebook("bob")
    stage.cell_starts("bob")
    lost = stage.uuid(1)
    left = tuple(gpu for gpu in stage.node.state.gpus.values() if gpu.uuid != lost)
    stage.node.tell(ev.GpusDiscovered(stage.node.now, left))
    assert stage.node.state.gpus[lost].unhealthy_reason == Why(Reason.VANISHED)
    stage.after(31)
    assert stage.gpu("bob") == 0
    stage.node.tell(ev.GpusDiscovered(stage.node.now, left))
    assert lost not in stage.node.state.gpus


def test_who_stays_on_a_gpu_that_is_out_of_service_reads_that_and_why() -> None:
    stage = Stage(2)
    stage.command("train")
    lost = stage.uuid(0)
    left = tuple(gpu for gpu in stage.node.state.gpus.values() if gpu.uuid != lost)
    for event, kind in (
        (ev.GpusDiscovered(stage.node.now, left, frozenset({lost})), Reason.LEFT_OUT),
        (ev.GpusDiscovered(stage.node.now, left), Reason.VANISHED),
    ):
        stage.node.tell(event)
        out = stage.why(Reason.OUT_OF_SERVICE, gpus=[0], because=[Why(kind)])
        assert stage.reason("train") == stage.why(Reason.STAYS, gpus=[0], shares=[1], because=[out])
        assert stage.runs("train")
    stage.node.tell(ev.GpusDiscovered(stage.node.now, (replace(stage.node.state.gpus[lost], healthy=True), *left)))
    assert stage.reason("train") == stage.why(Reason.AT_HOME, gpus=[0], shares=[1])


def test_who_leaves_a_gpu_that_is_out_of_service_reads_that_it_is_for_that() -> None:
    stage = Stage(2)
    stage.notebook("alice", 0.3, 0.3)
    stage.command("train", 0.3, requeue=True)
    lost = stage.uuid(0)
    assert (stage.gpu("alice"), stage.gpu("train")) == (0, 0)
    left = tuple(gpu for gpu in stage.node.state.gpus.values() if gpu.uuid != lost)
    stage.node.tell(ev.GpusDiscovered(stage.node.now, left, frozenset({lost})))
    out = stage.why(Reason.OUT_OF_SERVICE, gpus=[0], because=[Why(Reason.LEFT_OUT)])
    for name in ("alice", "train"):
        order = stage.pending(name)
        assert order is not None
        assert order.reason == out
    stage.node.settle()
    assert stage.runs("alice", "train")
    assert (stage.gpu("alice"), stage.gpu("train")) == (1, 1)


def test_a_wait_is_counted_from_its_beginning_whatever_its_user_does_meanwhile() -> None:
    stage = Stage(1)
    stage.command("holder")
    for name in ("first", "second"):
        stage.notebook(name, 1.0)
        stage.after(1)
    stage.cell_starts("first")
    assert (stage.position("first"), stage.position("second")) == (1, 2)
    assert stage.workload("first").waiting_since == 0.0


def test_a_command_is_not_suspended_at_its_user_s_word() -> None:
    stage = Stage(1)
    stage.command("train", requeue=True)
    stage.user_suspends("train")
    assert stage.runs("train")
    assert stage.orders("train") == ["start"]


def test_what_a_cell_changes_after_a_save_counts_until_it_is_saved_too() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.cell_starts("alice")
    stage.allocates("alice", 0.75)
    alice = stage.workload("alice").id
    stage.node.tell(ev.StateSaved(stage.node.now, alice, GIB))
    assert stage.workload("alice").return_bytes == TOTAL * 3 // 4
    stage.cell_ends("alice")
    assert stage.workload("alice").return_bytes == TOTAL * 3 // 4
    stage.node.tell(ev.StateSaved(stage.node.now, alice, GIB))
    assert stage.workload("alice").return_bytes == TOTAL // 4


def test_a_move_took_as_long_as_the_way_off_and_the_way_back() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.holds("alice", 0.75)
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    stage.node.now = 3.0
    stage.completes("alice")
    stage.node.start_cell(stage.workload("alice").id)
    stage.node.now = 5.0
    stage.completes("alice")
    assert stage.runs("alice")
    assert stage.workload("alice").last_move_s == 5.0
    assert stage.node.state.policy.residency_s(stage.workload("alice")) == 50.0


def test_who_comes_back_waits_until_there_is_room_in_fact_for_all_that_it_brings() -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.25)
    stage.holds("alice", 0.75)
    stage.user_suspends("alice")
    stage.command("leaver", 0.5)
    process = stage.lingers("leaver")
    stage.ends("leaver")
    stage.cell_starts("alice")
    assert stage.phase("alice") == "suspended"
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("alice")


def test_nobody_gets_the_room_of_what_a_gpu_process_left_behind_not_even_its_notebook() -> None:
    stage = Stage(1)
    stage.notebook("book", request=0.9)
    stage.node.now = 10.0
    workload, orphan = stage.workload("book").id, ProcessId(4711, 1)
    process = stage.workload("book").process
    assert process is not None
    stage.node.tell(ev.ProcessExited(10.0, workload, process, "was killed"))
    left = ev.PlacedUse(workload, orphan, 4 * GIB)
    for at in (11.0, 12.0):
        sampled(stage, at=at, memory_used_bytes=4 * GIB, placed=(left,))
        assert stage.phase("book") == "queued"
        (releasing,) = stage.node.state.gpus[stage.uuid(0)].releasing
        assert (releasing.process, releasing.bytes, releasing.since) == (orphan, 4 * GIB, 10.0)
    sampled(stage, at=13.0)
    assert stage.phase("book") == "starting"


def test_nothing_that_was_said_of_a_process_is_said_of_the_next_one() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    alice, gpu = stage.workload("alice"), stage.uuid(0)
    order = Pending(Order.TRIM, CommandId(7), 0.0, 5.0, "memory is short")
    said = {
        "measured": True, "memory_used": {gpu: GIB}, "over_limit_polls": 1.0, "interrupt": order, "wished_bytes": GIB,
        "trim": order, "trimmed": True, "trimmed_at": 0.0, "trim_shows_by": 5.0, "resident_since": 0.0,
        "wanted": Wanted(1, gpu, GIB, GIB, 0.0, 5.0), "answer": MemoryAnswer(0, granted=True, reason="it is free"),
    }  # fmt: skip
    stage.node.state = replace(stage.node.state, workloads={alice.id: replace(alice, **said)})
    stage.node.tell(ev.ProcessExited(stage.node.now, alice.id, alice.process, "it died"))
    assert stage.phase("alice") == "starting"
    new, after = Workload(alice.id, alice.spec, 0.0), stage.workload("alice")
    assert {name: getattr(after, name) for name in said} == {name: getattr(new, name) for name in said}


def test_a_trim_that_is_answered_after_it_was_given_up_is_not_another_one() -> None:
    stage = Stage(1)
    stage.notebook("alice")
    before = stage.workload("alice")
    stage.node.tell(ev.MemoryTrimmed(stage.node.now, before.id, CommandId(7)))
    assert stage.workload("alice") == before


def test_what_a_dead_process_still_holds_on_another_gpu_is_not_held_against_the_next_one() -> None:
    stage = Stage(2)
    stage.node.deaf = True
    stage.notebook("alice", 0.25)
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    left = stage.gpu("alice")
    stage.lingers("alice")
    stage.dies("alice")
    stage.cell_starts("alice")
    assert stage.runs("alice")
    assert stage.gpu("alice") != left
    stage.after(120)
    assert stage.orders("alice") == ["start", "start"]
    assert stage.workload("alice").size_bytes == stage.workload("alice").spec.request_bytes


def test_a_gpu_that_appears_on_a_node_at_rest_is_planned_with_at_once() -> None:
    stage = Stage(1)
    stage.notebook("alice", given_home=(GpuUuid("GPU-7"),))
    stage.after(10)
    assert stage.node.state.settled
    assert stage.reason("alice").kind is Reason.HOME_ELSEWHERE
    new = Gpu(GpuUuid("GPU-7"), 7, "Simulated GPU", TOTAL)
    stage.node.tell(ev.GpusDiscovered(stage.node.now, (*stage.node.state.gpus.values(), new)))
    assert stage.plan("alice").home == (GpuUuid("GPU-7"),)


def test_what_the_daemon_could_not_hear_in_time_is_nobodys_lateness() -> None:
    """It stood still behind its journal's disk: what came meanwhile is read before anybody is hurried for it."""
    stage = handed_on()
    process = lingering(stage)
    stage.node.now += 2 * stage.node.state.policy.stop_timeout_s
    stage.node.tell(ev.DaemonStoodStill(stage.node.now, 2 * stage.node.state.policy.stop_timeout_s))
    stage.node.tell(ev.TimerFired(stage.node.now))
    assert out_of_service(stage.node.state) == {}
    sampled(stage, at=stage.node.now, memory_used_bytes=GIB, unplaced={process: GIB})
    stage.node.now += stage.node.state.policy.stop_timeout_s
    stage.node.tell(ev.TimerFired(stage.node.now))
    assert stage.uuid(0) in out_of_service(stage.node.state)


@pytest.mark.parametrize("heard", [True, False])
def test_no_order_is_overdue_that_the_daemon_could_not_hear_answered(heard: bool) -> None:
    stage = Stage(1)
    stage.notebook("alice")
    stage.node.tell(ev.SuspendRequested(stage.node.now, stage.workload("alice").id, "suspended by its user"))
    pending = stage.workload("alice").pending
    assert pending is not None
    late_s = pending.deadline_at - stage.node.now + 1
    stage.node.now += late_s
    if not heard:
        stage.node.tell(ev.DaemonStoodStill(stage.node.now, late_s))
    stage.node.tell(ev.TimerFired(stage.node.now))
    assert (stage.phase("alice") == "suspending") is not heard
