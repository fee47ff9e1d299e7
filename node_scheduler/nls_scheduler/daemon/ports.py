"""What the daemon needs from the node: the port that every driver implements.

The contract suite (`tests/contract`) runs against each implementation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId
    from nls_scheduler.core.model.topology import Link


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A Gpu as discovery finds it.

    Attributes:
        uuid: NVML's UUID, `GPU-…` or `MIG-…`.
        index: what people call it; it keeps it while the daemon lives, and no other one gets it.
        name: product name.
        memory_total_bytes: what can be handed out: NVML's total minus what the driver reserves.
        parent: the Gpu that a MIG slice is a part of; `None` for a whole Gpu.
        numa_node: the memory that it is next to; `None`: the driver did not say.
        links: how it is connected to other Gpus of this node; one that is missing is not said.
    """

    uuid: GpuUuid
    index: int
    name: str
    memory_total_bytes: int
    parent: GpuUuid | None = None
    numa_node: int | None = None
    links: Mapping[GpuUuid, Link] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What one Gpu's memory looked like at one moment; `None` means the driver did not say.

    Attributes:
        memory_used_bytes: used by everybody on the Gpu.
        processes: bytes per process; a process whose memory the driver hides has `None`. No mapping at all: the driver
            does not list processes.
        utilisation: 0.0 to 1.0 of the last sample period.
    """

    memory_used_bytes: int | None
    processes: Mapping[ProcessId, int | None] | None = field(default_factory=dict)
    utilisation: float | None = None


class Driver(Protocol):
    """One way to see Gpus. All calls block (a few milliseconds) and are made from one thread."""

    simulated: bool
    context_memory_bytes: int
    """What a CUDA context takes, about: a saved state needs that much more when it comes back."""

    def discover(self) -> Sequence[GpuInfo]:
        """The node's Gpus. An empty sequence means a node without any; `trouble` then says why."""

    def left_out(self) -> frozenset[GpuUuid]:
        """Gpus of this machine that the last `discover` has left out, as this daemon was started without them."""

    def trouble(self) -> str | None:
        """Why the last `discover` found nothing, or not all that was asked for, in one sentence; `None`: it did."""

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        """Memory and processes of each discovered Gpu. A Gpu that is missing from the answer has vanished."""

    def health(self) -> Mapping[GpuUuid, str]:
        """Why a discovered Gpu must not be used, one sentence each; a Gpu that is missing from the answer is healthy.

        A Gpu that was once unhealthy stays so until `return_to_service`.
        """

    def return_to_service(self, gpu: GpuUuid) -> None:
        """An administrator says that `gpu` is well again: forget what has been held against it."""

    def limits_supported(self) -> bool:
        """Whether `limit_memory` works here: the driver itself keeps request and limit, per cgroup."""

    def limit_memory(self, gpu: GpuUuid, cgroup: Path, request_bytes: int, limit_bytes: int | None) -> None:
        """Guarantee `request_bytes` of `gpu` to a cgroup's processes and cap them at `limit_bytes`; `None` lifts both.

        `cgroup` is a directory of cgroup v2. Raises OSError with the driver's reason.
        """

    def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        """Variables that mask a new GPU process to `gpus`, in this order."""

    def close(self, *, in_use: bool = False) -> None:
        """Give back what the driver holds. Idempotent. `in_use`: workloads go on without a daemon and need the Gpus."""
