"""Room for a pod that fits nowhere: pods with a part of a GPU move to other GPUs of their own node.

Whether there is a way on a node at all is decided by placing all its pods anew, and who has to move by the scheduler's
own search (`making_room`); of all nodes the one is taken where the fewest bytes move. Nobody who has whole GPUs moves,
nobody leaves its node, and nobody moves before a pod comes that fits on no node as they are.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fragmentation.cluster import Place
from fragmentation.trace import MILLI
from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.planning.making_room.cheapest_moves import Piece
from nls_scheduler.core.planning.making_room.make_room import Demand, make_room
from nls_scheduler.core.planning.making_room.packing import Item, pack

if TYPE_CHECKING:
    from fragmentation.cluster import Cluster, Numbers
    from fragmentation.trace import Pod

EXACT: Final = 200_000
"""Partial fillings that are looked at before a node counts as full: on the published trace some hundred are enough."""


class Room(NamedTuple):
    """Where a pod can go once some residents of that node, by the numbers of their arrivals, are on other GPUs."""

    place: Place
    moves: dict[int, int]
    moved_bytes: int


class InsideNodes:
    """Remembers of each node what came of each demand for its GPUs, until something on it changes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._seen = 0
        nothing = np.iinfo(np.int64).max
        self._too_large: dict[int, Numbers] = defaultdict(lambda: np.full(len(cluster.cpu_left), nothing))
        self._nothing = nothing
        self._rooms: list[dict[tuple[int, ...], Room | None]] = [{} for _ in cluster.cpu_left]

    def choose(self, pod: Pod) -> Room | None:
        """The node where the fewest bytes move, among equals the first; `None`: no way was found on any."""
        best: Room | None = None
        for least_bytes, node in self._candidates(pod):
            if best is not None and least_bytes >= best.moved_bytes:
                break
            known = self._rooms[node]
            if pod[1:] not in known:
                known[pod[1:]] = self._room(pod, node)
            room = known[pod[1:]]
            if room is None:
                self._too_large[pod.gpus][node] = pod.gpu_milli
            elif best is None or room.moved_bytes < best.moved_bytes:
                best = room
        return best

    def _candidates(self, pod: Pod) -> list[tuple[int, int]]:
        """Nodes with enough left altogether, each with what has to move there at least: those with the least first."""
        cluster = self.cluster
        for node in set(cluster.touched[self._seen :]):
            self._rooms[node].clear()
            for too_large in self._too_large.values():
                too_large[node] = self._nothing
        self._seen = len(cluster.touched)
        left = cluster.gpu_left.clip(min=0)
        possible = (cluster.cpu_left >= pod.cpu_milli) & (left.sum(axis=1) >= pod.request_milli)
        possible &= self._too_large[pod.gpus] > pod.gpu_milli
        lacking = np.sort((pod.gpu_milli - left).clip(min=0), axis=1)[:, : pod.gpus].sum(axis=1)
        nodes = np.flatnonzero(possible)
        return sorted((int(lacking[node]) * cluster.gpu_bytes[node] // MILLI, int(node)) for node in nodes)

    def _room(self, pod: Pod, node: int) -> Room | None:
        """What the scheduler's search says of this node. Its bytes are thousandths here: a node's GPUs are alike."""
        residents = self.cluster.shared[node]
        taken = {resident.gpu for resident in residents.values()}
        left = self.cluster.gpu_left[node].tolist()
        free = {GpuUuid(str(gpu)): room for gpu, room in enumerate(left) if room > 0 or gpu in taken}
        pieces = [
            Piece(
                id=WorkloadId(str(number)),
                gpu=GpuUuid(str(resident.gpu)),
                size_bytes=resident.gpu_milli,
                moved_size_bytes=resident.gpu_milli,
                request_bytes=resident.gpu_milli,
                cost=(0, resident.gpu_milli),
                others=frozenset(free) - {GpuUuid(str(resident.gpu))},
                rank=(-number,),
            )
            for number, resident in residents.items()
        ]
        items = [Item(piece.size_bytes, frozenset(free)) for piece in pieces]
        items += [Item(pod.gpu_milli, frozenset(free))] * pod.gpus
        if pack(dict.fromkeys(free, MILLI), items, budget=EXACT) is None:
            return None
        answer = make_room(free, pieces, Demand(pod.gpu_milli, list(combinations(free, pod.gpus)), {}))
        if answer is None:
            return None
        moves = {int(number): int(gpu) for number, gpu in answer.moves.items()}
        moves = {number: gpu for number, gpu in moves.items() if residents[number].gpu != gpu}
        moved_milli = sum(residents[number].gpu_milli for number in moves)
        gpus = tuple(sorted(int(gpu) for gpu in answer.gpus))
        return Room(Place(node, gpus), moves, moved_milli * self.cluster.gpu_bytes[node] // MILLI)
