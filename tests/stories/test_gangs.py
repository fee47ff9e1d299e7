from __future__ import annotations

from dataclasses import replace

import pytest

from connections import pairs
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.commands import EndProcess, StopProcess
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, said
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.recording.of_the_node import record
from nls_scheduler.requests import joining
from stage import TOTAL, Stage

KILLED = said("killed by SIGKILL")


def test_a_gang_starts_together_once_the_last_member_has_come() -> None:
    stage = Stage(4)
    stage.gang("g", 3, size=4)
    assert [stage.phase(f"g-{n}") for n in range(3)] == ["queued"] * 3
    assert stage.reason("g-0") == stage.why(Reason.GANG_INCOMPLETE, numbers=[1, 4], names=["g"])
    stage.command("g-3", gang="g", gang_size=4)
    assert stage.runs("g-0", "g-1", "g-2", "g-3")
    assert sorted(stage.gpu(f"g-{n}") for n in range(4)) == [0, 1, 2, 3]


def test_a_gang_of_which_one_has_no_place_sets_nobody_a_deadline() -> None:
    stage = Stage(2, stop_timeout_s=10.0)
    stage.command("stuck")
    stage.lingers("stuck")
    stage.command("job")
    stage.ends("stuck")
    stage.node.release(stage.workload("job").id)
    for _ in range(2):
        stage.node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, gang="g", gang_size=2)
    assert stage.plan("job").deadline_at is not None
    stage.node.now += 11.0
    stage.node.fire_timer()
    assert stage.plan("job").deadline_at is None


def test_the_others_of_a_gang_stop_for_one_that_neither_starts_nor_stops() -> None:
    stage = Stage(2, start_timeout_s=100.0, stop_timeout_s=10.0)
    for _ in range(2):
        stage.node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, gang="g", gang_size=2)
    stage.node.complete(stage.node.pending[0])
    for _ in range(2):
        stage.node.fire_timer()
    assert [(command.workload, type(command)) for command in stage.node.pending] == [
        ("w1", StopProcess),
        ("w2", EndProcess),
    ]


def test_a_gang_that_waits_for_a_member_keeps_nobody_from_a_gpu() -> None:
    stage = Stage(2)
    stage.gang("g", 1, size=2)
    stage.command("other")
    assert stage.runs("other")


def test_a_gang_that_waits_for_a_member_takes_nothing_of_another_queue_s_share() -> None:
    stage = Stage(2, queues=tuple(map(Queue, "abc")))
    stage.gang("red", 2, size=3, queue="a")
    for number in range(2):
        stage.command(f"lent-{number}", queue="b", requeue=True)
    stage.command("owed", queue="c")
    assert stage.runs("owed")


def test_a_gang_gets_all_its_gpus_or_none() -> None:
    stage = Stage(2)
    stage.command("single")
    stage.gang("g", 2)
    assert [stage.phase("g-0"), stage.phase("g-1")] == ["queued", "queued"]
    assert [stage.home("g-0"), stage.home("g-1")] == [[], []]
    held = stage.why(Reason.HELD, "single", gpus=[0])
    assert stage.reason("g-1") == stage.why(Reason.NO_ROOM, shares=[1], numbers=[1, 2], names=["g"], because=[held])
    stage.ends("single")
    assert stage.runs("g-0", "g-1")


def test_a_gang_starts_when_all_of_it_has_room_in_fact_and_not_before() -> None:
    stage = Stage(2)
    stage.command("single")
    process = stage.lingers("single")
    stage.ends("single")
    stage.gang("g", 2)
    assert [stage.phase("g-0"), stage.phase("g-1")] == ["queued", "queued"]
    reasons = sorted((stage.reason("g-0"), stage.reason("g-1")), key=lambda why: why.kind)
    freed = stage.why(Reason.BEING_FREED, gpus=[0])
    assert reasons == [stage.why(Reason.GANG_WITHOUT_ROOM, names=["g"]), freed]
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("g-0", "g-1")


