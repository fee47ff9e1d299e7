"""What is free on the nodes of a cluster, and who is where: rows of arrays, one row for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fragmentation.trace import GPU_MEMORY_MIB, MILLI

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fragmentation.trace import Node, Pod

    Numbers = NDArray[np.int64]

NO_GPU: Final = -1
"""Left of a GPU that a node does not have: too little for whatever is asked."""


class Place(NamedTuple):
    """A node, and which of its GPUs, by their numbers."""

    node: int
    gpus: tuple[int, ...]


class Resident(NamedTuple):
    """Somebody with a part of a GPU."""

    gpu: int
    gpu_milli: int


class Cluster:
    """Empty nodes to begin with; rows are in the order of `nodes`.

    Attributes:
        cpu_left: thousandths of CPUs, one row for each node.
        gpu_left: thousandths of each GPU, a column for each; `NO_GPU` where there is none.
        gpu_bytes: the memory of one GPU of each node.
        shared: for each node who has a part of a GPU, by the number of its arrival.
        touched: the nodes on which something has changed, in the order in which it did.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.cpu_left: Numbers = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.gpu_left: Numbers = np.where(np.arange(gpus.max()) < gpus[:, None], MILLI, NO_GPU).astype(np.int64)
        self.gpu_bytes = [GPU_MEMORY_MIB[node.model] * 2**20 if node.gpus else 0 for node in nodes]
        self.shared: list[dict[int, Resident]] = [{} for _ in nodes]
        self.touched: list[int] = []

    def fitting(self, pod: Pod, rows: Numbers) -> NDArray[np.bool_]:
        """Which of these nodes have room for the pod with nobody moving."""
        enough = self.cpu_left[rows] >= pod.cpu_milli
        if pod.gpus:
            enough &= (self.gpu_left[rows] >= pod.gpu_milli).sum(axis=1) >= pod.gpus
        return enough

    def tightest(self, pod: Pod, rows: Numbers) -> Numbers:
        """On each of these nodes the GPU with the least left of those that have enough for one part; else any."""
        left = self.gpu_left[rows]
        tightest: Numbers = np.where(left >= pod.gpu_milli, left, MILLI + 1).argmin(axis=1)
        return tightest

    def first_free(self, node: int, gpus: int) -> tuple[int, ...]:
        """The first so many GPUs of a node that nobody has any part of."""
        return tuple(np.flatnonzero(self.gpu_left[node] == MILLI)[:gpus].tolist())

    def put(self, number: int, pod: Pod, place: Place) -> None:
        """The pod that came as the `number`th is there from now on."""
        self.cpu_left[place.node] -= pod.cpu_milli
        for gpu in place.gpus:
            self.gpu_left[place.node, gpu] -= pod.gpu_milli
            if pod.gpu_milli < MILLI:
                self.shared[place.node][number] = Resident(gpu, pod.gpu_milli)
        self.touched.append(place.node)

    def move(self, node: int, moves: dict[int, int]) -> int:
        """Residents of a node get other GPUs of it, all at once; says how many thousandths of GPUs that moves."""
        moved = 0
        for number, gpu in moves.items():
            old = self.shared[node][number]
            self.gpu_left[node, old.gpu] += old.gpu_milli
            self.gpu_left[node, gpu] -= old.gpu_milli
            self.shared[node][number] = Resident(gpu, old.gpu_milli)
            moved += old.gpu_milli
        self.touched.append(node)
        return moved
