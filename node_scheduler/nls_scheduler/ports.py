"""What the daemon needs from the node: the port that every driver implements.

The contract suite (`tests/contract`) runs against each implementation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.model import GpuUuid, ProcessId


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A Gpu as discovery finds it.

    Attributes:
        uuid: NVML's UUID, `GPU-…` or `MIG-…`.
        index: position for display only.
        name: product name.
        memory_total_bytes: what can be handed out: NVML's total minus what the driver reserves.
    """

    uuid: GpuUuid
    index: int
    name: str
    memory_total_bytes: int


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What one Gpu's memory looked like at one moment; `None` means the driver did not say.

    Attributes:
        memory_used_bytes: used by everybody on the Gpu.
        processes: bytes per process; a process whose memory the driver hides has `None`.
        utilisation: 0.0 to 1.0 of the last sample period.
    """

    memory_used_bytes: int | None
    processes: Mapping[ProcessId, int | None] = field(default_factory=dict)
    utilisation: float | None = None


class Driver(Protocol):
    """One way to see Gpus. All calls block (a few milliseconds) and are made from one thread."""

    simulated: bool

    def discover(self) -> Sequence[GpuInfo]:
        """The node's Gpus. An empty sequence means a node without any; `why_none` then says why."""

    def why_none(self) -> str | None:
        """One sentence for the user when `discover` found nothing, else `None`."""

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        """Memory and processes of each discovered Gpu. A Gpu that is missing from the answer has vanished."""

    def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        """Variables that mask a new GPU process to `gpus`, in this order."""

    def close(self) -> None:
        """Give back what the driver holds. Idempotent."""