def test_a_gang_with_a_dead_member_starts_again_whole_with_the_same_ranks() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    ranks = [gangs.rank(stage.node.state, stage.workload(f"g-{n}")) for n in range(2)]
    stage.dies("g-1")
    assert stage.runs("g-0", "g-1")
    assert stage.orders("g-0") == ["start", "stop", "start"]
    assert stage.orders("g-1") == ["start", "start"]
    assert [gangs.rank(stage.node.state, stage.workload(f"g-{n}")) for n in range(2)] == ranks == [0, 1]
    stopped = next(c.reason for _, given in stage.node.history for c in given if type(c).__name__ == "StopProcess")
    died = stage.why(Reason.GANG_MEMBER_ENDED, "g-1", names=["g"], because=[KILLED])
    assert stopped == stage.why(Reason.GANG_STARTS_AGAIN, names=["g"], because=[died])


def test_a_gang_whose_members_die_again_and_again_is_given_up_whole() -> None:
    """The deaths are the gang's: it does not matter which member dies."""
    stage = Stage(2, max_failures=3)
    stage.gang("g", 2)
    stage.dies("g-0")
    stage.dies("g-1")
    assert stage.runs("g-0", "g-1")
    stage.dies("g-0")
    assert [stage.phase("g-0"), stage.phase("g-1")] == ["failed", "failed"]
    died = stage.why(Reason.GANG_MEMBER_ENDED, "g-0", names=["g"], because=[KILLED])
    assert stage.reason("g-1") == stage.why(Reason.GAVE_UP, numbers=[3], because=[died])
    stage.user_resumes("g-1")
    assert stage.runs("g-0", "g-1")


def test_a_death_after_a_long_run_begins_a_new_row() -> None:
    stage = Stage(2, max_failures=2, start_timeout_s=120.0)
    stage.gang("g", 2)
    for _ in range(4):
        stage.after(121)
        stage.dies("g-0")
        assert stage.runs("g-0", "g-1")


def test_members_that_end_well_leave_the_others_alone() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    stage.ends_well("g-0")
    assert not stage.known("g-0")
    assert stage.runs("g-1")
    assert stage.orders("g-1") == ["start"]


def test_a_gang_of_which_one_has_ended_well_is_given_up_when_another_dies() -> None:
    stage = Stage(3)
    stage.gang("g", 3)
    stage.ends_well("g-0")
    stage.dies("g-1")
    for name in ("g-1", "g-2"):
        assert stage.phase(name) == "failed"
        assert stage.reason(name).kind is Reason.GANG_CANNOT_RESTART
    died = stage.why(Reason.GANG_MEMBER_ENDED, "g-1", names=["g"], because=[KILLED])
    assert stage.reason("g-1") == stage.why(Reason.GANG_CANNOT_RESTART, numbers=[1], names=["g"], because=[died])


def test_a_gang_of_which_one_has_ended_well_is_given_up_when_it_is_stopped() -> None:
    stage = Stage(2)
    stage.gang("g", 3, request=0.5)
    stage.ends_well("g-0")
    stage.ends("g-1")
    assert stage.phase("g-2") == "failed"
    assert stage.reason("g-2").kind is Reason.GANG_CANNOT_RESTART


def test_who_was_stopped_before_another_ended_well_waits_for_no_start() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    done, dead = stage.workload("g-0"), stage.workload("g-1")
    died = record(stage.node.state, ev.ProcessExited(1.0, dead.id, dead.process, "killed by SIGKILL"))
    assert died.workloads[dead.id].phase is Phase.QUEUED
    ended = record(died, ev.ProcessExited(2.0, done.id, done.process, "exited with code 0", code=0))
    assert done.id not in ended.workloads
    assert ended.workloads[dead.id].phase is Phase.FAILED


def test_when_a_member_is_taken_away_the_others_stop_and_wait_for_another() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    stage.ends("g-1")
    assert stage.phase("g-0") == "queued"
    assert stage.reason("g-0") == stage.why(Reason.GANG_INCOMPLETE, numbers=[1, 2], names=["g"])
    stage.command("g-2", gang="g", gang_size=2)
    assert stage.runs("g-0", "g-2")


def test_a_gang_is_put_where_it_is_closest_together() -> None:
    stage = Stage(4, pairs((0, 2), (1, 3)))
    stage.gang("g", 2)
    assert sorted(stage.gpu(f"g-{n}") for n in range(2)) == [0, 2]


