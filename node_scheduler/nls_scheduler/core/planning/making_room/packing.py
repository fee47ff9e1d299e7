"""Whether everybody fits when all are placed anew: a bounded search that fills one Gpu after another. Pure.

The largest item left has to go somewhere: it is put on a Gpu, and of what else is left those go with it that fill that
Gpu best (bin completion, Gent and Korf). All Gpus together may stay empty by no more than the room that is too much,
which ends most tries early: so it is strongest where there is hardly any room, as greedy ways are weakest there. First
only the likely fillings are followed; where those lead nowhere, and the budget is not used up, all of them are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid

    _Gpus = tuple[GpuUuid, ...]

BUDGET: Final = 300
"""So many partial fillings are looked at: a bound on the time of a step."""
_LIKELY: Final = 3
"""So many ways to fill a Gpu are likely: the first that are found, with the largest sizes that go together.

The budget is better spent on the next Gpu: of 2,218 packings of random histories 1,609 are found with three, where 496
were with the fullest four of sixty, and more budget.
"""
_MANY: Final = 1 << 30


class Item(NamedTuple):
    """Somebody to be placed: what it takes, the Gpus that it may have, and the one that is best among equals."""

    size_bytes: int
    gpus: frozenset[GpuUuid]
    best: GpuUuid | None = None


def cannot_fit(free: Collection[int], sizes: Collection[int]) -> bool:
    """Whether it is plain without a search that there is no way to put `sizes` where `free` is left, both in bytes.

    Together they are too large, or need more Gpus than there are although each is taken for the largest: those above
    half of it need one each, and what is smaller has to fit in beside them (the bound L2 of Martello and Toth).
    """
    room, ordered = max(free, default=0), sorted(sizes)
    sums = [0, *accumulate(ordered)]
    if sums[-1] > sum(free) or (ordered and ordered[-1] > room):
        return True
    half = bisect_right(ordered, room // 2)
    large = len(ordered) - half
    if large > len(free):
        return True
    for place in range(half):
        if place and ordered[place] == ordered[place - 1]:
            continue
        beside = bisect_right(ordered, room - ordered[place])
        gaps = (beside - half) * room - (sums[beside] - sums[half])
        if (len(free) - large) * room < sums[half] - sums[place] - gaps:
            return True
    return False


def pack(
    free: Mapping[GpuUuid, int],
    items: Sequence[Item],
    slots: Mapping[GpuUuid, int] | None = None,
    budget: int = BUDGET,
) -> list[GpuUuid] | None:
    """A Gpu for each of `items`, in their order; `None`: no way was found.

    `free` is what each Gpu has for them, in bytes: below zero nothing helps, as somebody has to go who is none of them.
    `slots` is how many of them it takes, where that is bounded. Of ways that differ only in which of several Gpus that
    are alike takes whom, the one where the most bytes are where they are best.
    """
    if min(free.values(), default=0) < 0 or cannot_fit(free.values(), [item.size_bytes for item in items]):
        return None
    order = sorted(range(len(items)), key=lambda number: (-items[number].size_bytes, number))
    sizes = tuple((items[number].size_bytes, items[number].gpus) for number in order)
    found = _packed(tuple(free.items()), sizes, tuple((slots or {}).items()), budget)
    if found is None:
        return None
    places, alike = found
    where = dict(zip(order, places, strict=True))
    fillings: dict[GpuUuid, list[Item]] = {}
    for number, uuid in where.items():
        fillings.setdefault(uuid, []).append(items[number])
    names = _names(fillings, alike)
    return [names[where[number]] for number in range(len(items))]


def has_no_way(
    free: Mapping[GpuUuid, int], items: Sequence[Item], slots: Mapping[GpuUuid, int], budget: int = BUDGET
) -> bool:
    """Whether all ways were tried within the budget, and none is one. For the arguments see `pack`."""
    if cannot_fit(free.values(), [item.size_bytes for item in items]):
        return True
    sizes = sorted(((item.size_bytes, item.gpus) for item in items), key=lambda size: -size[0])
    packing = _Packing(free, sizes, slots, budget, thorough=True)
    return not packing.place_all() and packing.budget > 0


def _names(fillings: Mapping[GpuUuid, Sequence[Item]], alike: Sequence[Sequence[GpuUuid]]) -> dict[GpuUuid, GpuUuid]:
    """Which Gpu is to take what was put together on one that is alike."""
    names: dict[GpuUuid, GpuUuid] = {}
    for gpus in alike:
        at_best = {
            (old, new): sum(item.size_bytes for item in fillings[old] if item.best == new)
            for old in gpus
            if old in fillings
            for new in gpus
        }
        taken: set[GpuUuid] = set()
        for old, new in sorted(at_best, key=lambda pair: (-at_best[pair], pair[0] != pair[1], pair)):
            if old not in names and new not in taken:
                names[old] = new
                taken.add(new)
    return names


@lru_cache(maxsize=256)  # who waits is looked at after every event, and mostly nothing has changed for it
def _packed(
    free: tuple[tuple[GpuUuid, int], ...],
    sizes: tuple[tuple[int, frozenset[GpuUuid]], ...],
    slots: tuple[tuple[GpuUuid, int], ...],
    budget: int,
) -> tuple[_Gpus, tuple[_Gpus, ...]] | None:
    """As `pack`, for sizes in bytes, the largest first, each with the Gpus that it may have; and which are alike."""
    packing = _Packing(dict(free), sizes, dict(slots), budget)
    if not packing.place_all():
        packing.thorough = True
        if packing.budget <= 0 or not packing.place_all():
            return None
    return tuple(packing.where[number] for number in range(len(sizes))), packing.alike()


@dataclass(slots=True)
class _Packing:
    free: Mapping[GpuUuid, int]
    sizes: Sequence[tuple[int, frozenset[GpuUuid]]]
    slots: Mapping[GpuUuid, int]
    budget: int
    thorough: bool = False
    where: dict[int, GpuUuid] = field(default_factory=dict)
    kind: dict[GpuUuid, int] = field(init=False)
    alike_sizes: list[tuple[int, int]] = field(init=False)
    tightest: list[GpuUuid] = field(init=False)

    def __post_init__(self) -> None:
        """Gpus of one kind can stand for each other: the same room, and for the same sizes; so can equal sizes."""
        sets, kinds = sorted({gpus for _, gpus in self.sizes}, key=sorted), dict[tuple[object, ...], int]()
        alike = {u: (room, self.slots.get(u), *(u in gpus for gpus in sets)) for u, room in self.free.items()}
        self.kind = {uuid: kinds.setdefault(kind, len(kinds)) for uuid, kind in alike.items()}
        ranks = {gpus: rank for rank, gpus in enumerate(sets)}
        self.alike_sizes = [(-size, ranks[gpus]) for size, gpus in self.sizes]
        self.tightest = sorted(self.free, key=lambda uuid: (self.free[uuid], uuid))

    def alike(self) -> tuple[_Gpus, ...]:
        """All Gpus, those of one kind together."""
        kinds: dict[int, list[GpuUuid]] = {}
        for uuid, kind in self.kind.items():
            kinds.setdefault(kind, []).append(uuid)
        return tuple(tuple(gpus) for gpus in kinds.values())

    def place_all(self) -> bool:
        """Place everybody on all Gpus."""
        slack = sum(self.free.values()) - sum([size for size, _ in self.sizes])
        return self.place(list(range(len(self.sizes))), frozenset(self.free), slack)

    def place(self, numbers: list[int], gpus: frozenset[GpuUuid], slack: int) -> bool:
        """Place the sizes of these `numbers`, the largest first, on `gpus`, which are empty."""
        if not numbers:
            return True
        (size, possible), tried = self.sizes[numbers[0]], set[int]()
        for uuid in self.tightest:
            if uuid not in gpus or uuid not in possible or self.kind[uuid] in tried:
                continue
            if self.free[uuid] < size or self.slots.get(uuid, 1) <= 0:
                continue
            tried.add(self.kind[uuid])
            for gap, others in self._fillings(uuid, numbers[1:], self.free[uuid] - size, slack):
                there = {numbers[0], *others}
                self.where.update(dict.fromkeys(there, uuid))
                if self.place([n for n in numbers if n not in there], gpus - {uuid}, slack - gap):
                    return True
                if self.budget <= 0:
                    return False
        return False

    def _fillings(
        self, uuid: GpuUuid, numbers: Sequence[int], gap: int, slack: int
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Who else goes to `uuid`, where `gap` is left, so that no more than `slack` stays empty; and how much does."""
        of, thorough = self.sizes, self.thorough
        fitting = [n for n in numbers if uuid in of[n][1] and of[n][0] <= gap]
        if gap - sum([of[n][0] for n in fitting]) > slack:
            self.budget -= 1
            return []
        if thorough:
            fitting.sort(key=self.alike_sizes.__getitem__)
        sizes = [of[n][0] for n in fitting]
        many, enough = len(sizes), _MANY if thorough else _LIKELY
        below = [-size for size in sizes]  # ascending, as `bisect` wants it
        rest = [*accumulate(reversed(sizes), initial=0)][::-1]
        others = self._others(fitting)
        found: list[tuple[int, int, tuple[int, ...]]] = []

        def fill(begin: int, gap: int, chosen: tuple[int, ...], slots: int) -> None:
            self.budget -= 1
            if gap <= slack:
                found.append((gap, len(chosen), chosen))
            place = bisect_left(below, -gap, begin) if slots > 0 else many
            while place < many and gap - rest[place] <= slack:
                if self.budget <= 0 or len(found) >= enough:
                    return
                fill(place + 1, gap - sizes[place], (*chosen, fitting[place]), slots - 1)
                place = others[place]

        fill(0, gap, (), self.slots.get(uuid, _MANY) - 1)
        found.sort()
        return [(gap, chosen) for gap, _, chosen in found]

    def _others(self, fitting: Sequence[int]) -> list[int]:
        """For each place in `fitting` the next one of another kind: of several alike the first goes."""
        kinds: Sequence[object] = [self.alike_sizes[n] if self.thorough else self.sizes[n][0] for n in fitting]
        others, following = [0] * len(kinds), len(kinds)
        for place in reversed(range(len(kinds))):
            if place + 1 < len(kinds) and kinds[place] != kinds[place + 1]:
                following = place + 1
            others[place] = following
        return others
