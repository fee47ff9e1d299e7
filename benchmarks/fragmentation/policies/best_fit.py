"""BestFit: the node on which the least is left, of CPUs and of GPUs alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fragmentation.policies.scored import BEST, Scored

if TYPE_CHECKING:
    from fragmentation.cluster import Numbers
    from fragmentation.trace import Pod

LARGEST_CPU_MILLI: Final = 128_000
LARGEST_GPU_MILLI: Final = 8_000
"""What the largest node has: the simulator's `MaxSpecCpu` and `MaxSpecGpu`."""


class BestFit(Scored):
    """Half of the weight is on what is left of the CPUs, as a part of the largest node's, half on the GPUs."""

    def score(self, pod: Pod, rows: Numbers) -> Numbers:
        cpu = self.cluster.cpu_left[rows] - pod.cpu_milli
        gpu = self.cluster.gpu_left[rows].clip(min=0).sum(axis=1) - pod.request_milli
        left = cpu / LARGEST_CPU_MILLI * 0.5 + gpu / LARGEST_GPU_MILLI * 0.5
        scores: Numbers = ((1.0 - left) * BEST).astype(np.int64)
        return scores
