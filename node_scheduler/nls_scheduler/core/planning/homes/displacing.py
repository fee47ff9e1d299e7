"""Whose homes are taken for a newcomer whose queue is owed the room, or who goes first in the same queue. Pure.

As few as possible, the least harm first. Who is displaced keeps what is saved and is in line again; on a Gpu, it stays
there until somebody really needs its place. A gang has its homes together, so that all of them go or none.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gangs import key_of
from nls_scheduler.core.planning.homes.queue_ledger import comes_back
from nls_scheduler.core.planning.making_room.victims import harm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.admission import Admission
    from nls_scheduler.core.planning.homes.queue_ledger import Ledger

    Unit = tuple[Workload, ...]
    Homes = list[tuple[GpuUuid, ...]]


_FEW: Final = 3
"""So many who have to go are few."""
_LARGEST: Final = 8
"""They are chosen among so many on a Gpu."""
_TRIED: Final = 16
"""So many ways to choose them are tried, as a bound on the time of a step."""


def displace(admission: Admission, newcomer: Workload) -> bool:
    """Give `newcomer` a home in the first of its pools where it may take enough others'. False: nothing is changed."""
    for attempt in _attempts(admission, newcomer):
        ways = (attempt.succeeds, attempt.succeeds_with_few, attempt.succeeds_smallest_first)
        if any(map(attempt.tried, ways)):
            attempt.send_off()
            return True
    return False


def displace_few(admission: Admission, gang: Sequence[Workload]) -> bool:
    """Give each of `gang` a home, beside all others or where few are enough. False: nothing is changed.

    With those who have the least harm to suffer, their queue may come down to its share before all have one; and who
    brings it down may have to go last, for the last member.
    """
    tried: list[Callable[[], bool]] = []

    def have_homes(members: Sequence[Workload]) -> bool:
        if not members:
            return True
        first, others = members[0], partial(have_homes, members[1:])
        if admission.tried(partial(admission.readmit, first), others):
            return True
        for attempt in _attempts(admission, first) if len(tried) < _TRIED else ():
            for way in attempt.ways_with_few():
                if len(tried) == _TRIED:
                    return False
                tried.append(way)
                if attempt.tried(way, others):
                    attempt.send_off()
                    return True
        return False

    few = len(gang) <= _TRIED and all(w.fewest_gpus == 1 for w in gang)
    may_take = few and next(_attempts(admission, gang[0]), None) is not None
    return may_take and (have_homes(gang) or have_homes(gang[::-1]))


def _attempts(admission: Admission, newcomer: Workload) -> Iterator[_Attempt]:
    """To admit it in one pool after another, wherever there is anybody whom it may displace."""
    if admission.ledger is None:
        return
    for pool in newcomer.spec.pools:
        attempt = _Attempt(admission, admission.ledger, newcomer, pool)
        if attempt.candidates:
            admission.looked_at.places = admission.looked_at.costs = True
            yield attempt


