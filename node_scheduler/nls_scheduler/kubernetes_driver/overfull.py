"""Homes that are over-full: where a cluster's scheduler counts more than a Gpu has. Reported, never mended. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.kubernetes_driver.first_list import UNKNOWN
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState


@dataclass(frozen=True, slots=True)
class Overfull:
    """One such Gpu.

    Attributes:
        sentence: for the log and the Events.
        tenants: pods of ours that are counted there and have to wait.
    """

    sentence: str
    tenants: tuple[str, ...]


def counted_bytes(state: NodeState, gpu: Gpu) -> int:
    """What is counted on a Gpu: homes that were given, and parts of owners.

    Devices to come are a guess of ours, and so is what is kept back for those of whom nobody knows yet.
    """
    given = sum(w.spec.request_bytes for w in state.workloads.values() if gpu.uuid in (w.given_home or ()))
    return given + sum(owner.bytes for owner in gpu.owners if not owner.expected and owner.id != UNKNOWN)


def overfull(state: NodeState) -> Mapping[GpuUuid, Overfull]:
    """The Gpus that are."""
    found = {}
    for gpu in state.gpus.values():
        counted = counted_bytes(state, gpu)
        if counted <= gpu.memory_total_bytes:
            continue
        at_home = [w for w in state.workloads.values() if gpu.uuid in (w.given_home or ())]
        waiting = [w for w in at_home if not w.home]
        sentence = (
            f"The cluster's scheduler counts {format_bytes(counted)} on {gpu.label} ({gpu.uuid}), which has "
            f"{format_bytes(gpu.memory_total_bytes)}: whoever came last waits until somebody's request ends."
        )
        found[gpu.uuid] = Overfull(sentence, tuple(sorted({w.spec.tenant for w in waiting})))
    return found
