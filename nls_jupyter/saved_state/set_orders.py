"""The order of sets: what a cell made of one, such as rows for its members, fits its members only in this order.

A set goes over its table, and where a member stands in it follows from its hash, the table's size and who came before.
The GPU processes of a kernel hash alike; the rest is kept here. Pickle adds members in the order in which they were met
to a table that grows meanwhile, and of two in three sets of a hundred members another order comes of it.

Members that are told apart by where they are in memory stand elsewhere in each process: nobody can keep their order.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice, takewhile
from operator import is_, ne
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nls_jupyter.saved_state.kinds import hash_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_EMPTY_BYTES: Final = set().__sizeof__()
_ENTRY_BYTES: Final = 16
_SMALLEST: Final = 8
"""So many places are in the set itself."""
_GROWS_FROM: Final = 5
_QUADRUPLED: Final = 50_000
"""Of more members a table is doubled when it grows."""
_LARGEST: Final = 64
"""A table of more places than this for each member is what is left of a much larger set, and is not made again."""
_MOST: Final = 100_000
"""Of so many members the order is found again, which takes a second."""
_LINEAR: Final = 9
_SHIFT: Final = 5
_WORD: Final = 2 * sys.maxsize + 1
_FURTHEST: Final = 100
_SMALL: Final = 128
_TRIES: Final = 200
_TRIES_FOR_A_BETTER_ONE: Final = 20
_ROUNDS: Final = 50
_BUDGET: Final = 20_000


class Order(NamedTuple):
    """A set, how many places its table has, and its members in their order."""

    of: set[Any]
    places: int
    members: tuple[Any, ...]


def to_keep(sets: Iterable[set[Any]]) -> list[Order]:
    """Those of `sets` that can have the same order in another process. A thread of the user's may change them on."""
    orders = [Order(found, places_of(found), tuple(found)) for found in sets if len(found) > 1]
    return [order for order in orders if _may_be_kept(order.members)]


def places_of(found: set[Any]) -> int:
    """How many places its table has (`set_sizeof` of CPython's Objects/setobject.c)."""
    return (found.__sizeof__() - _EMPTY_BYTES) // _ENTRY_BYTES or _SMALLEST


def _may_be_kept(members: Iterable[Any]) -> bool:
    """Whether each has a hash of its own, and not of its place in memory."""
    kinds = set(map(type, members))
    if any(hash_of(kind) is hash_of(object) or issubclass(kind, type) for kind in kinds):
        return False
    return all(_may_be_kept(each) for each in members if type(each) in {tuple, frozenset})


def put_in_order(found: set[Any], places: int, order: Sequence[Any]) -> bool:
    """A set that has come back has its members in that order; false: no way was found, and it is as it was."""
    members, way, is_so = list(found), None, False
    try:
        is_so = members == list(order)
        own = dict(zip(members, members, strict=True))
        if len(members) == len(order) and not (is_so and places_of(found) == places):
            way = _way_to([own[member] for member in order], places)
    except Exception:  # noqa: BLE001 - a hash of the user's fails, or is another one each time
        way = None
    if way is None:
        return is_so
    found.clear()
    _fill(found, way, places)
    return True


def _way_to(members: Sequence[Any], places: int) -> list[Any] | None:
    """How to fill a table so that `members` stand in it in this order; `None`: no way was found.

    Where they may stand is guessed; in a small table, where there are few places behind one, all of it is tried. A way
    without fillers is the better one: the table has no places that were taken once, and what is added later comes to
    where it would have come in a set from which nothing was ever taken out.
    """
    if len(members) > _MOST or places > max(_SMALLEST, _LARGEST * len(members)):
        return None
    likely = _likely_seats(members, places)
    likely_ones = [_fallen_back(likely, members, places), likely] if likely else []
    guesses = chain(likely_ones, _all_seats(members, places) if places <= _SMALL else ())
    found: list[Any] | None = None
    for tries, seats in enumerate(islice(guesses, _TRIES)):
        if found is not None and tries > _TRIES_FOR_A_BETTER_ONE:
            break
        way = _way_into(dict(zip(seats, members, strict=True)), places)
        if way is None or (found is not None and len(way) >= len(found)):
            continue
        trial: set[Any] = set()
        _fill(trial, way, places)
        if len(trial) == len(members) and all(map(is_, trial, members)) and places_of(trial) == places:
            found = way
        if found is not None and len(found) == len(members):
            break
    return found


def _way_into(seats: Mapping[int, Any], places: int) -> list[Any] | None:
    """In which order who stands where has to come; `None`: there is none.

    Who has gone on to another place comes after whoever has those before it, or a `_Filler` that is taken out again.
    """
    after = {seat: set(takewhile(partial(ne, seat), _ways(hash(member), places))) for seat, member in seats.items()}
    try:
        order = list(TopologicalSorter(after).static_order())
    except CycleError:
        return None
    return [seats[seat] if seat in seats else _Filler(seat) for seat in order]


