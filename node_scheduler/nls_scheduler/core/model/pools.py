"""Pools: Gpus with rules of their own. Pure.

A Gpu belongs to the first pool that names it, in the order of the configuration; the pool `default` is the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from nls_scheduler.core.model.gpu import Gpu

DEFAULT: Final = "default"


class Placement(StrEnum):
    """Where a burstable workload goes: where it can use most, or where most is used already."""

    SPREAD = "spread"
    BINPACK = "binpack"


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool's rules.

    Attributes:
        name: as users write it.
        gpus: UUIDs (also of a MIG slice's parent), indexes, or product names with `*`.
        enabled: `False`: nothing new is placed here, and who is here may stay.
        placement: spread for burst, or binpack: everybody at home.
        max_workloads_per_gpu: nobody comes to burst where so many are; who is at home may be more. `None`: no cap.
        idle_suspend_s: a notebook that has been idle so long is suspended; `None`: only when somebody wants the room.
        oversubscribe: bound on the sum of home requests, in Gpus per Gpu; above 1.0 an idle notebook's request is there
            on demand.
        freeze_cells: a running cell that has to leave for a guarantee may be frozen, where the driver can do that;
            `None`: as in the default pool.
    """

    name: str = DEFAULT
    gpus: tuple[str, ...] = ()
    enabled: bool = True
    placement: Placement = Placement.SPREAD
    max_workloads_per_gpu: int | None = 5
    idle_suspend_s: float | None = None
    oversubscribe: float = 1.0
    freeze_cells: bool | None = None

    def names(self, gpu: Gpu) -> bool:
        """Whether `gpu` is one of those that it names."""
        return any(
            word in (gpu.uuid, gpu.parent, str(gpu.index)) or (not word.isdecimal() and fnmatchcase(gpu.name, word))
            for word in self.gpus
        )

    def is_open_to(self, names: Collection[str]) -> bool:
        """Whether those who ask for the pools of these `names` may come to it."""
        return self.enabled and self.name in names

    def home_capacity_bytes(self, gpu: Gpu) -> int:
        """How many bytes of requests may have their home on `gpu`."""
        return self.promised_bytes(gpu.capacity_bytes)

    def promised_bytes(self, size_bytes: int) -> int:
        """How much is promised where there is so much."""
        return int(size_bytes * self.oversubscribe)
