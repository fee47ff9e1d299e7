"""Where each workload should be now, as far as guarantees say it; `turns` and `spreading` say the rest.

Everybody present stays where they are unless a reason makes them leave. A workload that fits within its request always
finds a place, at home in the worst case, because the requests at home fit there; whoever borrowed that room goes to
their own home. What is held above requests yields in the order of `victims.harm`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.exchanges import least_harm
from nls_scheduler.model import Phase
from nls_scheduler.paper import admission_order
from nls_scheduler.rooms import Rooms, has_room
from nls_scheduler.victims import harm

if TYPE_CHECKING:
    from nls_scheduler.model import GpuUuid, NodeState, Workload, WorkloadId
    from nls_scheduler.paper import Homes


@dataclass(slots=True)
class Draft:
    """The plan in the making.

    Attributes:
        rooms: who is meant to be where.
        cause: for whom a workload has to move or wait.
        since: since when the guarantee that drives it out has waited: its deadline counts from then.
        waits: why a workload gets no place now.
        yields: who leaves at the end of the running cell, for whom.
        wake_at: when time alone may change the plan.
        bound: who is on the way to which Gpu as one of several that were chosen together.
        short: since when what is held on a Gpu leaves too little room for who is to be there.
        trim_since: who gives caches back for that, and since when there is reason to.
        roomier: where there is room for what a workload was refused.
        allowances: what everybody may use, once the rest is decided.
        holders: size and id of whoever is on a Gpu or has a home, the largest first; for `planner`.
    """

    state: NodeState
    homes: Homes
    rooms: Rooms
    cause: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    since: dict[WorkloadId, float] = field(default_factory=dict)
    waits: dict[WorkloadId, str] = field(default_factory=dict)
    yields: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    wake_at: list[float] = field(default_factory=list)
    bound: dict[WorkloadId, GpuUuid] = field(default_factory=dict)
    over: list[Workload] = field(default_factory=list)
    claimants: dict[GpuUuid, list[Workload]] = field(default_factory=dict)
    short: dict[GpuUuid, float] = field(default_factory=dict)
    trim_since: dict[WorkloadId, float] = field(default_factory=dict)
    roomier: dict[WorkloadId, GpuUuid] = field(default_factory=dict)
    allowances: dict[WorkloadId, int] = field(default_factory=dict)
    holders: list[tuple[int, WorkloadId]] = field(default_factory=list)

    def harm(self, victim: Workload) -> tuple[bool, int, int, int, float, float, str]:
        """`victims.harm` now."""
        return harm(victim, self.state.at)

    def keeps(self, holder: Workload) -> bool:
        """Whether its user holds `holder` against everybody's burst; when that ends, the plan is made again."""
        if holder.keep_until is None or not holder.kept(self.state.at):
            return False
        self.wake_at.append(holder.keep_until)
        return True

    def claim_since(self, claimant: Workload) -> float:
        """Since when `claimant` waits; one who is being driven out itself inherits the wait that drives it."""
        if claimant.waiting_since is not None:
            return claimant.waiting_since
        return self.since.get(claimant.id, self.state.at)

    def claimed_since(self, workload: Workload) -> float | None:
        """Since when a guarantee waits for `workload` to leave where it is; `None`: no guarantee does."""
        gpus = [self.state.gpus[uuid] for uuid in workload.current if uuid in self.state.gpus]
        times = [gpu.pressed_since for gpu in gpus if gpu.pressed_since is not None]
        times += [since for since, _ in self._claims(workload)]
        if workload.id in self.since:
            times.append(self.since[workload.id])
        return min(times, default=None)

    def claimant(self, workload: Workload) -> WorkloadId | None:
        """Who has waited longest for `workload` to leave where it is."""
        return min(self._claims(workload), default=(0.0, None))[1]

    def _claims(self, workload: Workload) -> list[tuple[float, WorkloadId]]:
        gpus = [self.state.gpus[uuid] for uuid in workload.current if uuid in self.state.gpus]
        return [
            (self.claim_since(claimant), claimant.id)
            for gpu in gpus
            for claimant in self.claimants.get(gpu.uuid, [])
            if claimant.id != workload.id and not has_room(self.state, claimant, gpu)
        ]

    def note_short(self, gpu: GpuUuid) -> None:
        """What is held on `gpu` is too much: since the first wait for it, or since it is so."""
        times = [c.waiting_since for c in self.claimants.get(gpu, []) if c.waiting_since is not None]
        times += [t for t in (self.state.gpus[gpu].pressed_since,) if t is not None]
        if times:
            self.short[gpu] = min(times)

    def cause_of_leaving(self, bound: Workload) -> WorkloadId | None:
        """The guarantee for which `bound`, who is on its way, leaves its Gpu; `None`: for the burst of all."""
        entry = self.state.plan.get(bound.id)
        cause = self.homes.moved_for.get(bound.id, None if entry is None else entry.cause)
        return cause if bound.present and cause in self.state.workloads else None

    def note_cause(self, bound: Workload) -> None:
        """Say for whom `bound` leaves its Gpu, and since when that one waits."""
        if bound.id in self.rooms.target and bound.return_bytes <= bound.spec.request_bytes:
            self.claimants.setdefault(self.bound[bound.id], []).append(bound)
        cause = self.cause_of_leaving(bound)
        if cause is not None:
            self.cause[bound.id], self.since[bound.id] = cause, self.claim_since(self.state.workloads[cause])

    def drive_out(self, victim: Workload, gpu: GpuUuid) -> None:
        """Take `victim` off its place, with the claim that makes it necessary."""
        self.rooms.remove(victim)
        claims = [(self.claim_since(c), c.id) for c in self.claimants.get(gpu, []) if c.id != victim.id]
        if claims:
            since, self.cause[victim.id] = min(claims)
            if gpu in victim.current:
                self.since[victim.id] = since
            return
        # Whoever claimed the room is there already.
        guaranteed = [w for w in self.rooms.members(gpu) if w.over_request_bytes == 0]
        if guaranteed:
            self.cause[victim.id] = max(guaranteed, key=lambda w: (w.resident_since or 0.0, w.id)).id


