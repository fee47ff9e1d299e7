"""FGD: where the least of what is free becomes a fragment (Weng et al., "Beware of Fragmentation", USENIX ATC 2023).

What a node has left is a fragment for a kind of pod as far as that kind cannot use it: all of it where the node cannot
host such a pod (or the pod wants no GPU), else the GPUs with less left than it asks for. A node's fragments are the
mean over the typical kinds: the most frequent ones that make up 95 % of all pods, weighed by how often they come.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from fragmentation.cluster import NO_GPU
from fragmentation.policies.scored import BEST, Scored
from fragmentation.trace import MILLI

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fragmentation.cluster import Cluster, Numbers
    from fragmentation.trace import Pod

TYPICAL_PART: Final = 0.95


def typical(pods: Sequence[Pod]) -> list[tuple[Pod, int]]:
    """The most frequent kinds with how often they come, until they are 95 % of all pods; alike: the larger first."""
    kinds, seen = [], 0
    for kind in sorted(Counter(pods).items(), key=lambda kind: (kind[1], kind[0]), reverse=True):
        if seen >= TYPICAL_PART * len(pods):
            break
        kinds.append(kind)
        seen += kind[1]
    return kinds


class Fgd(Scored):
    """Scores sigmoid(fragments before - after, in GPUs) times 100; on a node, the GPU with the highest score."""

    def __init__(self, cluster: Cluster, pods: Sequence[Pod]) -> None:
        super().__init__(cluster)
        kinds = typical(pods)
        self._often = np.array([often for _, often in kinds], dtype=np.int64)
        self._cpu, self._gpus, self._milli = np.array([pod for pod, _ in kinds], dtype=np.int64).T

    def fragments(self, cpu_left: Numbers, gpu_left: Numbers) -> Numbers:
        """Thousandths of GPUs times the number of typical pods: whole numbers, so that equal is equal."""
        left = gpu_left[:, :, None]
        enough = left >= self._milli
        hosted = (self._milli > 0) & (enough.sum(axis=1) >= self._gpus) & (cpu_left[:, None] >= self._cpu)
        usable = hosted * (left * enough).sum(axis=1)
        fragments: Numbers = (gpu_left.clip(min=0).sum(axis=1)[:, None] - usable) @ self._often
        return fragments

    def score_with_gpus(self, pod: Pod, rows: Numbers) -> tuple[Numbers, Numbers]:
        cpu_left, gpu_left = self.cluster.cpu_left[rows], self.cluster.gpu_left[rows]
        before = self.fragments(cpu_left, gpu_left)[:, None]
        cpu_left = cpu_left - pod.cpu_milli
        if pod.gpus != 1:
            for row, node in enumerate(rows):
                gpu_left[row, self.cluster.first_free(node, pod.gpus)] = 0
            after = self.fragments(cpu_left, gpu_left)[:, None]
            possible = np.ones_like(after, dtype=np.bool_)
        else:
            columns = gpu_left.shape[1]
            tried = gpu_left[:, None, :] - pod.gpu_milli * np.eye(columns, dtype=np.int64)
            possible = gpu_left >= pod.gpu_milli
            tried = np.where(gpu_left[:, None, :] == NO_GPU, NO_GPU, tried).reshape(-1, columns)
            after = self.fragments(cpu_left.repeat(columns), tried).reshape(-1, columns)
        gained = (before - after) / (int(self._often.sum()) * MILLI)
        scores = np.where(possible, (BEST / (1.0 + np.exp(-gained))).astype(np.int64), -1)
        return scores.max(axis=1), scores.argmax(axis=1)
