"""Who is where, in one measure, and what is left: each change can be taken back, as long as nobody has kept it. Pure.

The same account serves wherever workloads and Gpus are put together; what differs is the capacity and the measure:
requests on paper, what is planned, what is held in fact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload

    Gpus = tuple[GpuUuid, ...]


class Occupancy:
    """Workloads on Gpus.

    Attributes:
        free: bytes that are left on each Gpu, below zero where more is there than it has: one that is gone has none.
        places: the Gpus of everybody who is anywhere.
        version: grows with each change.
    """

    def __init__(self, capacity_bytes: Mapping[GpuUuid, int], measure: Callable[[Workload, GpuUuid], int]) -> None:
        """Nobody is anywhere; `measure` says what a workload takes on a Gpu, in bytes."""
        self.free = dict(capacity_bytes)
        self.places: dict[WorkloadId, Gpus] = {}
        self.version = 0
        self._measure = measure
        self._done: list[tuple[Workload, Gpus, int]] = []

    def put(self, workload: Workload, gpus: Gpus) -> None:
        """`workload` is on `gpus` from now on."""
        self._change(workload, gpus, 1)
        self._done.append((workload, gpus, 1))

    def take(self, workload: Workload) -> Gpus:
        """`workload` is nowhere from now on. Where it was."""
        gpus = self.places[workload.id]
        self._change(workload, gpus, -1)
        self._done.append((workload, gpus, -1))
        return gpus

    def has_room(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` takes `workload` beside everybody who is there."""
        return self.free.get(uuid, -1) >= self._measure(workload, uuid)

    def checkpoint(self) -> int:
        """What `roll_back` goes back to."""
        return len(self._done)

    def roll_back(self, checkpoint: int) -> None:
        """Take back, the last first, whatever has changed since `checkpoint`."""
        while len(self._done) > checkpoint:
            workload, gpus, sign = self._done.pop()
            self._change(workload, gpus, -sign)

    def _change(self, workload: Workload, gpus: Gpus, sign: int) -> None:
        self.version += 1
        if sign > 0:
            self.places[workload.id] = gpus
        else:
            del self.places[workload.id]
        for uuid in gpus:
            self.free[uuid] = self.free.get(uuid, 0) - sign * self._measure(workload, uuid)
