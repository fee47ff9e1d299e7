"""Elastic commands: how many Gpus one gets, who gives some back, and when one may have more. Pure.

Its fewest are guaranteed. Those above are its own until somebody else's home needs them: then it starts again on fewer,
if it may be started again; one that may not keeps what it got when it started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.topology import CLOSEST_FIRST, worst_link
from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload, WorkloadSpec


def most(spec: WorkloadSpec) -> int:
    """The most Gpus that it takes."""
    return spec.gpu_count if spec.gpu_count_max is None else spec.gpu_count_max


def counts(spec: WorkloadSpec) -> range:
    """The numbers of Gpus that it can start with, the most wanted first."""
    return range(most(spec), spec.gpu_count - 1, -1)


def spare(workload: Workload, home: Sequence[GpuUuid]) -> int:
    """How many Gpus of `home` it can be told to give back."""
    return max(0, len(home) - workload.spec.gpu_count) if workload.spec.resizable else 0


def givers(
    workloads: Mapping[WorkloadId, Workload], homes: Mapping[WorkloadId, tuple[GpuUuid, ...]], newcomer: Workload
) -> list[Workload]:
    """Who can give Gpus back for `newcomer`: lowest priority first, then who has lost the least by starting again."""
    having = [workloads[key] for key, home in homes.items() if spare(workloads[key], home)]
    return sorted(
        (w for w in having if w.id != newcomer.id and w.given_home is None),
        key=lambda w: (w.spec.priority, w.present, -(w.resident_since or 0.0), -w.submitted_at, w.id),
    )


def grows_at(state: NodeState, workload: Workload, gpu: Gpu) -> float | None:
    """From when on `workload` may have `gpu` besides: at once before it starts; `None`: not as things are.

    A restart costs work, so that it has run, and the Gpu has been nobody's home, for the cool-down.
    """
    if not workload.present:
        return state.at
    if not workload.spec.resizable or workload.phase is not Phase.RUNNING or workload.resident_since is None:
        return None
    if gpu.unclaimed_since is None or gpu.has_foreigners or gpu.unplaced:
        return None
    return max(workload.resident_since, gpu.unclaimed_since) + state.policy.cool_down_s


def nearest(home: Sequence[Gpu], extra: Iterable[Gpu]) -> list[Gpu]:
    """`extra`, those first that are best connected with all of `home`."""
    return sorted(extra, key=lambda gpu: (CLOSEST_FIRST.index(worst_link((*home, gpu))), gpu.index))
