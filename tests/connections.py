"""Nodes as they are built: how simulated Gpus are connected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.topology import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.gpu import Gpu


def joined(
    *groups: tuple[Link, tuple[int, ...]], numa: int | None = None
) -> Callable[[tuple[Gpu, ...]], tuple[Gpu, ...]]:
    """Each group of indexes is joined by its link, where there are such Gpus; `numa`: so many in a row share a node."""

    def connect(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        links: dict[int, dict] = {gpu.index: {} for gpu in gpus}
        for link, group in groups:
            there = [index for index in group if index in links]
            for one in there:
                links[one] |= {gpus[other].uuid: link for other in there if other != one}
        node = {gpu.index: None if numa is None else gpu.index // numa for gpu in gpus}
        return tuple(replace(gpu, links=links[gpu.index], numa_node=node[gpu.index]) for gpu in gpus)

    return connect


def pairs(*groups: tuple[int, ...]) -> Callable[[tuple[Gpu, ...]], tuple[Gpu, ...]]:
    """NVLink within each group."""
    return joined(*((Link.NVLINK, group) for group in groups))


def sliced(*indexes: int) -> Callable[[tuple[Gpu, ...]], tuple[Gpu, ...]]:
    """These are MIG slices of one Gpu."""

    def connect(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        return tuple(replace(gpu, parent=GpuUuid("GPU-x")) if gpu.index in indexes else gpu for gpu in gpus)

    return connect