def test_a_gang_sends_no_cell_away_while_it_has_room_beside_all() -> None:
    stage = Stage(3)
    stage.notebook("plain", 0.125, 0.125)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.25)
        stage.cell_starts(name)
    stage.holds("bob", 0.5)
    stage.gang("g", 2, request=0.75)
    assert stage.runs("g-0", "g-1", "plain", "alice", "bob")
    assert [stage.orders(name) for name in ("plain", "alice", "bob")] == [["start"]] * 3


def test_a_gang_sends_no_cell_away_to_be_closer_together() -> None:
    stage = Stage(4, pairs((0, 1), (2, 3)))
    stage.notebook("alice")
    stage.command("first")
    stage.command("second")
    stage.notebook("bob")
    for name in ("alice", "bob"):
        stage.cell_starts(name)
    stage.ends("first")
    stage.ends("second")
    assert [stage.gpu(name) for name in ("alice", "bob")] == [0, 3]
    stage.gang("g", 2)
    assert stage.runs("g-0", "g-1", "alice", "bob")
    assert [stage.orders(name) for name in ("alice", "bob")] == [["start"]] * 2


def test_two_users_gangs_of_one_name_are_two_gangs() -> None:
    stage = Stage(2)
    stage.gang("g", 1, size=2, owner=1)
    stage.command("other", gang="g", gang_size=2, owner=2)
    assert [stage.phase("g-0"), stage.phase("other")] == ["queued", "queued"]


def test_two_tenants_gangs_of_one_name_are_two_gangs_although_their_user_ids_are_the_same() -> None:
    stage = Stage(2)
    stage.gang("g", 1, size=2, tenant="pod-a")
    stage.command("other", gang="g", gang_size=2, tenant="pod-b")
    assert [stage.phase("g-0"), stage.phase("other")] == ["queued", "queued"]
    stage.command("g-1", gang="g", gang_size=2, tenant="pod-a")
    assert stage.runs("g-0", "g-1")
    assert [gangs.rank(stage.node.state, stage.workload(name)) for name in ("g-0", "g-1", "other")] == [0, 1, 0]
    assert gangs.fellows(stage.node.state, stage.workload("other")) == []


def test_a_gang_that_is_full_refuses_nobody_of_another_tenant() -> None:
    stage = Stage(2)
    stage.gang("g", 2, tenant="pod-a")
    state, member = stage.node.state, stage.workload("g-0").spec
    assert joining.refusal(member, state.workloads.values(), state.gpus.values(), state.policy) is not None
    other = replace(member, tenant="pod-b", gang_size=1)
    assert joining.refusal(other, state.workloads.values(), state.gpus.values(), state.policy) is None


def test_a_gang_waits_for_a_member_on_its_way_out_before_it_starts_with_another_one() -> None:
    stage = Stage(4)
    stage.gang("red", 2)
    stage.node.release(stage.workload("red-0").id)
    fields = {"kind": stage.workload("red-1").spec.kind, "request_bytes": TOTAL, "limit_bytes": TOTAL}
    stage._ids["red-2"] = stage.node.submit(name="red-2", gang="red", gang_size=2, **fields)
    stage.completes("red-1")
    assert [stage.phase(f"red-{n}") for n in (1, 2)] == ["queued", "queued"]
    stage.completes("red-0")
    stage.node.settle()
    assert stage.runs("red-1", "red-2")


def test_nobody_takes_the_room_of_a_member_while_its_gang_starts() -> None:
    """What is being released leaves room for one of two; a gang that has begun to start is not cut in half."""
    stage = Stage(2)
    stage.command("filler")
    stage.command("leaver", 0.25)
    stage.lingers("leaver")
    stage.ends("leaver")
    stage.ends("filler")
    stage.node.tell(ev.MemorySampled(stage.node.now, {}))
    for name, size, gang in (("red-0", 1.0, "red"), ("other", 0.5, None), ("red-1", 0.5, "red")):
        fields = {"request_bytes": int(size * TOTAL), "limit_bytes": int(size * TOTAL)}
        fields |= {} if gang is None else {"gang": gang, "gang_size": 2}
        stage._ids[name] = stage.node.submit(name=name, kind=Kind.COMMAND, **fields)
    stage.node.sample()
    assert [stage.phase(name) for name in ("red-0", "red-1", "other")] == ["starting", "starting", "queued"]


