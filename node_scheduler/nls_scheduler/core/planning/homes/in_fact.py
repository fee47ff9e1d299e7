"""Everybody with a home, each taken to be at home where it is: what is left there, and who could be elsewhere. Pure.

Homes cost nothing to exchange on a plain server, moves do: what an exchange costs on paper is then what really moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.values import computed_once
from nls_scheduler.core.planning.making_room.cheapest_moves import Piece
from nls_scheduler.core.planning.making_room.make_room import without

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Paper


@dataclass(frozen=True, slots=True)
class Change:
    """Other homes for others, and with them one for the newcomer.

    Attributes:
        homes: the new ones.
        moved: who of them has to go where for the newcomer; the others of them have a home where they are already.
    """

    home: tuple[GpuUuid, ...]
    homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]
    moved: Collection[WorkloadId]


class Candidates(NamedTuple):
    """Who may be given another home.

    Attributes:
        in_order: who came first is first.
        workloads: the largest first, and of those alike who came first.
        homes: where each of `workloads` is at home.
        cleared: what is left on each Gpu on paper without them.
    """

    in_order: Sequence[Workload]
    workloads: Sequence[Workload]
    homes: Sequence[tuple[GpuUuid, ...]]
    cleared: Mapping[GpuUuid, int]


class Beside(NamedTuple):
    """Who may have a home elsewhere, and what is left on each Gpu with them and without them, by their requests.

    `spare_bytes`: what is left on all together.
    """

    left: Mapping[GpuUuid, int]
    cleared: Mapping[GpuUuid, int]
    pieces: Sequence[Piece]
    spare_bytes: int


class InFact:
    """Everybody with a home, each where it is in fact.

    Attributes:
        place: of each, the Gpus on which it is taken to be at home.
        free: what is left on each usable Gpu beside all that is held there.
        promised: what is left there beside the requests of those who are taken to be at home there.
    """

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self._of = dict(paper.result.homes), paper.usable
        self._version = paper.on_paper.version
        self._open: dict[tuple[str, ...], frozenset[GpuUuid]] = {}
        self.free = {uuid: paper.state.gpus[uuid].capacity_bytes for uuid in paper.free if uuid in paper.usable}
        self.promised = dict(self.free)
        self._admitted = paper.admitted()
        self.place = {workload.id: self._place_of(workload) for workload in self._admitted}
        for workload in self._admitted:
            for uuid in self.place[workload.id]:
                if uuid in self.free:
                    self.free[uuid] -= self.size_bytes(workload)
                    self.promised[uuid] -= workload.spec.request_bytes

    def holds(self) -> bool:
        """Whether the same have the same homes still, and may have new ones on the same Gpus."""
        homes, usable = self._of
        if self._version != self.paper.on_paper.version and homes == self.paper.result.homes:
            self._version = self.paper.on_paper.version
        return self._version == self.paper.on_paper.version and usable == self.paper.usable

    def _place_of(self, workload: Workload) -> tuple[GpuUuid, ...]:
        """Where it is, if its home may be there as well; where it is to be, for all others."""
        home = self.paper.result.homes[workload.id]
        stays = workload.stays and workload.given_home is None
        if not stays or not workload.spec.may_borrow or workload.current == home:
            return home
        (uuid,) = workload.current
        return workload.current if uuid in self.open_to(workload) else home

    def open_to(self, workload: Workload) -> frozenset[GpuUuid]:
        """The usable Gpus of its pools."""
        pools = tuple(self.paper.pools_for(workload))
        if pools not in self._open:
            self._open[pools] = frozenset(uuid for uuid in self.free if self.paper.pools[uuid].is_open_to(pools))
        return self._open[pools]

    def is_at(self, workload: Workload) -> bool:
        """Whether it is in fact on the Gpu where it is taken to be at home, and not on its way out."""
        return workload.stays and workload.current == self.place[workload.id]

    def is_away(self, workload: Workload) -> bool:
        """Whether its home is elsewhere than where it is."""
        return workload.current != self.paper.result.homes[workload.id]

    def size_bytes(self, workload: Workload) -> int:
        """What it takes there: all that it holds, or its request on paper."""
        return workload.size_bytes if self.is_at(workload) else workload.spec.request_bytes

    def unmoved_by(self, newcomer: Workload) -> set[GpuUuid]:
        """The Gpus with room for all that `newcomer` brings, beside all that is held there."""
        return {uuid for uuid, room in self.free.items() if room >= newcomer.return_bytes}

    def beside_all(self, newcomer: Workload) -> frozenset[GpuUuid]:
        """The Gpus with room for all that `newcomer` brings beside those who are there and stay."""
        if newcomer.present:
            return frozenset(uuid for uuid in self.free if self.paper.has_room_in_fact(newcomer, uuid))
        brings = newcomer.return_bytes
        return frozenset([uuid for uuid, left in self._left_in_fact.items() if left >= brings])

    @computed_once
    def _left_in_fact(self) -> Mapping[GpuUuid, int]:
        """What is left there beside those who stay, for who is not there and has no home."""
        return {uuid: self.paper.left_in_fact(uuid) for uuid in self.free}

    @computed_once
    def _free(self) -> Sequence[Workload]:
        """Whose homes are ours to change."""
        return [w for w in self._admitted if w.given_home is None and not w.stands_at_home]

    @computed_once
    def choices(self) -> Sequence[Candidates]:
        """Of whom some are given another home: those who may burst; then everybody who can move."""
        bursters, movable = [w for w in self._free if w.spec.may_borrow], [w for w in self._free if w.spec.movable]
        return [self._candidates(of) for of in ([bursters] if len(movable) == len(bursters) else [bursters, movable])]

    def _candidates(self, workloads: Sequence[Workload]) -> Candidates:
        homes, left = self.paper.result.homes, dict(self.paper.free)
        for workload in workloads:
            for uuid in homes[workload.id]:
                left[uuid] += self.paper.cost_bytes(workload, uuid)
        largest = sorted(workloads, key=attrgetter("spec.request_bytes"), reverse=True)
        return Candidates(workloads, largest, [homes[w.id] for w in largest], left)

    def change(self, gpus: Sequence[GpuUuid], moves: Mapping[WorkloadId, GpuUuid]) -> Change:
        """The newcomer on `gpus`, those of `moves` there, and everybody at home where they are taken to be."""
        moved = {key: (uuid,) for key, uuid in moves.items() if self.place[key] != (uuid,)}
        homes = self.paper.result.homes
        new = {key: home for key, home in {**self.place, **moved}.items() if homes[key] != home}
        return Change(self.paper.in_order(gpus), new, moved.keys())

    @computed_once
    def _movable(self) -> Sequence[Workload]:
        """Who could be put elsewhere."""
        return [w for w in self._free if w.spec.movable and self.place[w.id][0] in self.free]

    @computed_once
    def pieces(self) -> Sequence[Piece]:
        """The same as pieces; who is not there changes its home for nothing."""
        return [self._piece(w) for w in self._movable]

    @computed_once
    def besides(self) -> Sequence[Beside]:
        """How others have their homes elsewhere, who are not moved by that: who is off, then who is away as well.

        First where those who are off have room beside all that others hold; then beside what others are promised; then
        with another home for whoever borrows where it is.
        """
        off = [self._piece(w) for w in self._movable if not w.present]
        away = [self._piece(w)._replace(size_bytes=w.spec.request_bytes) for w in self._movable if self.is_away(w)]
        ways = (self._beside(self.free, off), self._beside(self.promised, off), self._beside(self.promised, away))
        return [beside for beside in ways if beside is not None]

    def _beside(self, room: Mapping[GpuUuid, int], pieces: Sequence[Piece]) -> Beside | None:
        """Beside what `room` leaves; `None`: others are promised more there than there is."""
        if min(without(self.promised, pieces).values(), default=0) < 0:
            return None
        cleared = without(room, pieces)
        left = {uuid: bytes_ - min(0, cleared[uuid]) for uuid, bytes_ in room.items()}
        return Beside(left, cleared, pieces, sum(left.values()))

    @computed_once
    def cleared(self) -> Mapping[GpuUuid, int]:
        """What would be left on each usable Gpu without them."""
        return without(self.free, self.pieces)

    def _piece(self, workload: Workload) -> Piece:
        place, request = self.place[workload.id], workload.spec.request_bytes
        cost, size, moved = (0, 0), request, request
        if self.is_at(workload):
            works = workload.executing or workload.kept(self.paper.at)
            cost, size, moved = (int(works), workload.moved_bytes), workload.size_bytes, workload.return_bytes
        others = self.open_to(workload).difference(place)
        may_wait = size > request and workload.spec.kind is Kind.NOTEBOOK
        rank = (not workload.spec.may_borrow, not workload.borrowed, -workload.submitted_at, workload.id)
        return Piece(workload.id, place[0], size, moved, request, cost, others, may_wait, rank)

    @computed_once
    def _borrowers(self) -> Mapping[GpuUuid, Sequence[Workload]]:
        """Who only borrows where it is: who costs least to send away is first."""
        borrowers = {
            uuid: [
                w for w in self.paper.state.on(uuid) if w.spec.may_borrow and uuid not in self.place.get(w.id, (uuid,))
            ]
            for uuid in self.free
        }
        return {u: sorted(of, key=lambda w: (w.executing, w.moved_bytes, w.id)) for u, of in borrowers.items()}

    def leaving(self, newcomer: Workload, uuid: GpuUuid) -> tuple[int, int]:
        """The cost of sending away who only borrows where `newcomer` would be at home, in a `Demand`'s terms."""
        borrowers = self._borrowers[uuid]
        if not borrowers:
            return 0, 0
        excess = sum(w.spec.request_bytes for w in borrowers) + newcomer.spec.request_bytes
        excess -= self.paper.state.gpus[uuid].capacity_bytes
        works, moved = 0, 0
        for borrower in borrowers:
            if excess <= 0:
                break
            excess -= borrower.spec.request_bytes
            works, moved = works + borrower.executing, moved + borrower.moved_bytes
        return works, moved
