"""Whose homes are taken for a newcomer whose queue is owed the room, or who goes first in the same queue. Pure.

As few as possible, the least harm first. Who is displaced keeps what is saved and is in line again; on a Gpu, it stays
there until somebody really needs its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.ledger import comes_back
from nls_scheduler.victims import harm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.admitting import Admission
    from nls_scheduler.ids import GpuUuid
    from nls_scheduler.ledger import Ledger
    from nls_scheduler.workload import Workload


def displace(admission: Admission, newcomer: Workload) -> bool:
    """Give `newcomer` a home in the first of its pools where it may take enough others'. False: nothing is changed."""
    if admission.ledger is None:
        return False
    for pool in newcomer.spec.pools:
        attempt = _Attempt(admission, admission.ledger, newcomer, pool)
        if not attempt.candidates:
            continue
        restore = admission.snapshot()
        if not attempt.succeeds():
            restore()
            continue
        for victim, _ in attempt.taken:
            admission.result.moved_for[victim.id] = newcomer.id
        # Smaller ones may still fit somewhere else.
        admission.displaced += [victim for victim, _ in attempt.taken if not admission.readmit(victim)]
        return True
    return False


class _Attempt:
    """To admit one newcomer in one pool.

    Attributes:
        candidates: who may be displaced for it as things are at the beginning, those with the least harm first.
        taken: who has been, with the homes that they had.
    """

    def __init__(self, admission: Admission, ledger: Ledger, newcomer: Workload, pool: str) -> None:
        self._admission, self._ledger, self._newcomer, self._pool = admission, ledger, newcomer, pool
        self.taken: list[tuple[Workload, tuple[GpuUuid, ...]]] = []
        own, below = ledger.leaf(newcomer), ledger.reclaimable(newcomer, pool)
        homes = admission.result.homes
        there = [
            w
            for w in admission.admitted()
            if w.spec.preemptible
            and w.given_home is None
            and ((leaf := ledger.leaf(w)) in below or (leaf == own and w.spec.priority < newcomer.spec.priority))
            and ledger.pool_of_home(homes[w.id]) == pool
        ]
        may = [w for w in there if ledger.may_displace(newcomer, w, pool)]
        self.candidates = sorted(may, key=lambda w: _harm(admission, w))

    def succeeds(self) -> bool:
        """Admit the newcomer if those who may be taken are enough; else leave a mess, for the caller to undo."""
        while (obstacle := self._ledger.obstacle(self._newcomer, self._pool)) is not None:
            queue = obstacle.queue
            below = (w for w in self._left() if queue in self._ledger.tree.chain(self._ledger.leaf(w)))
            victim = next(below, None)
            if victim is None:
                return False
            self._take(victim)
        home = self._free_gpus()
        if home is None:
            return self._scattered()
        self._give_back(home)
        self._admission.give(self._newcomer, home)
        return True

    def _left(self) -> Iterator[Workload]:
        """Who may still be displaced: nobody is taken from a queue that has come down to its share meanwhile."""
        homes = self._admission.result.homes
        return (w for w in self.candidates if w.id in homes and self._may(w))

    def _may(self, victim: Workload) -> bool:
        return self._ledger.may_displace(self._newcomer, victim, self._pool)

    def _take(self, victim: Workload) -> None:
        self.taken.append((victim, self._admission.take(victim)))

    def _free_gpus(self) -> tuple[GpuUuid, ...] | None:
        """As many Gpus as it spans, one after another the one that costs least; `None`: there are not enough."""
        chosen: list[GpuUuid] = []
        gpus = self._admission.open_gpus(self._newcomer, self._pool)
        while len(chosen) < self._newcomer.spec.gpu_count:
            needs = [(uuid, self._needed_on(uuid)) for uuid in gpus if uuid not in chosen]
            options = [(self._cost(needed), uuid, needed) for uuid, needed in needs if needed is not None]
            if not options:
                return None
            _, uuid, needed = min(options, key=lambda option: option[:2])
            for victim in needed:
                self._take(victim)
            chosen.append(uuid)
        return tuple(chosen)

    def _needed_on(self, uuid: GpuUuid) -> list[Workload] | None:
        """Who has to go from `uuid`; `None`: it is not enough when all go who may."""
        admission, homes = self._admission, self._admission.result.homes
        there = [w for w in self.candidates if uuid in homes.get(w.id, ())]
        room = admission.free.get(uuid, 0) + sum(admission.cost_bytes(w, uuid) for w in there)
        if room < admission.cost_bytes(self._newcomer, uuid):
            return None
        needed: list[tuple[Workload, tuple[GpuUuid, ...]]] = []
        for victim in there:
            if admission.has_home_room(self._newcomer, uuid):
                break
            if self._may(victim):
                needed.append((victim, admission.take(victim)))
        enough = admission.has_home_room(self._newcomer, uuid)
        for victim, home in needed:
            admission.give(victim, home)
        return [victim for victim, _ in needed] if enough else None

    def _cost(self, victims: list[Workload]) -> tuple[object, ...]:
        """How much harm: commands that would not come back, running cells, priority, bytes to move, how many, which."""
        return (
            sum(w.present and not comes_back(w) for w in victims),
            sum(w.executing or w.kept(self._admission.at) for w in victims),
            max((w.spec.priority for w in victims), default=0),
            sum(w.return_bytes for w in victims if w.present),
            len(victims),
            [_harm(self._admission, w) for w in victims],
        )

    def _give_back(self, home: tuple[GpuUuid, ...]) -> None:
        """Whoever turns out not to be in the way keeps the home, those who would suffer most first."""
        for victim, old in reversed(list(self.taken)):
            self._admission.give(victim, old)
            room = all(self._admission.has_home_room(self._newcomer, uuid) for uuid in home)
            if room and self._ledger.obstacle(self._newcomer, self._pool) is None:
                self.taken.remove((victim, old))
            else:
                self._admission.take(victim)

    def _scattered(self) -> bool:
        """What may be taken is spread over several Gpus: take all, pack the others closer, give back what is left."""
        for victim in self.candidates:
            if victim.id in self._admission.result.homes and self._may(victim):
                self._take(victim)
        if not self.taken or not self._admission.admit_by_packing(self._newcomer):
            return False
        for victim, old in reversed(list(self.taken)):
            room = all(self._admission.has_home_room(victim, uuid) for uuid in old)
            if room and self._ledger.obstacle(victim, self._pool) is None:
                self._admission.give(victim, old)
                self.taken.remove((victim, old))
        return True


def _harm(admission: Admission, victim: Workload) -> tuple[object, ...]:
    """As `victims.harm`; a command that would not come back last, and of those that run the latest arrival first."""
    order = list(harm(victim, admission.at))
    if victim.executing:
        order[4] = 0.0  # since when it was idle says nothing about one that is not
    return (victim.present and not comes_back(victim), *order)