def place_guarantees(state: NodeState, homes: Homes, wanting: list[Workload]) -> Draft:
    """Place all that a guarantee covers; what is left over waits in `Draft.over` for burst."""
    bound = under_way(state, homes)
    while True:
        draft = _place(state, homes, wanting, dict(bound))
        in_vain = [state.workloads[key] for key in draft.bound if not _is_awaited(draft, state.workloads[key])]
        for workload in in_vain:
            draft.since.pop(workload.id, None)
        stay = {w.id for w in in_vain if w.phase in (Phase.STARTING, Phase.RUNNING)}
        if not stay:
            return draft
        bound = {key: uuid for key, uuid in bound.items() if key not in stay}


def _place(state: NodeState, homes: Homes, wanting: list[Workload], bound: dict[WorkloadId, GpuUuid]) -> Draft:
    draft = Draft(state, homes, Rooms(state, homes.homes), bound=bound)
    waiting = _keep_present(draft, wanting)
    pinned = [w for w in waiting if not w.spec.may_borrow]
    for workload in sorted(pinned, key=lambda w: (w.spec.can_take_turns, _line(draft, w))):
        if not workload.spec.can_take_turns or draft.rooms.is_owed(workload):
            _claim_home(draft, workload)
        else:
            draft.over.append(workload)
    waiting = _send_on(draft, waiting)
    displaced = _clear_requests(draft, list(state.gpus))
    queue = deque(sorted((w for w in waiting if w.spec.may_borrow), key=lambda w: _line(draft, w)))
    queue.extendleft(reversed(displaced))
    while queue:
        queue.extendleft(reversed(_place_borrower(draft, queue.popleft())))
    _clear_sizes(draft)
    return draft


def _line(draft: Draft, workload: Workload) -> tuple[bool, bool, float, int, float, str]:
    """By priority and arrival; after that, where more is promised than there is, who takes turns by its wait."""
    pools = [draft.rooms.pools[uuid] for uuid in draft.homes.homes[workload.id] if uuid in draft.rooms.pools]
    if not workload.spec.can_take_turns or all(pool.oversubscribe <= 1.0 for pool in pools):
        return (False, False, 0.0, *admission_order(workload))
    since = draft.state.at if workload.waiting_since is None else workload.waiting_since
    return (True, not workload.active or workload.present, since, *admission_order(workload))


