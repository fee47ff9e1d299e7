"""Nobody has to leave a Gpu for one that comes, or comes back, where there is a way beside all who are on one."""

from __future__ import annotations

import random
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import pytest

from effort import examples
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StartProcess, TrimMemory, WorkloadCommand
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload

TOTAL = 16
SECONDS = 200


class Seen(NamedTuple):
    """A workload as an administrator sees it, in whole GiB; `gpu` is `None` for one that is off."""

    request: int
    held: int
    gpu: GpuUuid | None
    stays_with_its_home: bool


def moves_nobody(gpus: list[GpuUuid], seen: list[Seen], request: int, count: int = 1) -> bool:
    """Whether `count` Gpus have room for `request` beside all who are there, and all homes fit somewhere with it there.

    Every way is tried. Those who never borrow and are on a Gpu have their home there; the others have it anywhere.
    """
    fixed = [one for one in seen if one.gpu is not None and one.stays_with_its_home]
    free = [one for one in seen if one not in fixed]

    def fits(room: dict[GpuUuid, int], number: int) -> bool:
        if min(room.values()) < 0:
            return False
        if number == len(free):
            return True
        size = free[number].request
        return any(fits({**room, gpu: room[gpu] - size}, number + 1) for gpu in gpus)

    beside = {gpu: sum(one.held for one in seen if one.gpu == gpu) for gpu in gpus}
    promised = {gpu: sum(one.request for one in fixed if one.gpu == gpu) for gpu in gpus}
    for wanted in combinations([gpu for gpu in gpus if beside[gpu] + request <= TOTAL], count):
        if fits({gpu: TOTAL - promised[gpu] - request * (gpu in wanted) for gpu in gpus}, 0):
            return True
    return False


def one_exchange_moves_nobody(node: SimulatedNode, comer: Workload) -> bool:
    """Whether `comer`, which is off, has room at home, or would have it elsewhere with one other home changed at most.

    The other one is on the home of `comer`, borrows there, and would be at home there instead.
    """
    others = [w for w in node.state.workloads.values() if w.id != comer.id]
    request = comer.spec.request_bytes

    def beside(uuid: GpuUuid) -> int:
        there = [w for w in others if w.current == (uuid,)]
        return TOTAL * GIB - sum(max(w.held_bytes, w.spec.request_bytes) for w in there)

    def promised(uuid: GpuUuid) -> int:
        return TOTAL * GIB - sum(w.spec.request_bytes for w in others if w.home == (uuid,))

    (home,) = comer.home
    borrowers = [w for w in others if w.current == (home,) and w.home != (home,) and w.spec.may_borrow]
    for uuid in node.state.gpus:
        left, at_home = promised(uuid), promised(home)
        leavers = [w.spec.request_bytes for w in borrowers if w.home == (uuid,)]
        fits = left >= request or any(left + size >= request and at_home >= size for size in leavers)
        if beside(uuid) >= max(request, comer.return_bytes) and fits:
            return True
    return False


class History:
    """Some come, leave, or are sent off their Gpu, the others hold what they like; then one comes, or comes back."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.node = SimulatedNode.of(self.chance.choice([2, 2, 3]), TOTAL * GIB)
        self.ids: list[WorkloadId] = []
        for _ in range(self.chance.randint(2, 6)):
            request = self.chance.choice([2, 4, 4, 6, 8])
            self.ids.append(self._submit(request, self.chance.choice([request, TOTAL, TOTAL])))
        for workload in list(self.ids):
            what = self.chance.random()
            if what < 0.3:
                self.node.tell(ev.SuspendRequested(self.node.now, workload, "suspended by its user"))
            elif what < 0.45:
                self.node.release(workload)
                self.ids.remove(workload)
            self.node.settle()
        for workload in map(self.node.of_workload, self.ids):
            if workload.current:
                self._work(workload)
        self.node.advance(self.chance.choice([0, 30]))

    def _submit(self, request: int, limit: int, **wanted: object) -> WorkloadId:
        workload = self.node.submit(request_bytes=request * GIB, limit_bytes=limit * GIB, **wanted)
        self.node.settle()
        return workload

    def _work(self, workload: Workload) -> None:
        most = self.node.state.plan[workload.id].allowance_bytes // GIB
        self.node.hold(workload.id, self.chance.randint(1, max(1, most)) * GIB)
        if self.chance.random() < 0.6:
            self.node.start_cell(workload.id)
        self.node.settle()

    def seen(self) -> list[Seen]:
        """Everybody; what somebody holds is at least the request."""
        found = []
        for workload in map(self.node.of_workload, self.ids):
            request, held = workload.spec.request_bytes, max(workload.spec.request_bytes, workload.held_bytes)
            gpu = workload.current[0] if workload.current else None
            found.append(Seen(request // GIB, -(-held // GIB), gpu, not workload.spec.may_borrow))
        return found

    def newcomers(self, request: int, members: int, **wanted: object) -> tuple[bool, list[WorkloadId]]:
        """Whether all of them have started in the end, and who was sent off a Gpu for one."""
        before = len(self.node.history)
        newcomers = {self._submit(request, request, **wanted) for _ in range(members)}
        return self._after(before, newcomers)

    def comes_back(self, workload: WorkloadId) -> tuple[bool, list[WorkloadId]]:
        """As `newcomers`, for one that was off and whose user begins a cell."""
        before = len(self.node.history)
        self.node.start_cell(workload)
        self.node.settle()
        return self._after(before, {workload})

    def _after(self, before: int, newcomers: set[WorkloadId]) -> tuple[bool, list[WorkloadId]]:
        self.node.advance(SECONDS)
        given = [c for _, commands in self.node.history[before:] for c in commands if isinstance(c, WorkloadCommand)]
        sent = [c for c in given if c.cause in newcomers and not isinstance(c, StartProcess | TrimMemory)]
        started = {command.workload for command in given if isinstance(command, StartProcess)}
        return newcomers <= started, [command.workload for command in sent]


WANTED = {
    "one": (1, 1, {}),
    "two": (2, 1, {"kind": Kind.COMMAND, "gpu_count": 2}),
    "elastic": (1, 1, {"kind": Kind.COMMAND, "gpu_count": 1, "gpu_count_max": 3, "requeue": True}),
    "gang": (2, 2, {"kind": Kind.COMMAND, "gang": "g", "gang_size": 2}),
}
"""On how many Gpus there has to be room, how many come, and what each of them asks for besides."""


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("block", range(5))
def test_a_newcomer_moves_nobody_where_there_is_a_way_beside_all(name: str, block: int) -> None:
    there_was_a_way = 0
    count = examples(40)
    gpus, members, wanted = WANTED[name]
    for seed in range(block * count, (block + 1) * count):
        history = History(seed)
        request = history.chance.choice([8, 12, 16, 16] if gpus == 1 else [2, 4, 8, 12])
        if moves_nobody(list(history.node.state.gpus), history.seen(), request, gpus):
            assert history.newcomers(request, members, **wanted) == (True, []), seed
            there_was_a_way += 1
    assert there_was_a_way >= count // 5


@pytest.mark.parametrize("block", range(5))
def test_one_that_comes_back_moves_nobody_where_one_exchange_of_homes_is_enough(block: int) -> None:
    there_was_a_way = 0
    count = examples(60)
    for seed in range(block * count, (block + 1) * count):
        history = History(seed)
        off = [w for w in map(history.node.of_workload, history.ids) if w.home and not w.present and w.within_request]
        if off and one_exchange_moves_nobody(history.node, off[0]):
            assert history.comes_back(off[0].id) == (True, []), seed
            there_was_a_way += 1
    assert there_was_a_way >= count // 5
