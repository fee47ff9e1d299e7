"""Who is where, in one measure or several, and what is left: changes can be taken back until somebody keeps them. Pure.

The same account serves wherever workloads and Gpus are put together; what differs is the capacity and the measures:
requests on paper, what is planned, what is held in fact.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload

    Gpus = tuple[GpuUuid, ...]


class Occupancy:
    """Workloads on Gpus.

    Attributes:
        left: for each measure the bytes that are left on each Gpu, below zero where more is there than it has: one that
            is gone has none.
        places: the Gpus of everybody who is anywhere.
        version: grows with each change.
    """

    def __init__(self, capacity_bytes: Mapping[GpuUuid, int], *measures: Callable[[Workload, GpuUuid], int]) -> None:
        """Nobody is anywhere; each of `measures` says what a workload takes on a Gpu, in bytes."""
        self.left = tuple(defaultdict(int, capacity_bytes) for _ in measures)
        self.places: dict[WorkloadId, Gpus] = {}
        self.version = 0
        self._accounts = tuple(zip(self.left, measures, strict=True))
        self._members: dict[GpuUuid, dict[WorkloadId, Workload]] = defaultdict(dict)
        self._done: list[tuple[Workload, Gpus, bool]] = []

    def put(self, workload: Workload, gpus: Gpus) -> None:
        """`workload` is on `gpus` from now on."""
        key = workload.id
        self.places[key] = gpus
        for uuid in gpus:
            self._members[uuid][key] = workload
            for left, measure in self._accounts:
                left[uuid] -= measure(workload, uuid)
        self.version += 1
        self._done.append((workload, gpus, True))

    def put_all(self, placed: Collection[tuple[Workload, Gpus]]) -> None:
        """As `put` for one after another, in half the time."""
        for workload, gpus in placed:
            self.places[workload.id] = gpus
            for uuid in gpus:
                self._members[uuid][workload.id] = workload
        for left, measure in self._accounts:
            for workload, gpus in placed:
                for uuid in gpus:
                    left[uuid] -= measure(workload, uuid)
        self.version += 1
        self._done += [(workload, gpus, True) for workload, gpus in placed]

    def take(self, workload: Workload) -> Gpus:
        """`workload` is nowhere from now on. Where it was."""
        key = workload.id
        gpus = self.places.pop(key)
        for uuid in gpus:
            del self._members[uuid][key]
            for left, measure in self._accounts:
                left[uuid] += measure(workload, uuid)
        self.version += 1
        self._done.append((workload, gpus, False))
        return gpus

    def members(self, uuid: GpuUuid) -> Collection[Workload]:
        """Who is on `uuid`."""
        return self._members[uuid].values()

    def has_room(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` takes `workload` beside everybody who is there, in every measure."""
        for left, measure in self._accounts:  # noqa: SIM110 - asked so often that a generator would be felt
            if left.get(uuid, -1) < measure(workload, uuid):
                return False
        return True

    @contextmanager
    def having_left(self, bytes_left: Mapping[GpuUuid, int]) -> Iterator[Callable[[Workload, Gpus], None]]:
        """Meanwhile there is so much left, in the one measure; yields what counts somebody there for as long.

        Nobody is anywhere else by that: it is for what would move most of all who are anywhere, only to be taken back.
        """
        ((left, measure),) = self._accounts
        before = dict(left)
        left.update(bytes_left)
        self.version += 1

        def count(workload: Workload, gpus: Gpus) -> None:
            for uuid in gpus:
                left[uuid] -= measure(workload, uuid)

        try:
            yield count
        finally:
            left.clear()
            left.update(before)
            self.version += 1

    def checkpoint(self) -> int:
        """What `roll_back` goes back to."""
        return len(self._done)

    def roll_back(self, checkpoint: int) -> None:
        """Take back, the last first, whatever has changed since `checkpoint`."""
        while len(self._done) > checkpoint:
            workload, gpus, came = self._done.pop()
            if came:
                self.take(workload)
            else:
                self.put(workload, gpus)
            self._done.pop()