def _keep_present(draft: Draft, wanting: list[Workload]) -> list[Workload]:
    """Leave everybody who may stay where they are; return who needs a place."""
    waiting = []
    for workload in wanting:
        home = draft.homes.homes[workload.id]
        stays = workload.phase in (Phase.STARTING, Phase.RUNNING)
        if stays and not (workload.spec.movable or workload.spec.resizable):
            stays_at: tuple[GpuUuid, ...] = workload.current
        elif workload.spec.may_borrow:
            stays_at = workload.current
            stays = stays and all(draft.rooms.may_stay(workload, uuid) for uuid in stays_at)
        else:
            stays_at = home
            stays = stays and workload.current == home
        if stays and workload.id not in draft.bound:
            draft.rooms.add(workload, stays_at)
            continue
        waiting.append(workload)
    return waiting


def _is_awaited(draft: Draft, bound: Workload) -> bool:
    """Whether a guarantee comes in this draft to where `bound` still is."""
    others = ((draft.state.workloads[key], gpus) for key, gpus in draft.rooms.target.items() if key != bound.id)
    return any(
        set(gpus) & set(bound.current) and gpus != other.current and other.return_bytes <= other.spec.request_bytes
        for other, gpus in others
    )


def under_way(state: NodeState, homes: Homes) -> dict[WorkloadId, GpuUuid]:
    """Who goes where because several were chosen together: now, or in the plan before this one.

    That one holds for who is off its Gpu, and as long as the workload for which it leaves is there.
    """
    bound = {}
    for key, entry in state.plan.items():
        workload = state.workloads.get(key)
        if entry.bound is None or workload is None or workload.current == (entry.bound,) or workload.wish is not None:
            continue
        if entry.cause in state.workloads or workload.phase in (Phase.SUSPENDING, Phase.SUSPENDED):
            bound[key] = entry.bound
    return bound | homes.bound


def _send_on(draft: Draft, waiting: list[Workload]) -> list[Workload]:
    """Those who are on their way go there, unless nobody needs the place where they still are.

    Returns who else needs a place.
    """
    for workload in waiting:
        if workload.id in draft.bound:
            _send(draft, workload)
    there = [w for w in waiting if w.id in draft.bound and w.phase in (Phase.STARTING, Phase.RUNNING)]
    there.sort(key=lambda w: (-w.moved_bytes, w.id))
    # Who stays may have been the one for whom another was to leave.
    while (stays := next((w for w in there if _may_as_well_stay(draft, w)), None)) is not None:
        there.remove(stays)
        del draft.bound[stays.id]
        draft.rooms.add(stays, stays.current)
    for workload in waiting:
        if workload.id in draft.bound:
            draft.note_cause(workload)
    return [w for w in waiting if w.id not in draft.rooms.target]


def _may_as_well_stay(draft: Draft, bound: Workload) -> bool:
    """Whether nobody needs the place that it is to leave; it is taken out of the draft if so."""
    rooms, sent_to = draft.rooms, draft.rooms.target.get(bound.id)
    if sent_to is not None:
        rooms.remove(bound)
    if draft.cause_of_leaving(bound) is None or all(rooms.fits(bound, uuid) for uuid in bound.current):
        return True
    if sent_to is not None:
        rooms.add(bound, sent_to)
    return False


def _send(draft: Draft, workload: Workload) -> None:
    """Place it where it is bound for; where that is for a guarantee, who holds burst there yields to it later."""
    uuid, rooms = draft.bound[workload.id], draft.rooms
    owed = workload.return_bytes <= workload.spec.request_bytes and draft.cause_of_leaving(workload) is not None
    if rooms.fits_on_paper(workload, uuid) if owed else rooms.fits(workload, uuid):
        rooms.add(workload, (uuid,))


def _claim_home(draft: Draft, workload: Workload) -> None:
    home = draft.homes.homes[workload.id]
    if not all(uuid in draft.rooms.gpus for uuid in home):
        draft.waits[workload.id] = f"{draft.state.label(home)} is out of service"
        return
    draft.rooms.add(workload, home)
    for uuid in home:
        draft.claimants.setdefault(uuid, []).append(workload)


