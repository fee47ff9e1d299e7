"""DotProd: the node whose free resources are least like the pod's demand (after Tetris, SIGCOMM 2014).

Both are vectors of CPUs and GPUs, as parts of the largest node's; a node's GPUs are one dimension ("merge"). The larger
their product, the lower the score: the fullest nodes come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fragmentation.policies.best_fit import LARGEST_CPU_MILLI, LARGEST_GPU_MILLI
from fragmentation.policies.scored import BEST, Scored

if TYPE_CHECKING:
    from fragmentation.cluster import Numbers
    from fragmentation.trace import Pod


class DotProduct(Scored):
    """One minus the mean product of the two dimensions; on a node, the tightest GPU."""

    def score(self, pod: Pod, rows: Numbers) -> Numbers:
        cpu = self.cluster.cpu_left[rows] / LARGEST_CPU_MILLI * (pod.cpu_milli / LARGEST_CPU_MILLI)
        gpu = self.cluster.gpu_left[rows].clip(min=0).sum(axis=1) / LARGEST_GPU_MILLI
        product = (cpu + gpu * (pod.request_milli / LARGEST_GPU_MILLI)) / 2
        scores: Numbers = (BEST * (1.0 - product)).astype(np.int64)
        return scores
