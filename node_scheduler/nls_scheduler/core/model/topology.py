"""How Gpus are connected, and which of several to take together. Pure.

The closest set wins before the fullest one: all linked by NVLink, else below one PCIe switch, else on one NUMA node.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid


class Link(StrEnum):
    """What two Gpus talk through."""

    NVLINK = "nvlink"
    SWITCH = "switch"
    NUMA = "numa"
    SYSTEM = "system"


CLOSEST_FIRST: Final = (Link.NVLINK, Link.SWITCH, Link.NUMA, Link.SYSTEM)
MOST_SETS: Final = 64
"""So many sets of Gpus are compared for one workload: a bound on the work, met on nodes with more than 11 Gpus."""


def link(one: Gpu, other: Gpu) -> Link:
    """How `one` and `other` are connected; what the driver does not say counts as the longest way.

    Two slices of one MIG Gpu have no NVLink between them: whatever joins them is no better than their NUMA node.
    """
    told = one.links.get(other.uuid, other.links.get(one.uuid, Link.SYSTEM))
    if one.parent is not None or other.parent is not None:
        told = max(told, Link.NUMA, key=CLOSEST_FIRST.index)
    same_node = one.numa_node is not None and one.numa_node == other.numa_node
    return Link.NUMA if told is Link.SYSTEM and same_node else told


def worst_link(gpus: Sequence[Gpu]) -> Link:
    """The longest way between any two of `gpus`; NVLink for one alone."""
    pairs = (link(one, other) for number, one in enumerate(gpus) for other in gpus[number + 1 :])
    return max(pairs, key=CLOSEST_FIRST.index, default=Link.NVLINK)


def closest(ranked: Sequence[GpuUuid], count: int, gpus: Mapping[GpuUuid, Gpu]) -> tuple[GpuUuid, ...] | None:
    """The `count` of `ranked` (the most wanted first) that are closest together; among equals, the most wanted.

    A process sees one MIG slice at most, so that slices are never part of a set. `None`: there are not so many.
    """
    if count == 1:
        return tuple(ranked[:1]) or None
    return next((found for _, found in sets(ranked, count, gpus)), None)


def sets(
    ranked: Sequence[GpuUuid], count: int, gpus: Mapping[GpuUuid, Gpu]
) -> Iterator[tuple[Link, tuple[GpuUuid, ...]]]:
    """Sets of `count` of `ranked`, the closest first, each with its worst link; at most MOST_SETS per link class."""
    if count == 1:
        yield from ((Link.NVLINK, (uuid,)) for uuid in ranked[:MOST_SETS])
        return
    whole = [uuid for uuid in ranked if gpus[uuid].parent is None]
    if len(whole) < count:
        return
    places = {
        (a, b): CLOSEST_FIRST.index(link(gpus[whole[a]], gpus[whole[b]]))
        for a in range(len(whole))
        for b in range(a + 1, len(whole))
    }
    seen: set[tuple[int, ...]] = set()
    for place, name in enumerate(CLOSEST_FIRST):
        linked = [sum(1 << b for b in range(a + 1, len(whole)) if places[a, b] <= place) for a in range(len(whole))]
        for number, chosen in enumerate(_cliques(linked, count)):
            if number >= MOST_SETS:
                break
            if chosen not in seen:
                seen.add(chosen)
                yield name, tuple(whole[index] for index in chosen)


def _cliques(linked: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Sets of `count` numbers that are linked pairwise, in the order of their numbers.

    `linked[a]` has a bit for each number above `a` that is linked with it.
    """

    def extend(chosen: tuple[int, ...], allowed: int) -> Iterator[tuple[int, ...]]:
        if len(chosen) == count:
            yield chosen
            return
        while allowed.bit_count() >= count - len(chosen):
            number = (allowed & -allowed).bit_length() - 1
            allowed &= allowed - 1
            yield from extend((*chosen, number), allowed & linked[number])

    return extend((), (1 << len(linked)) - 1)
