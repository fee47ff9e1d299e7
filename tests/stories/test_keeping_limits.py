"""Limits are kept, and orders are obeyed: by the supervisor, else by the daemon itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import EndProcess, StopProcess, TrimMemory, WorkloadCommand
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.making_room import rooms
from nls_scheduler.core.simulator import GIB, SimulatedNode

ABOVE_ITS_LIMIT = Why(Reason.ABOVE_LIMIT, bytes=(13 * GIB, 12 * GIB))


@pytest.fixture
def node():
    return SimulatedNode.of()


def sampled_with(node, workload, held_bytes):
    """One sample that shows `workload` with so much; returns the commands it led to."""
    node.workloads[workload].process.held_bytes = held_bytes
    node.workloads[workload].held_bytes = held_bytes
    node.sample()
    return node.history[-1][1]


def a_notebook(node, limit=12):
    workload = node.submit(request_bytes=4 * GIB, limit_bytes=limit * GIB)
    node.settle()
    return workload


def test_one_sample_above_the_limit_is_no_reason_to_act(node):
    book = a_notebook(node)
    assert sampled_with(node, book, 13 * GIB) == ()
    assert sampled_with(node, book, 12 * GIB) == ()
    assert sampled_with(node, book, 13 * GIB) == ()


def test_two_samples_above_the_limit_lead_to_a_trim_that_says_why(node):
    book = a_notebook(node)
    sampled_with(node, book, 13 * GIB)
    (trim, *_) = sampled_with(node, book, 13 * GIB)
    assert isinstance(trim, TrimMemory)
    assert trim.reason == ABOVE_ITS_LIMIT
    assert node.where(book) == "running on 0"


def test_a_notebook_whose_context_takes_up_to_twice_what_it_is_counted_as_is_left_alone(node):
    """With cuBLAS and cuDNN it does, and the notebook has filled what it may to the brim."""
    book = a_notebook(node)
    context_bytes = GIB // 2
    with_context = replace(node.state.workloads[book], context_bytes=context_bytes)
    node.state = replace(node.state, workloads={book: with_context})
    for _ in range(8):
        assert sampled_with(node, book, 12 * GIB + context_bytes) == ()
    sampled_with(node, book, 12 * GIB + context_bytes + 1)
    (trim, *_) = sampled_with(node, book, 12 * GIB + context_bytes + 1)
    assert isinstance(trim, TrimMemory)


def test_one_above_its_limit_on_and_off_is_trimmed_and_then_stopped(node):
    """The trim helps nothing; that it is answered while the notebook is within its limit helps nothing either."""
    book = a_notebook(node)
    ordered = {}
    for pulse in range(1, 8):
        for order in [c for c in sampled_with(node, book, 13 * GIB) if isinstance(c, WorkloadCommand)]:
            ordered[pulse] = type(order)
        sampled_with(node, book, 12 * GIB)
        for command in list(node.pending):
            node.complete(command)
    assert ordered == {3: TrimMemory, 7: StopProcess}


def test_one_that_is_above_its_limit_in_every_third_sample_is_left_alone(node):
    book = a_notebook(node)
    for _ in range(20):
        assert [sampled_with(node, book, size * GIB) for size in (13, 12, 12)] == [(), (), ()]


def test_what_was_sampled_while_nothing_could_be_ordered_is_no_reason_when_it_is_over(node):
    book, other = a_notebook(node), a_notebook(node)
    node.go_down()
    node.come_back()
    node.report(other)
    for _ in range(10):
        assert sampled_with(node, book, 13 * GIB) == ()
    assert sampled_with(node, book, 12 * GIB) == ()
    node.report(book)
    assert node.history[-1][1] == ()


def test_a_notebook_whose_caches_were_the_excess_goes_on(node):
    book = a_notebook(node)
    sampled_with(node, book, 13 * GIB)
    (trim, *_) = sampled_with(node, book, 13 * GIB)
    node.complete(trim)
    for _ in range(5):
        assert sampled_with(node, book, 5 * GIB) == ()
    assert node.where(book) == "running on 0"


def test_a_notebook_that_stays_above_its_limit_is_stopped_even_in_mid_cell_and_comes_back(node):
    book = a_notebook(node)
    node.hold(book, 3 * GIB)
    node.start_cell(book)
    sampled_with(node, book, 13 * GIB)
    (trim, *_) = sampled_with(node, book, 13 * GIB)
    node.complete(trim)
    sampled_with(node, book, 13 * GIB)
    commands = sampled_with(node, book, 13 * GIB)
    assert isinstance(commands[0], StopProcess)
    assert commands[0].reason == ABOVE_ITS_LIMIT
    node.workloads[book].held_bytes = 3 * GIB
    node.settle()
    assert node.where(book) == "running on 1", "there it need not wait until its memory is back"


def test_a_trim_that_is_not_answered_counts_as_done_after_its_time(node):
    book = a_notebook(node)
    sampled_with(node, book, 13 * GIB)
    sampled_with(node, book, 13 * GIB)
    node.pending.clear()
    node.now += node.state.policy.trim_timeout_s
    node.tell(ev.TimerFired(node.now))
    sampled_with(node, book, 13 * GIB)
    commands = sampled_with(node, book, 13 * GIB)
    assert isinstance(commands[0], StopProcess)


def test_a_command_that_is_above_its_limit_each_time_it_starts_is_given_up_beside_others_as_well(node):
    node.submit(request_bytes=10 * GIB, limit_bytes=10 * GIB)
    train = node.submit(kind=Kind.COMMAND, requeue=True, request_bytes=6 * GIB, limit_bytes=6 * GIB)
    for _ in range(2 * node.state.policy.max_failures):
        node.settle()
        if node.workloads[train].process is not None:
            sampled_with(node, train, 8 * GIB)
    assert node.where(train) == "failed"
    assert [type(c) for _, given in node.history for c in given].count(StopProcess) == node.state.policy.max_failures


def test_a_command_above_its_limit_is_stopped_and_does_not_come_back(node):
    command = node.submit(kind=Kind.COMMAND, request_bytes=4 * GIB, limit_bytes=6 * GIB)
    node.settle()
    sampled_with(node, command, 7 * GIB)
    commands = sampled_with(node, command, 7 * GIB)
    assert isinstance(commands[0], StopProcess)
    node.settle()
    assert command not in node.state.workloads


def test_a_notebook_that_breaks_its_limit_again_and_again_is_given_up(node):
    book = a_notebook(node)
    for _ in range(node.state.policy.max_failures):
        for _ in range(2):
            sampled_with(node, book, 13 * GIB)
        for command in list(node.pending):
            node.complete(command)
        if node.workloads[book].process is not None:
            for _ in range(2):
                sampled_with(node, book, 13 * GIB)
        node.workloads[book].held_bytes = GIB
        node.settle()
    assert node.of_workload(book).phase is Phase.FAILED
    gave_up = node.state.plan[book].reason
    assert (gave_up.kind, gave_up.because) == (Reason.GAVE_UP, (ABOVE_ITS_LIMIT,))
    node.tell(ev.ResumeRequested(node.now, book))
    node.settle()
    assert node.where(book) == "running on 0"


@pytest.mark.parametrize("kind", Kind)
def test_a_sample_on_the_way_out_forgives_nobody_who_breaks_its_limit_again_and_again(node, kind):
    greedy = node.submit(kind=kind, request_bytes=4 * GIB, limit_bytes=6 * GIB, requeue=kind is Kind.COMMAND)
    for _ in range(node.state.policy.max_failures):
        node.settle()
        for _ in range(2):
            sampled_with(node, greedy, 7 * GIB)
        (order,) = node.pending
        if isinstance(order, TrimMemory):
            node.complete(order)
            for _ in range(2):
                sampled_with(node, greedy, 7 * GIB)
            (order,) = node.pending
        assert isinstance(order, StopProcess)
        node.sample()
        node.complete(order)
    assert node.of_workload(greedy).phase is Phase.FAILED
    assert node.of_workload(greedy).failures == node.state.policy.max_failures
    gave_up = node.state.plan[greedy].reason
    above = Why(Reason.ABOVE_LIMIT, bytes=(7 * GIB, 6 * GIB))
    assert (gave_up.kind, gave_up.because) == (Reason.GAVE_UP, (above,))


def test_a_stop_that_is_not_obeyed_is_done_by_the_daemon_itself(node):
    book = a_notebook(node)
    node.start_cell(book)
    node.release(book)
    (stop,) = node.pending
    node.now = node.of_workload(book).pending.deadline_at
    commands = node.tell(ev.TimerFired(node.now))
    assert isinstance(stop, StopProcess)
    assert isinstance(commands[0], EndProcess)
    assert commands[0].process == node.workloads[book].process.id
    assert commands[0].reason == Why(Reason.ENDED_BY_DAEMON, because=(stop.reason,))
    node.settle()
    assert book not in node.state.workloads


def test_a_gpu_whose_process_cannot_be_ended_gets_nothing_new(node):
    book = a_notebook(node)
    node.release(book)
    for _ in range(2):  # the stop, then the daemon's own end, both without effect
        node.now = node.of_workload(book).pending.deadline_at + 0.001
        node.tell(ev.TimerFired(node.now))
    node.pending.clear()
    other = node.submit()
    node.settle()
    assert node.where(other) == "running on 1"


def test_the_only_gpu_gets_nothing_new_while_a_process_there_cannot_be_ended():
    node = SimulatedNode.of(1)
    book = node.submit(request_bytes=4 * GIB)
    node.settle()
    node.release(book)
    for _ in range(2):
        node.now = node.of_workload(book).pending.deadline_at + 0.001
        node.tell(ev.TimerFired(node.now))
    node.pending.clear()
    other = node.submit(request_bytes=4 * GIB)
    node.sample()
    assert node.where(other) == "queued"
    assert not node.of_workload(other).home


def out_of_service(node):
    """After every time for which the plan asked to be woken; nothing else happens."""
    node.pending.clear()
    while node.state.timer_at is not None:
        node.fire_timer()
        node.pending.clear()
    return [node.state.gpus[uuid].index for uuid in rooms.out_of_service(node.state)]


def test_a_gpu_whose_process_cannot_be_ended_is_out_of_service_when_the_plan_is_woken_for_that(node):
    book = a_notebook(node)
    node.release(book)
    assert out_of_service(node) == [0]


def test_a_gpu_whose_memory_is_not_let_go_of_is_out_of_service_when_the_plan_is_woken_for_that(node):
    book = a_notebook(node)
    node.workloads[book].process.lingers = True
    node.release(book)
    node.kill(book)
    assert out_of_service(node) == [0]