def test_who_waits_is_given_up_with_its_gang() -> None:
    stage = Stage(2, max_failures=2)
    stage.gang("red", 2, request=0.75)
    process = stage.node.workloads[stage.workload("red-1").id].process
    assert process is not None
    process.held_bytes = TOTAL
    stage.node.sample()
    stage.node.sample()
    assert stage.phase("red-1") == "suspending", "it is stopped for its limit"
    stage.node.kill(stage.workload("red-0").id)
    assert stage.phase("red-0") == "queued"
    stage.completes("red-1")
    assert (stage.phase("red-0"), stage.phase("red-1")) == ("failed", "failed")
    above = stage.why(Reason.ABOVE_LIMIT, shares=[1, 0.75])
    ended = stage.why(Reason.GANG_MEMBER_ENDED, "red-1", names=["red"], because=[above])
    assert stage.reason("red-0") == stage.why(Reason.GAVE_UP, numbers=[2], because=[ended])


def test_a_queue_s_share_is_taken_back_from_a_whole_gang() -> None:
    stage = Stage(2, queues=tuple(Queue(name, quota={"default": 1.0}) for name in ("a", "b")))
    stage.gang("red", 2, queue="a", requeue=True)
    assert stage.runs("red-0", "red-1")
    stage.command("owed", queue="b")
    assert stage.runs("owed")
    assert [stage.phase(f"red-{n}") for n in range(2)] == ["queued", "queued"]
    stage.ends("owed")
    assert stage.runs("red-0", "red-1")


def test_a_gang_that_is_more_than_its_queue_s_share_takes_nothing_back() -> None:
    """The first of it would be within the share, and the room that they make would do for all of it."""
    stage = Stage(1, queues=(Queue("a"), Queue("b")))
    stage.notebook("small", 0.3, 1.0, queue="b")
    stage.command("large", 0.7, queue="b", requeue=True)
    stage.gang("red", 4, request=0.25, queue="a")
    assert stage.runs("small", "large")
    assert [stage.phase(f"red-{n}") for n in range(4)] == ["queued"] * 4


def test_a_gang_takes_back_what_is_its_queue_s_share_and_no_more_than_that_counts() -> None:
    """Each of it counts once, and in its own pool."""
    pools = (Pool("x", ("0", "1")), Pool("y", ("2",)))
    stage = Stage(3, pools=pools, queues=(Queue("a"), Queue("b")))
    for number in range(4):
        stage.command(f"other-{number}", 0.5, queue="b", requeue=True, pools=("x",))
    wanted = {"gang": "red", "gang_size": 3, "queue": "a"}
    stage.command("red-0", 0.5, pools=("x",), **wanted)
    stage.command("red-1", 0.5, pools=("x",), **wanted)
    stage.command("red-2", 0.25, pools=("y",), **wanted)
    assert stage.runs("red-0", "red-1", "red-2")
    assert [stage.runs(f"other-{number}") for number in range(4)].count(True) == 2


@pytest.mark.parametrize(("requeue", "after_s"), [(True, 0), (False, 28)])
def test_a_gang_leaves_whole_for_a_guarantee_at_once_or_by_the_deadline(*, requeue: bool, after_s: float) -> None:
    """One member holds more than its request where a newcomer has its home; the other is not in anybody's way."""
    stage = Stage(2, reclaim_deadline_s=30.0, stop_grace_s=2.0)
    stage.gang("red", 2, request=0.75, limit=1.0, requeue=requeue)
    stage.holds("red-1", 0.95)
    stage.command("owner", 0.25)
    stage.command("other", 0.25)
    stage.after(max(0, after_s - 1))
    if after_s:
        assert stage.runs("red-0", "red-1")
        assert stage.plan("red-0").deadline_at == stage.plan("red-1").deadline_at == 28.0
        assert stage.cause("red-0") == stage.cause("red-1")
    stage.after(2)
    assert stage.runs("owner", "other")
    for number in range(2):
        assert stage.orders(f"red-{number}")[:2] == ["start", "stop"]


