"""Whether everybody fits when all are placed anew: a bounded search that fills one Gpu after another. Pure.

The largest item left has to go somewhere: it is put on a Gpu, and of what else is left those go with it that fill that
Gpu best (bin completion, Gent and Korf). All Gpus together may stay empty by no more than the room that is too much,
which ends most tries early: so it is strongest where there is hardly any room, as greedy ways are weakest there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.model import GpuUuid

BUDGET: Final = 500
"""So many partial fillings are looked at: a bound on the time of a step."""
_FILLINGS: Final = 4
"""So many ways to fill a Gpu are followed, the fullest first, of `_COLLECTED` at most."""
_COLLECTED: Final = 60
_MANY: Final = 1 << 30


class Item(NamedTuple):
    """Somebody to be placed: what it takes, the Gpus that it may have, and the one that is best among equals."""

    size_bytes: int
    gpus: frozenset[GpuUuid]
    best: GpuUuid | None = None


def pack(
    free: Mapping[GpuUuid, int],
    items: Sequence[Item],
    slots: Mapping[GpuUuid, int] | None = None,
    budget: int = BUDGET,
) -> list[GpuUuid] | None:
    """A Gpu for each of `items`, in their order; `None`: no way was found.

    `free` is what each Gpu has for them, in bytes: below zero nothing helps, as somebody has to go who is none of them.
    `slots` is how many of them it takes, where that is bounded.
    """
    slack = sum(free.values()) - sum(item.size_bytes for item in items)
    if min(free.values(), default=0) < 0 or slack < 0:
        return None
    places = _packed(tuple(free.items()), tuple(items), tuple((slots or {}).items()), budget, slack)
    return None if places is None else list(places)


@lru_cache(maxsize=256)  # who waits is looked at after every event, and mostly nothing has changed for it
def _packed(
    free: tuple[tuple[GpuUuid, int], ...],
    items: tuple[Item, ...],
    slots: tuple[tuple[GpuUuid, int], ...],
    budget: int,
    slack: int,
) -> tuple[GpuUuid, ...] | None:
    packing = _Packing(dict(free), items, dict(slots), budget)
    order = sorted(range(len(items)), key=lambda n: (-items[n].size_bytes, n))
    if not packing.place(order, frozenset(packing.free), slack):
        return None
    return tuple(packing.where[number] for number in range(len(items)))


@dataclass(slots=True)
class _Packing:
    free: Mapping[GpuUuid, int]
    items: Sequence[Item]
    slots: Mapping[GpuUuid, int]
    budget: int
    where: dict[int, GpuUuid] = field(default_factory=dict)

    def place(self, numbers: list[int], gpus: frozenset[GpuUuid], slack: int) -> bool:
        """Place the items of these `numbers`, the largest first, on `gpus`, which are empty."""
        if not numbers:
            return True
        first, tried = self.items[numbers[0]], set()
        possible = [u for u in gpus & first.gpus if self.free[u] >= first.size_bytes and self.slots.get(u, 1) > 0]
        for uuid in sorted(possible, key=lambda u: (self.free[u], u != first.best, u)):
            alike = (self.free[uuid], self.slots.get(uuid), uuid if self._is_special(uuid) else None)
            if alike in tried:
                continue
            tried.add(alike)
            for gap, others in self._fillings(uuid, numbers[1:], self.free[uuid] - first.size_bytes, slack):
                there = {numbers[0], *others}
                self.where.update(dict.fromkeys(there, uuid))
                if self.place([n for n in numbers if n not in there], gpus - {uuid}, slack - gap):
                    return True
                if self.budget <= 0:
                    return False
        return False

    def _is_special(self, uuid: GpuUuid) -> bool:
        """Whether some may have `uuid` and not others: then no other Gpu is like it."""
        return any(uuid not in item.gpus for item in self.items)

    def _fillings(
        self, uuid: GpuUuid, numbers: Sequence[int], gap: int, slack: int
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Who else goes to `uuid`, where `gap` is left, so that no more than `slack` stays empty; and how much does."""
        fitting = [n for n in numbers if uuid in self.items[n].gpus and self.items[n].size_bytes <= gap]
        sizes = [self.items[n].size_bytes for n in fitting]
        rest = [0]
        for size in reversed(sizes):
            rest.append(rest[-1] + size)
        rest.reverse()
        found: list[tuple[int, int, tuple[int, ...]]] = []

        def fill(begin: int, gap: int, chosen: tuple[int, ...], slots: int) -> None:
            self.budget -= 1
            if gap <= slack:
                found.append((gap, len(chosen), chosen))
            for place in range(begin, len(fitting) if slots > 0 else begin):
                if self.budget <= 0 or len(found) >= _COLLECTED or gap - rest[place] > slack:
                    return
                size = sizes[place]
                if size <= gap and (place == begin or size != sizes[place - 1]):  # of several alike the first
                    fill(place + 1, gap - size, (*chosen, fitting[place]), slots - 1)

        fill(0, gap, (), self.slots.get(uuid, _MANY) - 1)
        return [(gap, chosen) for gap, _, chosen in sorted(found)[:_FILLINGS]]
