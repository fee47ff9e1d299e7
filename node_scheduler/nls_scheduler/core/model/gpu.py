"""A Gpu, who has a right to it beside our workloads, and memory on its way back, as frozen values. Pure.

Times are seconds of the clock of decisions, carried in by events. Memory is in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Mention
from nls_scheduler.core.model.values import computed_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.topology import Link


@dataclass(frozen=True, slots=True)
class Releasing:
    """Memory of a GPU process that ended, or of what it started, until the driver shows it free.

    Attributes:
        bytes: what it held when last sampled (its request where more was never seen).
        since: when its process ended.
    """

    process: ProcessId
    workload: WorkloadId
    bytes: int
    since: float


@dataclass(frozen=True, slots=True)
class Owner:
    """Somebody whom a cluster's scheduler gave a right to memory here, and whom we do not look after.

    Attributes:
        id: unique on this node.
        name: for people.
        gpus: where its request is counted.
        request_bytes: on each of them; `None`: all of it.
        differs_on: where it has another size than that.
        devices_to_come: how many Gpus more it will own completely, of which nobody knows yet which ones.
    """

    id: str
    name: str
    gpus: tuple[GpuUuid, ...] = ()
    request_bytes: int | None = None
    devices_to_come: int = 0
    differs_on: Mapping[GpuUuid, int | None] = field(default_factory=dict)

    def bytes_on(self, gpu: GpuUuid) -> int | None:
        """Of one of its Gpus; `None`: all of it."""
        return self.differs_on.get(gpu, self.request_bytes)

    @property
    def mention(self) -> Mention:
        """As a reason names it."""
        return Mention(self.id, self.name, "pod")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a cluster's scheduler has given away on this node; on a plain server nothing.

    Attributes:
        owners: those whom we do not look after.
        allocated: Gpus that somebody has already, ours included: no device to come is one of them.
        cordoned: no new pod comes here, and those that are here are to go.
    """

    owners: tuple[Owner, ...] = ()
    allocated: frozenset[GpuUuid] = frozenset()
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class GpuOwner:
    """An owner's part of one Gpu. `expected`: this is the Gpu that is kept free for a device to come."""

    id: str
    name: str
    bytes: int
    expected: bool = False

    @property
    def mention(self) -> Mention:
        """As a reason names it."""
        return Mention(self.id, self.name, "pod")


@dataclass(frozen=True)
class Gpu:
    """One device or MIG slice as known now.

    Attributes:
        memory_total_bytes: what can be handed out.
        healthy: an unhealthy Gpu gets nothing new and is vacated.
        memory_used_bytes: by everybody; `None` when the driver did not say, which stops planning for this Gpu.
        unplaced_bytes: used by processes that nobody placed, as last sampled; they own what they use.
        unplaced: those processes.
        confirmed_bytes: what of that the sample before has shown as well: nobody has to leave for more.
        confirmed: whether the sample before has shown processes that nobody placed as well.
        owners: who has a right to memory here and is not looked after by us.
        releasing: memory on its way back.
        unhealthy_reason: why it is out of service, for people.
        pressed_since: since when requests here do not fit beside what is used.
        parent: the Gpu that a MIG slice is a part of.
        numa_node: the memory that it is next to; `None`: the driver did not say.
        links: how it is connected to others; one that is missing is not said.
        unclaimed_since: since when nobody has a home here.
    """

    uuid: GpuUuid
    index: int
    name: str
    memory_total_bytes: int
    healthy: bool = True
    unhealthy_reason: Why | None = None
    memory_used_bytes: int | None = None
    unplaced_bytes: int = 0
    unplaced: tuple[ProcessId, ...] = ()
    confirmed_bytes: int = 0
    confirmed: bool = False
    owners: tuple[GpuOwner, ...] = ()
    utilisation: float | None = None
    releasing: tuple[Releasing, ...] = ()
    pressed_since: float | None = None
    parent: GpuUuid | None = None
    numa_node: int | None = None
    links: Mapping[GpuUuid, Link] = field(default_factory=dict)
    unclaimed_since: float | None = None

    @computed_once
    def capacity_bytes(self) -> int:
        """What is left for workloads beside those whom we do not look after: what plans are made with.

        One sample may have met a process between two of its names. So a start has to fit beside `foreign_bytes`.
        """
        return max(0, self.memory_total_bytes - max(self.confirmed_bytes, self._owned_bytes))

    @computed_once
    def foreign_bytes(self) -> int:
        """What those whom we do not look after have a right to or use as last sampled, whichever is more.

        An owner's processes are among those that nobody placed: adding both up would count them twice.
        """
        return max(self.unplaced_bytes, self._owned_bytes)

    @property
    def _owned_bytes(self) -> int:
        return min(self.memory_total_bytes, sum(owner.bytes for owner in self.owners)) if self.owners else 0

    @computed_once
    def has_foreigners(self) -> bool:
        """Whether somebody is or is about to be here whom we do not look after: then nobody borrows it."""
        return bool(self.confirmed or self.owners)

    @computed_once
    def home_facts(self) -> tuple[object, ...]:
        """All of it from which homes follow."""
        known = (self.uuid, self.index, self.name, self.healthy, self.memory_total_bytes)
        taken = (self.owners, self.unplaced_bytes, self.confirmed_bytes, self.confirmed, bool(self.unplaced))
        return (*known, *taken, self.unclaimed_since, self.parent, self.numa_node, self.links)

    @property
    def label(self) -> str:
        """How people name it."""
        return f"GPU {self.index}"