class _Attempt:
    """To admit one newcomer in one pool.

    Attributes:
        candidates: who may be displaced for it, now or once others are, those with the least harm first; each with all
            of its gang.
        taken: who has been, with the homes that they had.
    """

    def __init__(self, admission: Admission, ledger: Ledger, newcomer: Workload, pool: str) -> None:
        self._admission, self._ledger, self._newcomer, self._pool = admission, ledger, newcomer, pool
        self.taken: list[tuple[Unit, Homes]] = []
        self._amount = self._takes()
        own = admission.admitted_in(ledger, ledger.leaf(newcomer))
        lower = [w for w in own if self._is_there(w) and not self._may_never(w)]
        above = ledger.reclaimable(newcomer, pool, self._amount - sum(map(self._held, lower)))
        others = (w for leaf in above for w in admission.admitted_in(ledger, leaf))
        there = (*lower, *filter(self._is_there, others))
        units = {unit[0].id: unit for unit in map(self._unit, there)}
        ever = [unit for unit in units.values() if not any(map(self._may_never, unit))]
        self.candidates = sorted(ever, key=self._harm) if any(map(self._may, ever)) else []

    def _takes(self) -> float:
        """What the newcomer takes of the pool, and all of its gang that has no homes yet: they have them together."""
        newcomer, homes = self._newcomer, self._admission.result.homes
        others = (w for w in self._admission.fellows(newcomer) if w.id not in homes)
        return self._ledger.amount((newcomer, *others), self._pool)

    def _held(self, victim: Workload) -> float:
        """What `victim`, which is at home in the pool, has of it."""
        home = self._admission.result.homes[victim.id]
        return self._ledger.demand(victim.spec, self._pool, self._ledger.pools_of(home)[self._pool])

    def _unit(self, workload: Workload) -> Unit:
        """`workload`, or all of its gang that have homes: who of a gang has no place leaves none to the others."""
        if (key := key_of(workload.spec)) is None:
            return (workload,)
        of_queue = self._admission.admitted_in(self._ledger, self._ledger.leaf(workload))
        return tuple(w for w in of_queue if key_of(w.spec) == key)

    def tried(self, *steps: Callable[[], bool]) -> bool:
        """Whether these succeed one after another; if not nothing is changed."""
        if self._admission.tried(*steps):
            return True
        self.taken.clear()
        return False

    def send_off(self) -> None:
        """Who has been displaced reads for whom, and has a home again where there still is one."""
        for unit, _ in self.taken:
            self._admission.result.moved_for.update({victim.id: self._newcomer.id for victim in unit})
            # Smaller ones may still fit somewhere else.
            if not self._admission.readmit_together(unit):
                self._admission.displaced += unit

    def succeeds(self) -> bool:
        """Admit the newcomer if those who may be taken are enough; else leave a mess, for the caller to undo."""
        if not self._let_in():
            return False
        home = self._free_gpus(self._cost)
        return self._scattered() if home is None else self._admitted_on(home)

    def succeeds_with_few(self) -> bool:
        """As `succeeds`, on one Gpu where few are enough without the others there.

        With those who have the least harm to suffer, their queue may come down to its share before there is enough.
        """
        return any(map(self.tried, self.ways_with_few()[:_TRIED]))

    def ways_with_few(self) -> list[Callable[[], bool]]:
        """To admit the newcomer on one Gpu with few taken from it, the least harm first."""
        gpus = self._admission.open_gpus(self._newcomer, self._pool) if self._newcomer.fewest_gpus == 1 else ()
        ways = [(self._cost(few), uuid, few) for uuid in gpus for few in self._few_on(uuid)]
        ways.sort(key=itemgetter(0, 1))
        return [partial(self._succeeds_with, uuid, few) for _, uuid, few in ways]

    def _few_on(self, uuid: GpuUuid) -> Iterator[list[Unit]]:
        """Any few who are enough on `uuid`, and none of them too many; the smallest is first."""
        admission, homes = self._admission, self._admission.result.homes
        lacking = admission.cost_bytes(self._newcomer, uuid) - admission.free[uuid]
        sizes = [(sum(admission.cost_bytes(w, uuid) for w in u if uuid in homes[w.id]), u) for u in self.candidates]
        there = sorted((one for one in sizes if one[0]), key=itemgetter(0))[-_LARGEST:]
        for count in range(1, _FEW + 1):
            for few in combinations(there, count):
                left = sum(size for size, _ in few) - lacking
                if 0 <= left < few[0][0]:
                    yield [unit for _, unit in few]

    def _succeeds_with(self, uuid: GpuUuid, few: Sequence[Unit]) -> bool:
        needed = self._needed_on(uuid, few)
        for unit in needed or ():
            self._take(unit)
        return needed is not None and self._let_in() and self._admitted_on((uuid,))

    def succeeds_smallest_first(self) -> bool:
        """As `succeeds`, Gpu by Gpu, the smallest first: who brings its queue down to its share may go last."""
        self.candidates.sort(key=lambda unit: _size_bytes([unit]))
        home = self._free_gpus(_size_bytes)
        return home is not None and self._let_in() and self._admitted_on(home)

    def _let_in(self) -> bool:
        """Take as many as have to go before the newcomer's queue lets it in; False: there are not enough."""
        while (obstacle := self._ledger.obstacle(self._newcomer, self._pool)) is not None:
            queue = obstacle.queue
            below = (unit for unit in self._left() if queue in self._ledger.tree.chain(self._ledger.leaf(unit[0])))
            victims = next(below, None)
            if victims is None:
                return False
            self._take(victims)
        return True

    def _admitted_on(self, home: tuple[GpuUuid, ...]) -> bool:
        self._give_back(home)
        self._admission.give(self._newcomer, home)
        return True

    def _left(self) -> Iterator[Unit]:
        """Who may still be displaced: nobody is taken from a queue that has come down to its share meanwhile."""
        homes = self._admission.result.homes
        return (unit for unit in self.candidates if unit[0].id in homes and self._may(unit))

    def _is_there(self, victim: Workload) -> bool:
        """Whether its home is in the pool."""
        return self._pool in self._ledger.pools_of(self._admission.result.homes.get(victim.id, ()))

    def _may_never(self, victim: Workload) -> bool:
        """Whether `victim` cannot be displaced for it, whoever else is."""
        if not victim.spec.preemptible or victim.given_home is not None:
            return True
        ledger, newcomer = self._ledger, self._newcomer
        within_one = ledger.leaf(victim) == ledger.leaf(newcomer)
        return within_one and not ledger.may_displace(newcomer, victim, self._pool, self._amount)

    def _may(self, unit: Unit) -> bool:
        """Whether all of `unit` may be displaced, and one of them is where that helps."""
        return any(map(self._is_there, unit)) and all(
            self._ledger.may_displace(self._newcomer, w, self._pool, self._amount) for w in unit
        )

    def _take(self, unit: Unit) -> None:
        self.taken.append((unit, [self._admission.take(victim) for victim in unit]))

    def _give(self, unit: Unit, homes: Homes) -> None:
        for victim, home in zip(unit, homes, strict=True):
            self._admission.give(victim, home)

    def _harm(self, unit: Unit) -> tuple[object, ...]:
        """The greatest that anybody of `unit` suffers."""
        known = self._admission.harms
        for victim in unit:
            if victim.id not in known:
                known[victim.id] = _harm(self._admission, victim)
        return max(known[victim.id] for victim in unit)

    def _free_gpus(self, cost: Callable[[list[Unit]], object]) -> tuple[GpuUuid, ...] | None:
        """As many Gpus as it spans, one after another the one that costs least; `None`: there are not enough."""
        chosen: list[GpuUuid] = []
        gpus = self._admission.open_gpus(self._newcomer, self._pool)
        while len(chosen) < self._newcomer.fewest_gpus:
            needs = [(uuid, self._needed_on(uuid, self.candidates)) for uuid in gpus if uuid not in chosen]
            options = [(cost(needed), uuid, needed) for uuid, needed in needs if needed is not None]
            if not options:
                return None
            _, uuid, needed = min(options, key=lambda option: option[:2])
            for unit in needed:
                self._take(unit)
            chosen.append(uuid)
        return tuple(chosen)

    def _needed_on(self, uuid: GpuUuid, of: Sequence[Unit]) -> list[Unit] | None:
        """Who of these has to go so that `uuid` has room; `None`: it is not enough when all go who may."""
        admission, homes = self._admission, self._admission.result.homes
        there = [unit for unit in of if any(uuid in homes.get(w.id, ()) for w in unit)]
        on_it = [w for unit in there for w in unit if uuid in homes[w.id]]
        room = admission.free.get(uuid, 0) + sum(admission.cost_bytes(w, uuid) for w in on_it)
        if room < admission.cost_bytes(self._newcomer, uuid):
            return None
        before = len(self.taken)
        while not (enough := admission.has_home_room(self._newcomer, uuid)):
            unit = next((unit for unit in there if unit[0].id in homes and self._may(unit)), None)
            if unit is None:
                break
            self._take(unit)
        needed, self.taken = self.taken[before:], self.taken[:before]
        for unit, old in needed:
            self._give(unit, old)
        return [unit for unit, _ in needed] if enough else None

    def _cost(self, units: list[Unit]) -> tuple[object, ...]:
        """How much harm: commands that would not come back, running cells, priority, bytes to move, how many, which."""
        victims = [w for unit in units for w in unit]
        return (
            sum(w.present and not comes_back(w) for w in victims),
            sum(w.executing or w.kept(self._admission.at) for w in victims),
            max((w.spec.priority for w in victims), default=0),
            sum(w.return_bytes for w in victims if w.present),
            len(victims),
            [self._harm(unit) for unit in units],
        )

    def _give_back(self, home: tuple[GpuUuid, ...]) -> None:
        """Whoever turns out not to be in the way keeps the home, those who would suffer most first."""
        for unit, old in reversed(list(self.taken)):
            self._give(unit, old)
            room = all(self._admission.has_home_room(self._newcomer, uuid) for uuid in home)
            if room and self._ledger.obstacle(self._newcomer, self._pool) is None:
                self.taken.remove((unit, old))
            else:
                for victim in unit:
                    self._admission.take(victim)

    def _scattered(self) -> bool:
        """What may be taken is spread over several Gpus: take all, pack the others closer, give back what is left."""
        for unit in self._left():
            self._take(unit)
        if not self.taken or not self._admission.admit_by_packing(self._newcomer):
            return False
        for unit, old in reversed(list(self.taken)):
            if self._returns(unit, old):
                self.taken.remove((unit, old))
        return True

    def _returns(self, unit: Unit, old: Homes) -> bool:
        """Give `unit` the homes back that they had, if there is still room for all of them."""
        for number, (victim, home) in enumerate(zip(unit, old, strict=True)):
            if not self._admission.may_return(victim, home):
                for before in unit[:number]:
                    self._admission.take(before)
                return False
            self._admission.give(victim, home)
        return True


def _size_bytes(units: list[Unit]) -> int:
    return sum(w.spec.request_bytes for unit in units for w in unit)


def _harm(admission: Admission, victim: Workload) -> tuple[object, ...]:
    """As `victims.harm`; a command that would not come back last, and of those that run the latest arrival first."""
    order = list(harm(victim, admission.at))
    if victim.executing:
        order[4] = 0.0  # since when it was idle says nothing about one that is not
    return (victim.present and not comes_back(victim), *order)