def test_members_that_are_still_starting_do_not_end_one_that_runs_and_would_not_start_again() -> None:
    stage = Stage(2, queues=(Queue("a"), Queue("b", quota={"default": 2.0})), stop_grace_s=2.0)
    for _ in range(2):
        stage.node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, gang="g", gang_size=2, queue="a")
    running, starting = (command.workload for command in stage.node.pending)
    stage.node.complete(stage.node.pending[0])
    owner = stage.node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, queue="b")
    phases = {key: stage.node.state.workloads[key].phase for key in (running, starting)}
    assert phases == {running: Phase.RUNNING, starting: Phase.STARTING}
    stage.node.settle()
    assert stage.node.state.plan[running].deadline_at == stage.node.state.plan[starting].deadline_at == 28.0
    stage.after(27.0)
    assert [stage.node.state.workloads[key].phase for key in (running, starting)] == [Phase.RUNNING] * 2
    stage.after(2.0)
    assert stage.node.state.workloads[owner].phase is Phase.RUNNING


def test_two_members_on_one_gpu_start_when_there_is_room_for_both() -> None:
    stage = Stage(1)
    stage.command("leaver", 0.25)
    process = stage.lingers("leaver")
    stage.ends("leaver")
    stage.gang("red", 2, request=0.5)
    for n in range(2):
        assert stage.phase(f"red-{n}") == "queued"
        assert stage.reason(f"red-{n}") == stage.why(Reason.GANG_WITHOUT_ROOM, names=["red"])
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("red-0", "red-1")


def test_a_gang_that_needs_more_than_its_requests_is_at_home_where_all_of_it_can_be_at_once() -> None:
    """On one Gpu its members would wait for ever, beside a free one, once it is known what they use."""
    stage = Stage(2)
    stage.gang("g", 2, request=0.25, limit=1.0, requeue=True)
    assert stage.home("g-0") == stage.home("g-1") == [0]
    for name in ("g-0", "g-1"):
        stage.allocates(name, 0.45)
    stage.allocates("g-0", 0.6)
    stage.after(60)
    assert stage.runs("g-0", "g-1")
    assert sorted(stage.home("g-0") + stage.home("g-1")) == [0, 1]


def test_a_gang_that_needs_more_keeps_its_homes_where_there_are_no_others() -> None:
    stage = Stage(2)
    stage.gang("g", 2, request=0.25, limit=1.0, requeue=True)
    stage.command("other")
    for name in ("g-0", "g-1"):
        stage.allocates(name, 0.45)
    stage.allocates("g-0", 0.6)
    stage.after(60)
    assert (stage.home("g-0"), stage.home("g-1"), stage.home("other")) == ([0], [0], [1])
    assert not stage.runs("g-0")
    stage.ends("other")
    stage.after(60)
    assert stage.runs("g-0", "g-1")


@pytest.mark.parametrize("first_holds", [True, False])
def test_nobody_of_a_gang_makes_room_for_a_fellow(first_holds: bool) -> None:
    """All of it would stop, and start again as it was."""
    stage = Stage(1)
    stage.gang("red", 2, request=0.5, limit=1.0)
    stage.holds("red-0" if first_holds else "red-1", 0.75)
    stage.after(600)
    assert stage.runs("red-0", "red-1")
    assert all(stage.plan(name).deadline_at is None for name in ("red-0", "red-1"))
    assert stage.node.state.gpus[stage.uuid(0)].pressed_since is None


def test_a_gang_of_which_one_holds_more_than_its_request_leaves_for_others() -> None:
    stage = Stage(1)
    stage.gang("red", 2, request=0.25, limit=1.0, requeue=True)
    stage.holds("red-0", 0.375)
    stage.command("bob", 0.5)
    stage.after(60)
    assert stage.runs("bob")


@pytest.mark.parametrize("came_first", [True, False])
def test_nobody_of_a_gang_is_told_that_it_leaves_for_itself_or_for_a_fellow(came_first: bool) -> None:
    stage = Stage(1)
    if came_first:
        stage.command("other", 0.25)
        stage.after(5)
    stage.gang("red", 2, request=0.375, limit=0.75)
    if not came_first:
        stage.after(5)
        stage.command("other", 0.25)
    stage.after(10)
    stage.holds("red-0", 0.5625)
    assert all(stage.plan(name).deadline_at is not None for name in ("red-0", "red-1"))
    if came_first:
        assert stage.cause("red-0") is stage.cause("red-1") is None
        assert stage.reason("red-0") == stage.why(Reason.BURST_NEEDED_BY_REQUESTS, gpus=[0])
    else:
        assert stage.cause("red-0") == stage.cause("red-1") == "other"
