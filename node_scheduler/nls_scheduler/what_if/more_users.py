"""What if there were more users: each does what another does, a while later. Rows pass by, none is kept for long."""

from __future__ import annotations

import heapq
import re
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final, TypeAlias

from nls_scheduler.what_if.workload_file.rows import Cell, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Numbered: TypeAlias = tuple[int | None, Row]
"""A row with its number in a file; `None`: it is in none."""

ANOTHER_BEGINS_S: Final = 1800.0
"""How much later than the user that they are like another user does everything."""
_AGAIN: Final = re.compile(r" again ([0-9]{1,9})$")


def newcomers(rows: Iterable[Numbered], count: int) -> list[tuple[str, str]]:
    """Who each of `count` more is like, the first ones in turn, and how they are called: as nobody in `rows`."""
    names: dict[str, None] = {}
    taken = 0
    for _, row in rows:
        if not isinstance(row, Cell) and len(names) < count:
            names[row.name] = None
        if (last := _AGAIN.search(row.name)) is not None:
            taken = max(taken, int(last[1]))
    likes = islice(cycle(names), count)
    return [(like, f"{like} again {number}") for number, like in enumerate(likes, taken + 1)]


def with_more_users(rows: Iterable[Numbered], more: Sequence[tuple[str, str]]) -> Iterator[Numbered]:
    """The rows and, in order of time, those of `more`, as `newcomers` names them."""
    likes: dict[str, list[tuple[str, float]]] = {}
    for like, name in more:
        those = likes.setdefault(like, [])
        those.append((name, ANOTHER_BEGINS_S * (1 + len(those))))
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
