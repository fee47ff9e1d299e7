"""Homes on paper: what is still free, who has what, and where there is room. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import topology
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.planning.homes.queue_ledger import Ledger
from nls_scheduler.core.planning.making_room.occupancy import Occupancy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.queue_ledger import Counted


@dataclass(slots=True)
class Homes:
    """The result.

    Attributes:
        homes: of the admitted.
        waits: why the others wait.
        in_vain: who has found none, by `WorkloadSpec.demand`: behind that one nobody finds any who asks for the same.
        moved_for: who lost a home, or was given another one, and for whom.
        bound: to where those of them go that are on a Gpu now, chosen together so that the fewest bytes move.
        line: those without a home, in the order of their turns.
        wake_at: when time alone may change it.
        starves_at: when somebody will have waited so long that room is kept free.
        ledger: what each queue has and asks for; `None` where no queues are configured.
        left: bytes of each Gpu on paper beside all of `homes`.
        spared_by: who waits although there is a way, as too many would have to leave their Gpus for it.
    """

    homes: dict[WorkloadId, tuple[GpuUuid, ...]] = field(default_factory=dict)
    waits: dict[WorkloadId, Why] = field(default_factory=dict)
    moved_for: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    bound: dict[WorkloadId, GpuUuid] = field(default_factory=dict)
    line: list[WorkloadId] = field(default_factory=list)
    wake_at: list[float] = field(default_factory=list)
    starves_at: float = inf
    in_vain: Mapping[object, WorkloadId] = field(default_factory=dict)
    ledger: Ledger | None = None
    left: Mapping[GpuUuid, int] = field(default_factory=dict)
    spared_by: set[WorkloadId] = field(default_factory=set)

    def copied(self) -> Homes:
        """The same, in which homes can be exchanged."""
        return replace(self, homes=dict(self.homes))


admission_order: Final = attrgetter("precedence")
waiting_order: Final = attrgetter("place_in_line")


def counts(workload: Workload) -> Sequence[int]:
    """On how many Gpus its home can be, the most wanted first: one that runs and cannot move has as many as it has."""
    return (len(workload.current),) if workload.is_bound else workload.spec.gpu_counts


def held_by(gpu: Gpu, at_home: Iterable[Workload]) -> Why | None:
    """Who holds `gpu` on paper: those who are `at_home` there, pods, and what nobody placed. `None`: nobody does."""
    who = (*(workload.mention for workload in at_home), *(owner.mention for owner in gpu.owners))
    others = (gpu.unplaced_bytes,) if gpu.unplaced_bytes and not gpu.owners else ()
    return Why(Reason.HELD, gpus=(gpu.uuid,), who=who, bytes=others) if who or others else None


def no_room(spec: WorkloadSpec, because: tuple[Why, ...]) -> Why:
    """That there is none for what `spec` asks for."""
    gang = () if spec.gang is None else (spec.gang,)
    numbers = (spec.gpu_count, spec.gang_size)
    return Why(Reason.NO_ROOM, bytes=(spec.request_bytes,), numbers=numbers, names=gang, because=because)


@dataclass(slots=True)
class LookedAt:
    """What a round has looked at besides who asks for what and who has a home.

    Attributes:
        places: where workloads are in fact, and what they hold there.
        costs: what it would cost to move them, or to take their places.
        until: before then time alone changes nothing.
    """

    places: bool = False
    costs: bool = False
    until: float = inf


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A round as it was."""

    homes: int
    ledger: Counted | None
    moved_for: dict[WorkloadId, WorkloadId]
    bound: dict[WorkloadId, GpuUuid]