def _all_seats(members: Sequence[Any], places: int) -> Iterator[list[int]]:
    """Every way to give `members` places one behind another, those who stand where they come first before others."""
    ways = [list(dict.fromkeys(islice(_ways(hash(member), places), _FURTHEST))) for member in members]
    budget = _BUDGET

    def seated(number: int, last: int) -> Iterator[list[int]]:
        nonlocal budget
        if number == len(members):
            yield []
            return
        for place in ways[number]:
            budget -= 1
            if budget < 0:
                return
            if last < place <= places - len(members) + number:
                yield from ([place, *others] for others in seated(number + 1, place))

    yield from seated(0, -1)


def _likely_seats(members: Sequence[Any], places: int) -> list[int] | None:
    """A place for each of `members`, one behind another, to which it can come; `None`: none was found.

    Most stand in their first place, or soon behind it. Who has come from far stands where its neighbours leave it room.
    """
    firsts = [hash(member) & (places - 1) for member in members]
    near = _longest_ascent(firsts)
    bounds, bound = [0] * len(firsts), places
    for number in reversed(range(len(firsts))):
        bounds[number] = bound
        if number in near:
            bound = firsts[number] + _LINEAR + 1
    seats, last = list[int](), -1
    for number, member in enumerate(members):
        ways = islice(_ways(hash(member), places), _FURTHEST)
        open_to = [place for place in ways if last < place < bounds[number]]
        if not open_to:
            return None
        last = open_to[0] if number in near else min(open_to)
        seats.append(last)
    return seats


def _fallen_back(likely: Sequence[int], members: Sequence[Any], places: int) -> list[int]:
    """Who stands behind a free place that it looked at before, and that keeps the order, stands there."""
    seats = list(likely)
    for _ in range(_ROUNDS):
        before = list(seats)
        for number, member in enumerate(members):
            first = seats[number - 1] if number else -1
            last = seats[number + 1] if number + 1 < len(seats) else places
            earlier = takewhile(partial(ne, seats[number]), _ways(hash(member), places))
            seats[number] = next((place for place in earlier if first < place < last), seats[number])
        if seats == before:
            break
    return seats


def _ways(hashed: int, places: int) -> Iterator[int]:
    """The places that a member looks at, one after another (`set_add_entry` of CPython's Objects/setobject.c)."""
    mask, perturb = places - 1, hashed & _WORD
    place = hashed & mask
    while True:
        yield from range(place, place + 1 + (_LINEAR if place + _LINEAR <= mask else 0))
        perturb >>= _SHIFT
        place = (place * 5 + 1 + perturb) & mask


def _longest_ascent(numbers: Sequence[int]) -> set[int]:
    """The positions of as many of `numbers` as possible none of which is less than one before it (patience sorting)."""
    tops, at = list[int](), list[int]()
    before: list[int] = []
    for position, number in enumerate(numbers):
        place = bisect_right(tops, number)
        before.append(at[place - 1] if place else -1)
        tops[place : place + 1], at[place : place + 1] = [number], [position]
    found, last = set[int](), at[-1] if at else -1
    while last >= 0:
        found.add(last)
        last = before[last]
    return found


class _Filler:
    """Keeps one place of a table from others."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place

    def __hash__(self) -> int:
        return self.place


def _fill(empty: set[Any], way: Sequence[Any], places: int) -> None:
    """Add to an empty set one after another, where it has so many places from the beginning.

    A dict tells how much room is needed before any of it is added. For few members that is too little, and what is left
    of others that were added with them is places that were taken once: they grow into it, as they first did.
    """
    fillers = [each for each in way if type(each) is _Filler]
    added = 0 if fillers or len(way) >= places // 4 else _grow(empty, way, places)
    if added == 0 and places > _SMALLEST:
        first = way[: places // 2 - 1]
        others = [_Filler(-2 - number) for number in range(max(places // 4, _GROWS_FROM) - len(first))]
        empty.update(dict.fromkeys([*first, *others]))
        fillers += others
    empty.update(way[added:])
    empty.difference_update(fillers)


def _grow(empty: set[Any], way: Sequence[Any], places: int) -> int:
    """How many of `way` have made a table of a quarter of its places grow to them (`set_add_entry`); 0: too few can.

    It is they who come to their first place, whatever their order: those in a table that grows come in its own.
    """
    taken = set[int]()
    for member in way:
        if (first := hash(member) & (places - 1)) in taken:
            break
        taken.add(first)
    small, enough = places // 4, (3 * (places // 4 - 1) + 4) // 5
    added = min(len(taken), enough)
    if small < _SMALLEST or not places // 8 <= added <= _QUADRUPLED:
        return 0
    some = way[: max(small // 4, _GROWS_FROM)] if small > _SMALLEST else ()
    empty.update(dict.fromkeys(some))
    empty.update(way[: added - 1])
    fillers = [_Filler(number) for number in range(enough - added)]
    empty.update(fillers)
    empty.difference_update(fillers)
    empty.add(way[added - 1])
    if places_of(empty) != places:
        empty.clear()
        return 0
    return added
