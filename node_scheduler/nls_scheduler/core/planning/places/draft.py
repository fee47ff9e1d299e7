"""The plan in the making: who is meant to be where, who leaves for whom, and since when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from nls_scheduler.core.model.gangs import is_fellow
from nls_scheduler.core.planning.homes.paper import Paper
from nls_scheduler.core.planning.making_room.rooms import has_room
from nls_scheduler.core.planning.making_room.victims import harm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.reasons import Reason, Why
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Homes
    from nls_scheduler.core.planning.making_room.rooms import Rooms


class Left(NamedTuple):
    """One that was driven out: where it was, and for whom and since when it was on its way already."""

    workload: Workload
    gpus: tuple[GpuUuid, ...]
    cause: WorkloadId | None
    since: float | None


@dataclass(slots=True)
class Draft:
    """The plan in the making.

    Attributes:
        homes: where everybody's request is counted.
        rooms: who is meant to be where.
        cause: for whom a workload has to move or wait.
        since: since when the guarantee that drives it out has waited: its deadline counts from then.
        waits: why a workload gets no place now.
        yields: who leaves at the end of the running cell, for whom.
        wake_at: when time alone may change the plan.
        bound: who is on the way to which Gpu as one of several that were chosen together.
        moves: who goes elsewhere for nobody's sake, and why: for burst alone, or as its home has room.
        leaving: what those count for who are to leave a Gpu on which more is promised than there is, until they have.
        short: since when what is held on a Gpu leaves too little room for who is to be there.
        trim_since: who gives caches back for that, and since when there is reason to.
        roomier: where there is room for what a workload was refused.
        allowances: what everybody may use now, once the rest is decided.
        weighed: where it counted who computes, since when one is idle, or what it costs to move one.
        holders: size and id of whoever is on a Gpu or has a home, the largest first; for `entries`.
        positions: the places of those who wait, from 1; for `entries`.
    """

    state: NodeState
    homes: Homes
    rooms: Rooms
    cause: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    since: dict[WorkloadId, float] = field(default_factory=dict)
    waits: dict[WorkloadId, Why] = field(default_factory=dict)
    yields: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    wake_at: list[float] = field(default_factory=list)
    bound: dict[WorkloadId, GpuUuid] = field(default_factory=dict)
    moves: dict[WorkloadId, Reason] = field(default_factory=dict)
    over: list[Workload] = field(default_factory=list)
    claimants: dict[GpuUuid, list[Workload]] = field(default_factory=dict)
    leaving: dict[GpuUuid, int] = field(default_factory=dict)
    short: dict[GpuUuid, float] = field(default_factory=dict)
    trim_since: dict[WorkloadId, float] = field(default_factory=dict)
    roomier: dict[WorkloadId, GpuUuid] = field(default_factory=dict)
    allowances: Mapping[WorkloadId, int] = field(default_factory=dict)
    weighed: set[GpuUuid] = field(default_factory=set)
    holders: list[tuple[int, WorkloadId]] = field(default_factory=list)
    positions: Mapping[WorkloadId, int] = field(default_factory=dict)
    _paper: Paper | None = None

    def exchange(self, one: Workload, other: Workload) -> bool:
        """Each gets the other's home, if both may have it. False: nothing is changed."""
        if self._paper is None:
            # Mostly there is no room for the one where the other is at home, and nobody has to write all down for that.
            (away,) = self.homes.homes[other.id]
            if self.homes.left.get(away, 0) + other.spec.request_bytes < one.spec.request_bytes:
                return False
        homes = self.homes.homes
        return self._written_down().change_homes((one, homes[other.id]), (other, homes[one.id]))

    def be_at_home(self, workload: Workload, gpu: GpuUuid) -> bool:
        """`workload`, which has a home, has it on `gpu` from now on, if it may. False: nothing is changed."""
        if self.homes.left.get(gpu, 0) < workload.spec.request_bytes:
            return False
        return self._written_down().change_homes((workload, (gpu,)))

    def _written_down(self) -> Paper:
        self._paper = self._paper or Paper.having(self.state, self.homes)
        return self._paper

    def left_by(self, workload: Workload) -> set[GpuUuid]:
        """The Gpus on which it is, and is not to be."""
        return set(workload.current).difference(self.rooms.target.get(workload.id, ()))

    def harm(self, victim: Workload) -> tuple[bool, int, int, int, float, float, str]:
        """`victims.harm` now."""
        return harm(victim, self.state.at)

    def keeps(self, holder: Workload) -> bool:
        """Whether its user holds `holder` against everybody's burst; when that ends, the plan is made again."""
        return holder.keep_until is not None and not self.has_come(holder.keep_until)

    def has_come(self, at: float) -> bool:
        """Whether it is that time; when it is, the plan is made again."""
        self.wake_at.append(at)
        return self.state.at >= at

    def claim_since(self, claimant: Workload, victim: Workload) -> float:
        """Since when `claimant` waits for the place that `victim` has to leave.

        Who is being driven out itself inherits the wait that drives it. For who does not wait, it is since the victim
        was told.
        """
        if claimant.waiting_since is not None:
            return self._waits_since(claimant, claimant.waiting_since)
        if claimant.id in self.since:
            return self.since[claimant.id]
        told = self.state.at if victim.told_since is None else victim.told_since
        return min(self._waits_for(claimant), default=told)  # one that is on its way out is driven out no more

    def _waits_for(self, workload: Workload) -> list[float]:
        """Since when those wait who come to where `workload` still is."""
        gpus = [self.state.gpus[uuid] for uuid in workload.current if uuid in self.state.gpus]
        return [
            self._waits_since(claimant, claimant.waiting_since)
            for gpu in gpus
            for claimant in self._who_is_owed(gpu.uuid)
            if claimant.waiting_since is not None and not has_room(self.state, claimant, gpu)
        ]

    def _waits_since(self, claimant: Workload, waiting_since: float) -> float:
        """Since when it waits for its home: nobody waits for one before it is given."""
        return max(waiting_since, self.state.at if claimant.home_since is None else claimant.home_since)

    def claimed_since(self, workload: Workload) -> float | None:
        """Since when a guarantee waits for `workload` to leave where it is; `None`: no guarantee does."""
        gpus = [self.state.gpus[uuid] for uuid in workload.current if uuid in self.state.gpus]
        times = [gpu.pressed_since for gpu in gpus if gpu.pressed_since is not None]
        times += [since for since, _ in self._claims(workload)]
        if workload.id in self.since:
            times.append(self.since[workload.id])
        return min(times, default=None)

    def claimant(self, workload: Workload) -> WorkloadId | None:
        """Who has waited longest for `workload` to leave where it is, of all but its own gang."""
        return min(self._of_others(self._claims(workload), workload), default=(0.0, None))[1]

    def _of_others(
        self, claims: Iterable[tuple[float, WorkloadId]], victim: Workload
    ) -> list[tuple[float, WorkloadId]]:
        """Those `claims` that are not of the gang of `victim`: nobody leaves for itself or one of its own."""
        return [claim for claim in claims if not is_fellow(self.state.workloads[claim[1]], victim)]

    def _claims(self, workload: Workload) -> list[tuple[float, WorkloadId]]:
        """Who is owed room where it is, finds none, and since when; on each Gpu the first of them first."""
        owed = ((uuid, self._claims_of(self._who_is_owed(uuid), workload)) for uuid in workload.current)
        return [claim for uuid, claims in owed for claim in self._unmet(uuid, claims)]

    def _claims_of(self, claimants: list[Workload], victim: Workload) -> list[tuple[float, WorkloadId]]:
        """Since when each of `claimants` waits for `victim`; the first of them first."""
        return sorted({(self.claim_since(c, victim), c.id) for c in claimants if c is not victim}) if claimants else []

    def _unmet(self, uuid: GpuUuid, claims: list[tuple[float, WorkloadId]]) -> Iterator[tuple[float, WorkloadId]]:
        """Those who find no room on `uuid` beside those who have waited longer: for the others nobody leaves."""
        gpu, come_bytes = self.state.gpus.get(uuid), 0
        if gpu is None:
            return
        for claim in claims:
            claimant = self.state.workloads[claim[1]]
            if has_room(self.state, claimant, gpu, beside_bytes=come_bytes):
                come_bytes += claimant.return_bytes
            else:
                yield claim

    def _who_comes(self, gpu: GpuUuid) -> list[Workload]:
        """Who has claimed a place on `gpu` and is to be there still."""
        targets = self.rooms.target
        return [claimant for claimant in self.claimants.get(gpu, ()) if gpu in targets.get(claimant.id, ())]

    def _who_is_owed(self, gpu: GpuUuid) -> list[Workload]:
        """Those of them to whom room is guaranteed there: at home, and within their requests."""
        homes = self.homes.homes
        return [c for c in self._who_comes(gpu) if gpu in homes.get(c.id, ()) and c.within_request]

    def note_short(self, gpu: GpuUuid) -> None:
        """What is held on `gpu` is too much: since the first wait for it, or since it is so."""
        times = [self._waits_since(c, c.waiting_since) for c in self._who_comes(gpu) if c.waiting_since is not None]
        times += [t for t in (self.state.gpus[gpu].pressed_since,) if t is not None]
        if times:
            self.short[gpu] = min(times)

    def drive_out(self, victim: Workload, gpu: GpuUuid) -> Left:
        """Take `victim` off its place, with the claim that makes it necessary."""
        left = Left(victim, self.rooms.target[victim.id], self.cause.get(victim.id), self.since.get(victim.id))
        self.rooms.remove(victim)
        if victim.present and gpu not in victim.current and victim.id in self.cause:
            return left  # it was to come here only since it leaves for another
        owed = self._claims_of(self._who_is_owed(gpu), victim)
        if owed:
            unmet = [*self._unmet(gpu, owed)] or owed
            since = unmet[0][0]
            if others := self._of_others(unmet, victim) or self._of_others(owed, victim):
                self.cause[victim.id] = others[0][1]
            if gpu in victim.current:
                self.since[victim.id] = since
            return left
        if comes := self._of_others(self._claims_of(self._who_comes(gpu), victim), victim):
            self.cause[victim.id] = comes[0][1]
            return left
        # Whoever claimed the room is there already; who was there before it has claimed nothing.
        came = [w for w in self.rooms.members(gpu) if (w.resident_since or 0.0) >= (victim.resident_since or 0.0)]
        guaranteed = [w for w in came if w.over_request_bytes == 0 and not is_fellow(w, victim)]
        if guaranteed:
            self.cause[victim.id] = max(guaranteed, key=lambda w: (w.resident_since or 0.0, w.id)).id
        return left

    def take_back(self, left: Left) -> None:
        """As before it was driven out."""
        key = left.workload.id
        self.rooms.add(left.workload, left.gpus)
        self.cause.pop(key, None)
        self.since.pop(key, None)
        if left.cause is not None:
            self.cause[key] = left.cause
        if left.since is not None:
            self.since[key] = left.since
