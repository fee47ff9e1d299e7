"""One sentence each: what the planner promises. README.md says which rule is held by which test."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.invariants import check
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import (
    EndProcess,
    StartProcess,
    StopProcess,
    SuspendProcess,
    TrimMemory,
)
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.recording.of_the_node import record
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.views.sentences import Names, sentence
from stage import TOTAL, Stage

HOUR_S = 3600.0


def cheap(usual: int):
    """Settings of a property that tries so many examples."""
    return settings(max_examples=examples(usual), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def carry_out(node: SimulatedNode, *kinds: type) -> None:
    """Only orders of these kinds are obeyed, at once."""
    while (command := next((c for c in node.pending if isinstance(c, kinds)), None)) is not None:
        node.complete(command)
        node.sample()


sixteenths = st.integers(1, 16)
bursters = st.lists(
    st.tuples(st.integers(1, 8), sixteenths, st.integers(0, 2), st.booleans(), st.integers(0, 5)),
    min_size=1,
    max_size=4,
)


def filled(node: SimulatedNode, demands) -> None:
    """Notebooks that hold what they can get: request and share in sixteenths of a Gpu, priority, a cell, seconds."""
    for request, share, priority, computes, seconds in demands:
        name = node.submit(request_bytes=request * GIB, limit_bytes=16 * GIB, priority=priority)
        node.settle()
        workload = node.of_workload(name)
        if workload.phase is not Phase.RUNNING:
            continue
        free = TOTAL - sum(p.held_bytes for p in node.processes if p.alive and workload.current[0] in p.gpus)
        held = min(share * GIB, free + node.workloads[name].process.held_bytes)
        node.hold(name, max(1, held))
        if computes and name in node.state.workloads and node.of_workload(name).phase is Phase.RUNNING:
            node.start_cell(name)
        node.settle()
        node.advance(float(seconds))


@cheap(25)
@given(st.integers(1, 3), bursters, sixteenths, st.sampled_from([3.0, 30.0]))
def test_a_guarantee_is_there_within_the_deadline_though_nobody_yields(gpus, demands, request, deadline_s) -> None:
    """No cell ends, no suspend and no trim is answered; what the daemon can do by itself is done."""
    policy = Policy(reclaim_deadline_s=deadline_s, stop_grace_s=0.5)
    node = SimulatedNode.of(gpus, TOTAL, policy)
    filled(node, demands)
    node.deaf = True
    owner = node.submit(kind=Kind.COMMAND, request_bytes=request * GIB, limit_bytes=request * GIB)
    asked_at = node.now
    assume(node.of_workload(owner).home)
    for _ in range(50):
        carry_out(node, StartProcess, StopProcess, EndProcess)
        if node.of_workload(owner).phase is Phase.RUNNING:
            break
        node.fire_timer()
    assert node.of_workload(owner).phase is Phase.RUNNING
    assert node.now <= asked_at + deadline_s


def as_written(workload, at: float):
    """The order of victims as it is written: a smaller one goes first."""
    busy = workload.cell_since is not None or (workload.keep_until is not None and workload.keep_until > at)
    held = max(workload.memory_used.values(), default=0)
    since = workload.submitted_at if workload.idle_since is None else workload.idle_since
    request = workload.spec.request_bytes
    over = max(0, held - request)
    return busy, workload.spec.priority, -over, held, since, -workload.submitted_at, workload.id


@cheap(30)
@given(bursters, sixteenths)
def test_victims_of_a_guarantee_are_the_first_in_the_written_order_and_no_more_than_needed(demands, request) -> None:
    node = SimulatedNode.of(1, TOTAL)
    filled(node, demands)
    there = [w for w in node.state.workloads.values() if w.phase is Phase.RUNNING]
    owner = node.submit(kind=Kind.COMMAND, request_bytes=request * GIB, limit_bytes=request * GIB)
    assume(node.of_workload(owner).home)
    carry_out(node, TrimMemory)
    bursting = sorted((w for w in there if w.over_request_bytes > 0), key=lambda w: as_written(w, node.now))
    leaving = [w for w in bursting if not node.state.plan[w.id].target]
    reached = bursting[: bursting.index(leaving[-1]) + 1] if leaving else []
    assert all(node.state.plan[w.id].target for w in there if w not in bursting), "within its request"
    present = {w.id for w in there}
    coming = [w for w in node.state.workloads.values() if w.id not in present and node.state.plan[w.id].target]
    left = sum(w.return_bytes for w in coming) + sum(w.size_bytes for w in there if w not in leaving)
    assert left <= TOTAL
    assert all(left + w.size_bytes > TOTAL for w in leaving), "one less would have done"
    if leaving:  # who comes before the last in the order, and stays, would have been no help
        spared = sum(w.size_bytes for w in reached[:-1] if w not in leaving)
        assert left - spared + leaving[-1].size_bytes > TOTAL, "those before it would have done"


turns = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.floats(0, 20)), min_size=5, max_size=40)


@cheap(15)
@given(turns, st.sampled_from([2.0, 10.0]))
def test_who_holds_a_gpu_for_its_burst_keeps_it_for_its_residency_and_to_the_end_of_its_cell(
    told, min_residency_s
) -> None:
    """Three notebooks that hold 0.6 of the only Gpu each: whoever yields has had its turn."""
    node = SimulatedNode.of(1, TOTAL, Policy(min_residency_s=min_residency_s))
    names = [node.submit(request_bytes=4 * GIB, limit_bytes=16 * GIB) for _ in range(3)]
    node.settle()
    for name in names:
        node.workloads[name].held_bytes, node.workloads[name].saved = 10 * GIB, True
        if node.workloads[name].process is not None:
            node.workloads[name].process.held_bytes = 5 * GIB
        node.tell(ev.StateSaved(node.now, name, 10 * GIB))
    for name in names[1:]:
        node.tell(ev.SuspendRequested(node.now, name, "suspended by its user"))
    node.settle()
    for number, starts, seconds in told:
        name = names[number]
        before, count = node.state, len(node.history)
        if starts != node.workloads[name].executing:
            (node.start_cell if starts else node.finish_cell)(name)
        node.settle()
        node.advance(seconds)
        for event, commands in node.history[count:]:
            for command in commands:
                if isinstance(command, SuspendProcess):
                    was = before.workloads[command.workload]
                    since = was.resident_since
                    if since is not None and was.phase is Phase.RUNNING:
                        assert event.at - since >= before.policy.residency_s(was) - 1e-9, command
    assert all(w.phase in (Phase.RUNNING, Phase.SUSPENDED) for w in node.state.workloads.values())


@cheap(15)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(5, 60)), min_size=5, max_size=60), st.integers(9, 16))
def test_a_large_request_is_passed_by_for_its_starvation_time_and_the_longest_run_at_most(smalls, size) -> None:
    """Small commands come and end at random; the large one waits for the last that was let past."""
    node = SimulatedNode.of(1, TOTAL, Policy(starvation_s=100.0))
    first = node.submit(kind=Kind.COMMAND, request_bytes=8 * GIB, limit_bytes=8 * GIB)
    ends = {first: 30.0}
    node.settle()
    large = node.submit(kind=Kind.COMMAND, request_bytes=size * GIB, limit_bytes=size * GIB)
    for gap, lasts in smalls:
        until = node.now + gap
        for name in [n for n, at in ends.items() if at <= until]:
            node.advance(max(0.0, ends.pop(name) - node.now))
            node.release(name)
            node.settle()
        node.advance(until - node.now)
        name = node.submit(kind=Kind.COMMAND, request_bytes=8 * GIB, limit_bytes=8 * GIB)
        node.settle()
        if node.of_workload(name).phase is Phase.RUNNING:
            ends[name] = node.now + lasts
        else:
            node.release(name)
            node.settle()
    waiting = node.of_workload(large).phase is Phase.QUEUED
    assert not waiting or node.now <= 100.0 + 60.0 + 40.0


@cheap(6)
@given(st.lists(st.tuples(st.integers(5, 90), st.integers(5, 90)), min_size=15, max_size=40), st.integers(0, 4))
def test_nobody_moves_for_burst_more_often_in_an_hour_than_the_policy_says_nor_before_it_has_cooled(
    turns_of_the_owner, most
) -> None:
    """An owner of the other Gpu comes and goes; two bursters use it meanwhile."""
    stage = Stage(2, cool_down_s=20.0, max_moves_per_hour=most)
    stage.notebook("alice", 0.25)
    stage.notebook("bob", 0.25)
    for number, (here, away) in enumerate(turns_of_the_owner):
        stage.command(f"owner-{number}")
        stage.after(here)
        stage.ends(f"owner-{number}")
        stage.after(away)
    moves: dict[str, list[float]] = {}
    for event, commands in stage.node.history:
        for command in commands:
            if isinstance(command, SuspendProcess) and command.reason.kind is Reason.MORE_ROOM:
                moves.setdefault(command.workload, []).append(event.at)
    for times in moves.values():
        assert all(later - earlier >= 20.0 for earlier, later in pairwise(times))
        assert all(sum(at <= t < at + HOUR_S for t in times) <= most for at in times)
    assert most > 0 or not moves


@cheap(40)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.booleans()), min_size=3, max_size=30))
def test_a_notebook_is_suspended_for_idleness_when_its_last_cell_has_ended_so_long_ago_and_never_before(cells) -> None:
    stage = Stage(1, idle_suspend_s=20.0)
    stage.notebook("book")
    idle_since, keep_until = 0.0, 0.0
    for starts, seconds, keeps in cells:
        if starts and not stage.node.workloads[stage.workload("book").id].executing:
            stage.cell_starts("book")
            assert stage.runs("book"), "a cell brings it back"
        elif not starts and stage.node.workloads[stage.workload("book").id].executing:
            stage.cell_ends("book")
            idle_since = stage.node.now
        if keeps:
            keep_until = stage.node.now + 30
            stage.user_keeps("book", 30)
        stage.after(seconds)
        executing = stage.node.workloads[stage.workload("book").id].executing
        due = not executing and stage.node.now >= max(idle_since + 20.0, keep_until)
        if executing or not due:
            assert stage.runs("book") or stage.node.now >= idle_since + 20.0
        if due:
            assert stage.phase("book") == "suspended"


names = ("a", "b", "c")
quotas = st.lists(st.integers(0, 2), min_size=3, max_size=3)
whole_gpus = st.lists(st.tuples(st.sampled_from(names), st.booleans()), min_size=1, max_size=14)


def shares_out(quota, weight, wanted, parent: str | None = None) -> SimulatedNode:
    """Four Gpus, three queues and commands of a whole Gpu each that start again."""
    above = () if parent is None else (Queue(parent, quota={"*": None}),)
    queues = tuple(
        Queue(name, parent if name != "c" else None, quota={"default": float(q)}, over_quota_weight={"default": w})
        for name, q, w in zip(names, quota, weight, strict=True)
    )
    node = SimulatedNode.of(4, TOTAL, Policy(queues=(*above, *queues)))
    for queue, firm in wanted:
        fields = {"priority": 100 if firm else 50, "requeue": True, "queue": queue}
        node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, **fields)
        node.settle()
    node.advance(60)
    return node


@cheap(40)
@given(quotas, st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=3, max_size=3), whole_gpus)
def test_every_queue_has_its_quota_as_far_as_it_asks_and_nothing_is_idle_while_somebody_may_have_it(
    quota, weight, wanted
) -> None:
    assume(sum(quota) <= 4)
    node = shares_out(quota, weight, wanted)
    runs = Counter(w.spec.queue for w in node.state.workloads.values() if w.phase is Phase.RUNNING)
    asked = Counter(queue for queue, _ in wanted)
    soft = Counter(queue for queue, firm in wanted if not firm)
    for name, guaranteed in zip(names, quota, strict=True):
        assert runs[name] >= min(guaranteed, asked[name]), (name, runs)
    able = sum(min(asked[n], soft[n] + min(q, asked[n] - soft[n])) for n, q in zip(names, quota, strict=True))
    assert sum(runs.values()) == min(4, able)


@cheap(60)
@given(
    quotas, st.lists(st.tuples(st.sampled_from(names), st.sampled_from([1, 1, 2, 3, 4]), st.booleans()), max_size=10)
)
def test_no_queue_is_denied_its_quota_for_one_that_has_waited_long_for_more_than_its_share(quota, wanted) -> None:
    """`wanted` has whose each request is, for how many Gpus, and whether it has starved when the next one comes."""
    assume(sum(quota) <= 4)
    node = shares_out(quota, (1.0, 1.0, 1.0), ())
    for queue, gpus, starves in wanted:
        fields = {"gpu_count": gpus, "requeue": True, "queue": queue}
        node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, **fields)
        node.settle()
        node.advance(2 * node.state.policy.starvation_s if starves else 0)
    node.advance(60)
    runs, asked = Counter[str](), Counter(queue for queue, gpus, _ in wanted if gpus == 1)
    for workload in node.state.workloads.values():
        runs[workload.spec.queue or ""] += len(workload.current)
    for name, guaranteed in zip(names, quota, strict=True):
        assert runs[name] >= min(guaranteed, asked[name]), (name, runs)


@cheap(40)
@given(quotas, whole_gpus)
def test_who_is_not_preemptible_is_within_its_quota_and_never_displaced(quota, wanted) -> None:
    assume(sum(quota) <= 4)
    node = shares_out(quota, (1.0, 1.0, 1.0), wanted)
    firm = [w for w in node.state.workloads.values() if not w.spec.preemptible]
    admitted = Counter(w.spec.queue for w in firm if w.home)
    assert all(admitted[name] <= q for name, q in zip(names, quota, strict=True))
    stopped = {c.workload for _, given_ in node.history for c in given_ if isinstance(c, StopProcess)}
    assert not stopped & {w.id for w in firm}


@cheap(30)
@given(st.permutations(["first", "second", "default"]), st.integers(0, 2), st.lists(st.integers(0, 2), max_size=6))
def test_a_home_is_in_the_first_pool_of_the_list_that_has_room(order, count, taken) -> None:
    """One Gpu in each pool; those before have taken some."""
    node = SimulatedNode.of(3, TOTAL, Policy(pools=(Pool("first", ("0",)), Pool("second", ("1",)))))
    own = {"first": 0, "second": 1, "default": 2}
    full = set()
    for number in taken[: count + 1]:
        pool = sorted(own)[number]
        if pool not in full:
            node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, pools=(pool,))
            full.add(pool)
    wanted = order[: count + 1]
    name = node.submit(kind=Kind.COMMAND, request_bytes=TOTAL, limit_bytes=TOTAL, pools=tuple(wanted))
    node.settle()
    expected = next((own[pool] for pool in wanted if pool not in full), None)
    home = [node.state.gpus[uuid].index for uuid in node.of_workload(name).home]
    assert home == ([] if expected is None else [expected])


def test_a_thousand_submissions_in_a_second_wait_in_order_each_with_a_reason() -> None:
    """The plan is made from scratch: a thousand facts and one step lead to what a thousand steps lead to."""
    node = SimulatedNode.of(2, TOTAL)
    spec = WorkloadSpec("train", Kind.COMMAND, 1000, TOTAL, TOTAL)
    state = node.state
    for number in range(1000):
        state = record(state, ev.WorkloadSubmitted(number / 1000, WorkloadId(f"w{number:03}"), spec))
    state, commands = step(state, ev.TimerFired(1.0))
    check(node.state, state, commands)
    started = [c.workload for c in commands if isinstance(c, StartProcess)]
    assert started == ["w000", "w001"]
    assert [state.plan[w].position for w in sorted(state.plan)] == list(range(1, 1001))
    assert {sentence(entry.reason, Names.of(state)) for entry in state.plan.values()} == {
        "at home on GPU 0, 16 GiB guaranteed",
        "at home on GPU 1, 16 GiB guaranteed",
        "no room for 16 GiB on one GPU: GPU 0 is held by train; GPU 1 is held by train",
    }