def _clear_requests(draft: Draft, gpus: list[GpuUuid]) -> list[Workload]:
    """Drive out those who only borrow where the requests exceed a Gpu, then who takes turns. Returns them."""
    displaced = []
    for uuid in gpus:
        if not draft.rooms.requests_exceed(uuid):
            continue
        members = sorted(draft.rooms.members(uuid), key=draft.harm)
        leavers = [w for w in members if w.spec.may_borrow and uuid not in draft.homes.homes[w.id]]
        if draft.rooms.pools[uuid].oversubscribe > 1.0:
            leavers += [w for w in members if w.spec.can_take_turns and w not in leavers]
        for leaver in leavers:
            if not draft.rooms.requests_exceed(uuid):
                break
            if uuid not in draft.rooms.target.get(leaver.id, ()):
                continue
            borrows = uuid not in draft.homes.homes[leaver.id]
            chosen = least_harm(draft, leaver, uuid) if borrows else leaver
            draft.drive_out(chosen, uuid)
            displaced.append(chosen)
    return displaced


def _place_borrower(draft: Draft, workload: Workload) -> list[Workload]:
    """A place for one that may borrow: where it bursts most, else its home. Returns whom that drives out."""
    if workload.return_bytes > workload.spec.request_bytes:
        # Burst comes after every guarantee.
        draft.over.append(workload)
        return []
    best = draft.rooms.best_for(workload)
    if best is not None:
        draft.rooms.add(workload, (best,))
        draft.claimants.setdefault(best, []).append(workload)
        return []
    home = draft.homes.homes[workload.id]
    if not draft.rooms.is_owed(workload) or (home[0] in draft.rooms.gpus and draft.rooms.is_full(home[0])):
        draft.over.append(workload)
        return []
    _claim_home(draft, workload)
    return _clear_requests(draft, list(home))


def _clear_sizes(draft: Draft) -> None:
    """Where what is held does not fit beside the requests, the bursters yield, in order of harm."""
    for uuid in list(draft.rooms.gpus):
        if not draft.rooms.sizes_exceed(uuid):
            continue
        draft.note_short(uuid)
        holders = sorted((w for w in draft.rooms.members(uuid) if _holds_burst(w, uuid)), key=draft.harm)
        # Commands that cannot come back are the very last to go, only for a guarantee.
        for holder in sorted(holders, key=lambda w: not w.spec.movable):
            if not draft.rooms.sizes_exceed(uuid):
                break
            draft.drive_out(holder, uuid)
            _place_elsewhere(draft, holder, uuid)


def _holds_burst(workload: Workload, uuid: GpuUuid) -> bool:
    return workload.phase is Phase.RUNNING and uuid in workload.current and workload.over_request_bytes > 0


def _place_elsewhere(draft: Draft, holder: Workload, left: GpuUuid) -> None:
    best = draft.rooms.best_for(holder) if holder.spec.may_borrow else None
    if best is not None and best != left:
        draft.rooms.add(holder, (best,))
        return
    label = draft.state.gpus[left].label
    by = draft.cause.get(holder.id)
    who = draft.state.workloads[by].spec.name if by else "what is guaranteed there"
    draft.waits[holder.id] = f"its burst on {label} was needed for {who}"


def place_guests(draft: Draft, homeless: list[Workload]) -> None:
    """Who has lost its home to another queue stays where it is as long as nobody needs its place."""
    for guest in sorted(homeless, key=admission_order):
        stays = guest.phase in (Phase.STARTING, Phase.RUNNING)
        if stays and all(draft.rooms.holds_guest(guest, uuid) for uuid in guest.current):
            draft.rooms.add(guest, guest.current)
        elif guest.kept(draft.state.at) and guest.keep_until is not None:
            draft.wake_at.append(guest.keep_until)


def grant_wishes(draft: Draft) -> None:
    """Who is wanted on another Gpu by its user goes there where it fits beside everybody; else it stays."""
    for workload_id, gpus in list(draft.rooms.target.items()):
        workload = draft.state.workloads[workload_id]
        wish = workload.wish
        if wish is None or wish in gpus or not workload.spec.may_borrow or gpus != workload.current:
            continue
        if workload.phase is not Phase.RUNNING:
            continue
        draft.rooms.remove(workload)
        draft.rooms.add(workload, (wish,) if draft.rooms.fits(workload, wish) else gpus)
