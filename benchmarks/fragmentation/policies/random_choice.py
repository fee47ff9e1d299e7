"""Random: any node that has room, and any of its GPUs that has."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from fragmentation.cluster import Place

if TYPE_CHECKING:
    from fragmentation.cluster import Cluster
    from fragmentation.trace import Pod


class RandomChoice:
    """All nodes with room are equally likely, and so are the GPUs there; whole GPUs are the first that are free."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self._chance = random.Random(f"places {seed}")
        self._all = np.arange(len(cluster.cpu_left))

    def choose(self, pod: Pod) -> Place | None:
        nodes = np.flatnonzero(self.cluster.fitting(pod, self._all))
        if not nodes.size:
            return None
        node = int(nodes[self._chance.randrange(nodes.size)])
        if pod.gpus != 1:
            return Place(node, self.cluster.first_free(node, pod.gpus))
        gpus = np.flatnonzero(self.cluster.gpu_left[node] >= pod.gpu_milli)
        return Place(node, (int(gpus[self._chance.randrange(gpus.size)]),))