class Paper:
    """One round: what is still free on paper, and who has got what.

    Attributes:
        state: the node.
        at: the time of this round.
        pools: the pool of each Gpu.
        result: the homes so far.
        ledger: what each queue has; `None` where no queues are configured.
        free: bytes by Gpu, below zero where more is promised than there is.
        on_paper: the account of both.
        usable: the Gpus on which anybody may have a new home.
        oversubscribed: those on which more may be promised than there is.
        searched: whether a way was searched for somebody for whom packing found none; once is enough in a round.
        resizes: whether anybody can be told to give Gpus back.
        looked_at: what the round depends on.
        in_fact: where everybody is (`InFact`), as it was seen last.
    """

    def __init__(self, state: NodeState) -> None:
        self.in_fact: object = None
        self.searched = False
        self.looked_at = LookedAt()
        self.ledger = Ledger(state) if state.policy.queues else None
        self.state, self.at = state, state.at
        self.pools = state.pools
        self.oversubscribed = {uuid for uuid, pool in self.pools.items() if pool.oversubscribe > 1.0}
        self.on_paper = Occupancy(
            {uuid: self.pools[uuid].home_capacity_bytes(gpu) for uuid, gpu in state.gpus.items() if gpu.healthy},
            self.cost_bytes,
        )
        (self.free,) = self.on_paper.left
        self.result = Homes(self.on_paper.places)
        self.usable = self._all_usable = frozenset(state.usable)
        self.resizes = bool([w for w in state.workloads.values() if w.spec.resizable])
        self._present = {uuid: sum([w.size_bytes for w in state.on(uuid)]) for uuid in state.gpus}

    @classmethod
    def having(cls, state: NodeState, homes: Homes) -> Paper:
        """A paper on which `homes` stand, and which changes them."""
        paper = cls(state)
        for key, home in homes.homes.items():
            paper.give(state.workloads[key], home)
        paper.on_paper.places = homes.homes
        paper.result = homes
        return paper

    def give(self, workload: Workload, home: tuple[GpuUuid, ...]) -> None:
        """`workload` has its home there from now on."""
        self.on_paper.put(workload, home)
        if self.ledger is not None:
            self.ledger.count(workload, home, 1)

    def take(self, workload: Workload) -> tuple[GpuUuid, ...]:
        """`workload` has no home any more; the one that it had."""
        home = self.on_paper.take(workload)
        if self.ledger is not None:
            self.ledger.count(workload, home, -1)
        return home

    def open_gpus(self, workload: Workload, pool: str) -> list[GpuUuid]:
        """The Gpus of `pool` on which it may have a home when there is room: of several, none is a slice."""
        pinned = self.free if (current := workload.pinned_to) is None else current
        usable = [u for u in self.free if u in self.usable and self.pools[u].is_open_to((pool,)) and u in pinned]
        return usable if workload.spec.gpu_count == 1 else [u for u in usable if self.state.gpus[u].parent is None]

    def admitted(self) -> list[Workload]:
        """Who has a home."""
        return [workload for workload in self.state.by_precedence if workload.id in self.result.homes]

    def starves(self, workload: Workload) -> bool:
        """Whether `workload` has waited long for a home; not while it is on a Gpu, or wants none."""
        since = workload.waiting_since
        return since is not None and self.at >= since + self.state.policy.starvation_s

    def checkpoint(self) -> Checkpoint:
        """What `roll_back` goes back to."""
        ledger = None if self.ledger is None else self.ledger.checkpoint()
        return Checkpoint(self.on_paper.checkpoint(), ledger, dict(self.result.moved_for), dict(self.result.bound))

    def roll_back(self, checkpoint: Checkpoint) -> None:
        """Everything is as it was."""
        self.on_paper.roll_back(checkpoint.homes)
        self.result.moved_for, self.result.bound = dict(checkpoint.moved_for), dict(checkpoint.bound)
        if self.ledger is not None and checkpoint.ledger is not None:
            self.ledger.roll_back(checkpoint.ledger)

    def tried(self, *steps: Callable[[], bool]) -> bool:
        """Whether these succeed one after another; if not nothing is changed."""
        checkpoint = self.checkpoint()
        if all(step() for step in steps):
            return True
        self.roll_back(checkpoint)
        return False

    def best_fit(
        self,
        workload: Workload,
        count: int | None = None,
        pools: Sequence[str] | None = None,
        among: Collection[GpuUuid] | None = None,
    ) -> tuple[GpuUuid, ...] | None:
        """The Gpus (of `among`) of the first pool that has room: the fullest; then where it is; then the least present.

        The pools are those that its queue lets it into, unless others are given.
        """
        if max(self.free.values(), default=0) < workload.spec.request_bytes:
            return None
        wanted = counts(workload)[-1] if count is None else count
        pools = self.pools_for(workload, wanted) if pools is None else pools
        among = self.usable if among is None else self.usable.intersection(among)
        found = (self._best_fit_in(pool, workload, wanted, among) for pool in pools)
        return next((home for home in found if home is not None), None)

    def pools_for(
        self, workload: Workload, count: int | None = None, home: tuple[GpuUuid, ...] | None = None
    ) -> Sequence[str]:
        """The pools that its queue lets it into with `count` Gpus; who has a home is given another in its pool only.

        `home`: the one that it has, or had a moment ago.
        """
        if self.ledger is None:
            return workload.spec.pools
        own = self.ledger.pools_of(self.result.homes.get(workload.id, ()) if home is None else home)
        if len(own) == 1:
            return [*own]
        return [pool for pool in workload.spec.pools if self.ledger.obstacle(workload, pool, count=count) is None]

    def _best_fit_in(
        self, pool: str, workload: Workload, count: int, among: Collection[GpuUuid]
    ) -> tuple[GpuUuid, ...] | None:
        """Of several Gpus, first those that are closest together."""
        gpus, pinned = self.state.gpus, workload.pinned_to
        current, request_bytes = workload.current, workload.spec.request_bytes
        fitting = [
            (room, uuid not in current, self._present[uuid], gpus[uuid].index, uuid)
            for uuid, room in self.free.items()
            if room >= request_bytes
            and uuid in among
            and self.pools[uuid].is_open_to((pool,))
            and (uuid not in self.oversubscribed or self.has_home_room(workload, uuid))
            and (pinned is None or uuid in pinned)
        ]
        if len(fitting) < count:
            return None
        if count == 1:
            best_of_one = min(fitting)
            alike = sum([other[:2] == best_of_one[:2] for other in fitting]) if len(fitting) > 1 else 1
            self.looked_at.places = self.looked_at.places or alike > 1
            return (best_of_one[-1],)
        self.looked_at.places = True
        best = topology.closest([uuid for *_, uuid in sorted(fitting)], count, gpus)
        return None if best is None else self.in_order(best)

    def is_offered(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` can become a home of `workload` now."""
        open_to_it = uuid in self.usable and self.pools[uuid].is_open_to(workload.spec.pools)
        return open_to_it and self.has_home_room(workload, uuid)

    def may_have_home(self, workload: Workload, gpus: tuple[GpuUuid, ...]) -> bool:
        """Whether `workload`, which is not counted just now, may come to be at home there: pools, queue and room."""
        return self.may_return(workload, gpus) and all(self.is_offered(workload, uuid) for uuid in gpus)

    def may_return(self, workload: Workload, home: tuple[GpuUuid, ...]) -> bool:
        """As `may_have_home`, for a home that it had a moment ago: whatever its pools say by now."""
        is_kept_out = self.ledger is not None and self.ledger.obstacles(workload, home)
        return not is_kept_out and self.has_room_at(workload, home)

    def change_homes(self, *new: tuple[Workload, tuple[GpuUuid, ...]]) -> bool:
        """Each of these has its home there instead, if all may have them. False: nothing is changed."""
        checkpoint = self.checkpoint()
        for workload, _ in new:
            self.take(workload)
        for workload, home in reversed(new):
            if not self.may_have_home(workload, home):
                self.roll_back(checkpoint)
                return False
            self.give(workload, home)
        return True

    def in_order(self, gpus: Iterable[GpuUuid]) -> tuple[GpuUuid, ...]:
        """As a home has them: by their indexes."""
        return tuple(sorted(gpus, key=lambda uuid: self.state.gpus[uuid].index))

    def is_of_its_pool(self, home: tuple[GpuUuid, ...], uuid: GpuUuid) -> bool:
        """Whether a queue counts `uuid` where it counts `home`: then nothing changes for anybody's."""
        return self.ledger is None or self.ledger.pools_of(home).keys() == self.ledger.pools_of((uuid,)).keys()

    def has_room_at(self, workload: Workload, home: tuple[GpuUuid, ...]) -> bool:
        """Whether its request may be counted on all of `home`."""
        if not self.oversubscribed:
            free, request_bytes = self.free, workload.spec.request_bytes
            for uuid in home:  # noqa: SIM110 - asked so often that a generator would be felt
                if free.get(uuid, -1) < request_bytes:
                    return False
            return True
        for uuid in home:  # noqa: SIM110 - asked so often that a generator would be felt
            if not self.has_home_room(workload, uuid):
                return False
        return True

    def has_home_room(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether its request may be counted on `uuid`; where more is promised, each must still fit in its turn."""
        if not self.on_paper.has_room(workload, uuid):
            return False
        if uuid not in self.oversubscribed:
            return True
        there = [*(w for w in self.on_paper.members(uuid) if w.id != workload.id), workload]
        firm = sum(w.spec.request_bytes for w in there if not w.spec.can_take_turns)
        largest = max((w.spec.request_bytes for w in there if w.spec.can_take_turns), default=0)
        return firm + largest <= self.state.gpus[uuid].capacity_bytes

    def has_room_in_fact(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` has room for all that `workload` brings, beside who stays there or can come nowhere else."""
        return self.left_in_fact(uuid, workload) >= workload.return_bytes

    def left_in_fact(self, uuid: GpuUuid, besides: Workload | None = None) -> int:
        """What is left of `uuid` beside who stays there or can come nowhere else, but for one of them."""
        there = [w for w in self.state.on(uuid) if w.stays]
        there += [w for w in self.on_paper.members(uuid) if uuid not in w.current and not w.spec.movable]
        held = sum([w.size_bytes for w in there if besides is None or w.id != besides.id])
        return self.state.gpus[uuid].capacity_bytes - held

    def cost_bytes(self, workload: Workload, uuid: GpuUuid) -> int:
        """Who cannot take turns leaves that much less to promise: what remains of the Gpu is oversubscribed."""
        if uuid not in self.oversubscribed or workload.spec.can_take_turns:
            return workload.spec.request_bytes
        return self.pools[uuid].promised_bytes(workload.spec.request_bytes)
