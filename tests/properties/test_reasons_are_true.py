"""What is told is so: reasons of the plan against the state, in histories with everything in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from effort import examples
from mixed_histories import SILENCE_FROM, WIDE_FROM, drawn
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.workload import Phase
from properties.test_histories import Histories
from properties.test_queue_histories import QueueHistories

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

THERE = (Reason.AT_HOME, Reason.AT_HOME_WITH_BURST, Reason.BORROWS)


def untrue(state: NodeState) -> Iterator[str]:
    """What is told and is not so."""
    for workload in state.workloads.values():
        why = state.plan[workload.id].reason
        if not workload.takes_part or (workload.phase is Phase.SUSPENDING and why == workload.last_reason):
            continue  # why an order was given is told until it is carried out
        for said in (*_of_places(state, workload, why), *_of_others(state, workload, why), *_of_numbers(state, why)):
            yield f"{said}: {workload.id} {workload.phase} {workload.current} {state.plan[workload.id]}"


def _of_places(state: NodeState, workload: Workload, why: Why) -> Iterator[str]:
    target = state.plan[workload.id].target
    is_off = workload.phase in (Phase.QUEUED, Phase.SUSPENDED)
    if why.kind in THERE and (is_off or (workload.phase is Phase.RUNNING and workload.current != target)):
        yield "it is said to be where it is not"
    if why.kind is Reason.BEING_FREED and not any(_is_being_freed(state, uuid) for uuid in why.gpus):
        yield "nothing is being freed"
    for uuid in _said_to_be_out(why):
        if uuid in state.gpus and state.gpus[uuid].healthy and uuid not in state.stuck:
            yield f"{state.gpus[uuid].label} is said to be out of service"
    if why.kind is Reason.NO_ROOM and Reason.NO_GPU not in (inner.kind for inner in why.because):
        named = {uuid for inner in why.because for uuid in inner.gpus}
        for uuid, gpu in state.gpus.items():
            pool = state.policy.pool_of(gpu)
            opens = pool.enabled and pool.name in workload.spec.pools
            if opens and uuid not in state.usable and uuid not in named:
                yield f"{gpu.label} gets nobody, and that is not said"


def _said_to_be_out(why: Why) -> Iterator[GpuUuid]:
    if why.kind is Reason.OUT_OF_SERVICE:
        yield from why.gpus
    for inner in why.because:
        yield from _said_to_be_out(inner)


def _is_being_freed(state: NodeState, uuid: GpuUuid) -> bool:
    leave = (w.phase is Phase.SUSPENDING or uuid not in state.plan[w.id].target for w in state.on(uuid))
    return bool(state.gpus[uuid].releasing) or any(leave)


def _of_others(state: NodeState, workload: Workload, why: Why) -> Iterator[str]:
    pods = {owner.id for owner in state.claims.owners}
    for mention in why.who:
        if mention.id == workload.id:
            yield "it is said to be in its own way"
        other = state.workloads.get(mention.id)
        if why.kind is Reason.NEEDED and other is None and mention.id not in pods:
            yield f"{mention.name} is said to need a GPU, and is not here"
        if why.kind is Reason.NEEDED and other is not None and not (state.plan[other.id].home or other.present):
            yield f"{mention.name} is said to need a GPU, and has no home"


def _of_numbers(state: NodeState, why: Why) -> Iterator[str]:
    if why.kind is Reason.GANG_INCOMPLETE and why.numbers[0] < 1:
        yield "nobody is missing"
    for inner in why.because if why.kind is Reason.HELD_BACK else ():
        if inner.kind is Reason.QUEUE_LIMIT and abs(inner.numbers[0] - _used(state, *inner.names)) > 1e-3:
            yield f"queue {inner.names[0]!r} has {_used(state, *inner.names)} and not {inner.numbers[0]}"


def _used(state: NodeState, queue: str, pool: str) -> float:
    """What `queue` and those inside it have at home in `pool`, in Gpus as large as that pool's largest."""
    there = {uuid: gpu.memory_total_bytes for uuid, gpu in state.gpus.items() if state.pools[uuid].name == pool}
    parents = {each.name: each.parent for each in state.policy.queues}
    used = 0
    for workload in state.workloads.values():
        name = workload.spec.queue
        at: str | None = name if name in parents and name not in parents.values() else "default"
        chain = [at]
        while (at := parents.get(at or "")) is not None:
            chain.append(at)
        if queue in chain:
            used += workload.spec.request_bytes * sum(uuid in there for uuid in state.plan[workload.id].home)
    return used / max(there.values(), default=1)


@pytest.mark.parametrize(
    "first", [0, 31, 61, 91, 1000, 2000, SILENCE_FROM, SILENCE_FROM + 31, WIDE_FROM, WIDE_FROM + 31]
)
def test_what_is_told_is_so(first: int) -> None:
    for number in range(first, first + examples(12)):
        history = drawn(number)
        machine = (QueueHistories if history.with_queues else Histories)()
        machine.start(**history.start)
        tell = machine.node.tell

        def told(event, tell=tell, node=machine.node):
            commands = tell(event)
            assert node.down or not (found := [*untrue(node.state)]), found
            return commands

        machine.node.tell = told
        for name, arguments in history.events:
            getattr(machine, name)(**arguments)
        machine.teardown()
