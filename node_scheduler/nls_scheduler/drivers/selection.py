"""Which of the node's Gpus a daemon serves: `nls up --gpus 0,GPU-…`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final, Self

from nls_scheduler.wire.protocol import VISIBLE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.daemon.ports import GpuInfo


_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Selection:
    """UUIDs, or how they begin, and indexes of the Gpus to serve; `None` serves all.

    A Gpu's UUID selects all its MIG slices.
    """

    wanted: frozenset[str] | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`0,GPU-…`, or `all`. Raises ValueError with one sentence for the user."""
        words = words_of(text)
        if words == [_ALL]:
            return cls()
        if not all(map(may_name_a_gpu, words)):
            raise ValueError(
                f"{text!r} does not name GPUs: write UUIDs or indexes with commas, for example 0,1 "
                "(`nvidia-smi -L` lists them), or all."
            )
        return cls(frozenset(words))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """What `CUDA_VISIBLE_DEVICES` shows, as CUDA reads it: up to a word that names none. All, where it is not set.

        An empty one keeps a process from the Gpus, not a daemon that it starts from serving them. A number is NVML's,
        by the PCI bus, as with CUDA_DEVICE_ORDER=PCI_BUS_ID.
        """
        shown = environ.get(VISIBLE_VARIABLE)
        return cls(frozenset(takewhile(may_name_a_gpu, words_of(shown)))) if shown else cls()

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
        return tuple(gpu for gpu in found if any(_names(word, gpu) for word in self.wanted))

    def unmet(self, found: Sequence[GpuInfo]) -> str | None:
        """One sentence when some wanted Gpus are not among `found`, else `None`."""
        if self.wanted == frozenset():
            return f"{VISIBLE_VARIABLE} shows this daemon no GPU: `nls up --gpus all` serves every one."
        missing = sorted(w for w in self.wanted or () if not any(_names(w, gpu) for gpu in found))
        if not missing:
            return None
        there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in found) or "none"
        return f"This machine has no GPU {' and no GPU '.join(missing)}: it has {there}."


def words_of(text: str) -> list[str]:
    """The words of `CUDA_VISIBLE_DEVICES`, and of `--gpus`: each number is written as its index is."""
    words = (word.strip() for word in text.split(","))
    return [str(int(word)) if word.isdecimal() else word for word in words]


def may_name_a_gpu(word: str) -> bool:
    """Whether it is a number, or the beginning of a UUID."""
    return word.isdecimal() or word.startswith(("GPU-", "MIG-"))


def _names(word: str, gpu: GpuInfo) -> bool:
    if word.isdecimal():
        return word == str(gpu.index)
    return gpu.uuid.startswith(word) or (gpu.parent or "").startswith(word)


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
