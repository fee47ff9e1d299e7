"""What if there were more users: each does what another does, a while later. Rows pass by, none is kept for long."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from nls_scheduler.what_if.workload_file.rows import Cell, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Numbered: TypeAlias = tuple[int | None, Row]
"""A row with its number in a file; `None`: it is in none."""

ANOTHER_BEGINS_S: Final = 1800.0
"""How much later than the user that they are like another user does everything."""


def first_names(rows: Iterable[Numbered], most: int) -> list[str]:
    """Whose sessions and commands are the first, in their order."""
    names: dict[str, None] = {}
    for _, row in rows:
        if not isinstance(row, Cell):
            names[row.name] = None
        if len(names) == most:
            break
    return list(names)


def with_more_users(rows: Iterable[Numbered], names: Sequence[str], count: int) -> Iterator[Numbered]:
    """The rows and, in order of time, those of `count` more, who are like those with `names`, in turn."""
    likes: dict[str, list[tuple[str, float]]] = {}
    for number in range(count if names else 0):
        like = names[number % len(names)]
        later_s = ANOTHER_BEGINS_S * (1 + number // len(names))
        likes.setdefault(like, []).append((f"{like} again {number + 1}", later_s))
    later: list[tuple[float, int, Row]] = []
    sequence = 0
    for numbered in rows:
        row = numbered[1]
        while later and later[0][0] <= row.begin_s:
            yield None, heapq.heappop(later)[2]
        yield numbered
        for name, later_s in likes.get(row.name, ()):
            sequence += 1
            again = replace(row, name=name, begin_s=row.begin_s + later_s, end_s=row.end_s + later_s)
            heapq.heappush(later, (again.begin_s, sequence, again))
    while later:
        yield None, heapq.heappop(later)[2]
