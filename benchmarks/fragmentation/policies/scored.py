"""What policies that score nodes have in common: scores from 0 to 100, the highest wins, then the smallest name.

A node's score for a pod changes only when something on that node does. So scores are kept for each kind of pod, and
worked out again for the nodes that were touched since, all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from fragmentation.cluster import Place

if TYPE_CHECKING:
    from fragmentation.cluster import Cluster, Numbers
    from fragmentation.trace import Pod

BEST: Final = 100
NO_ROOM: Final = -1


class Policy(Protocol):
    """Chooses a place for a pod; `None`: it fits on no node with nobody moving."""

    def choose(self, pod: Pod) -> Place | None: ...


class _Kept:
    """For one kind of pod each node's score and GPU, as they were when so many changes had happened."""

    def __init__(self, nodes: int) -> None:
        self.scores: Numbers = np.full(nodes, NO_ROOM, dtype=np.int64)
        self.gpus: Numbers = np.zeros(nodes, dtype=np.int64)
        self.seen: int | None = None


class Scored:
    """A policy that is one function, `score`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._kept: dict[Pod, _Kept] = {}

    def score(self, pod: Pod, rows: Numbers) -> Numbers:
        """For each of these nodes, which have room, whole numbers from 0 to 100."""
        raise NotImplementedError

    def score_with_gpus(self, pod: Pod, rows: Numbers) -> tuple[Numbers, Numbers]:
        """The scores, and on each node the GPU of which the pod would have a part: the tightest one."""
        return self.score(pod, rows), self.cluster.tightest(pod, rows)

    def choose(self, pod: Pod) -> Place | None:
        """The node with the highest score; a pod with whole GPUs has the first that are free there."""
        kept = self._up_to_date(pod)
        node = int(kept.scores.argmax())
        if kept.scores[node] == NO_ROOM:
            return None
        if pod.gpus == 1:
            return Place(node, (int(kept.gpus[node]),))
        return Place(node, self.cluster.first_free(node, pod.gpus))

    def _up_to_date(self, pod: Pod) -> _Kept:
        kept = self._kept.setdefault(pod, _Kept(len(self.cluster.cpu_left)))
        touched = self.cluster.touched
        rows = np.arange(len(kept.scores)) if kept.seen is None else np.unique(touched[kept.seen :]).astype(np.int64)
        kept.seen = len(touched)
        fitting = self.cluster.fitting(pod, rows)
        kept.scores[rows[~fitting]] = NO_ROOM
        rows = rows[fitting]
        if rows.size:
            kept.scores[rows], kept.gpus[rows] = self.score_with_gpus(pod, rows)
        return kept
