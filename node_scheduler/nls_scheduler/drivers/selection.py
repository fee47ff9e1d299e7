"""Which of the node's Gpus a daemon serves: `nls up --gpus 0,GPU-…`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.daemon.ports import GpuInfo


@dataclass(frozen=True, slots=True)
class Selection:
    """UUIDs and indexes of the Gpus to serve; `None` serves all. A Gpu's UUID selects all its MIG slices."""

    wanted: frozenset[str] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`0,GPU-…`. Raises ValueError with one sentence for the user."""
        wanted = [word.strip() for word in text.split(",")]
        for word in wanted:
            if not (word.isdecimal() or word.startswith(("GPU-", "MIG-"))):
                raise ValueError(
                    f"{text!r} does not name GPUs: write UUIDs or indexes with commas, for example 0,1 "
                    "(`nvidia-smi -L` lists them)."
                )
        return cls(frozenset(str(int(word)) if word.isdecimal() else word for word in wanted))

    def pinned(self, found: Sequence[GpuInfo]) -> Selection:
        """The same of `found`, by UUID instead of by index: who is chosen once is not followed by another."""
        if self.wanted is None:
            return self
        uuids = {str(gpu.index): gpu.uuid for gpu in found}
        return Selection(frozenset(uuids.get(word, word) for word in self.wanted))

    def of(self, found: Sequence[GpuInfo]) -> tuple[GpuInfo, ...]:
        """Those of `found` that are wanted."""
        if self.wanted is None:
            return tuple(found)
        return tuple(gpu for gpu in found if {gpu.uuid, gpu.parent, str(gpu.index)} & self.wanted)

    def unmet(self, found: Sequence[GpuInfo]) -> str | None:
        """One sentence when some wanted Gpus are not among `found`, else `None`."""
        names = {name for gpu in found for name in (gpu.uuid, gpu.parent, str(gpu.index))}
        missing = sorted((self.wanted or frozenset()) - names)
        if not missing:
            return None
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in found) or "none"
        return f"This machine has no GPU {' and no GPU '.join(missing)}: it has {there}."


class Numbers:
    """The index of each Gpu that was ever seen: it keeps it when others come or go, and nobody else gets it."""

    def __init__(self) -> None:
        self._indexes: dict[GpuUuid, int] = {}

    def of(self, found: Sequence[GpuInfo]) -> list[GpuInfo]:
        """`found`, whose indexes are their positions, with the ones that they keep, in their order."""
        for gpu in found:
            if gpu.uuid not in self._indexes:
                taken = set(self._indexes.values())
                self._indexes[gpu.uuid] = next(index for index in count(gpu.index) if index not in taken)
        return sorted((replace(gpu, index=self._indexes[gpu.uuid]) for gpu in found), key=lambda gpu: gpu.index)
