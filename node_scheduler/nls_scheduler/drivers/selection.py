"""Which of the node's Gpus a daemon serves: `nls up --gpus 0,GPU-…`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

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
