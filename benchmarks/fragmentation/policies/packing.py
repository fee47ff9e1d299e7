"""Packing: a GPU that others share already, before a free one of a node in use, before one of a node that is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fragmentation.policies.scored import BEST, Scored
from fragmentation.trace import MILLI

if TYPE_CHECKING:
    from fragmentation.cluster import Numbers
    from fragmentation.trace import Pod


class Packing(Scored):
    """100 less a tenth of the percentage left of the shared GPU; from 50 down, and from 33 down, less the free GPUs.

    "Free" looks at GPUs only: a node whose CPUs alone are used is free. For a pod without GPUs all nodes are equal.
    """

    def score(self, pod: Pod, rows: Numbers) -> Numbers:
        if not pod.gpus:
            return np.zeros(rows.size, dtype=np.int64)
        left = self.cluster.gpu_left[rows]
        free = (left == MILLI).sum(axis=1)
        # The tightest that have enough are taken, so a free one only where too few are shared.
        shared = np.sort(np.where((left >= pod.gpu_milli) & (left < MILLI), left, MILLI), axis=1)[:, : pod.gpus]
        free_taken = (shared == MILLI).sum(axis=1)
        sharing = np.maximum(BEST - (shared * 100 // MILLI).sum(axis=1) // 10, BEST // 2)
        on_used_node = np.maximum(BEST // 2 - free_taken, BEST // 3)
        on_free_node = np.maximum(BEST // 3 - free, free)
        scores: Numbers = np.where(free_taken > 0, on_used_node, sharing)
        return np.where(free == (left >= 0).sum(axis=1), on_free_node, scores)
