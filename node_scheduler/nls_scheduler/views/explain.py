"""Why a workload is where it is, what it waits for, what was considered and refused, and what would help. Pure.

Nothing is decided here a second time: each answer comes from the predicates with which the plan was made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model.events import WorkloadRespecified
from nls_scheduler.core.model.priorities import priority_word
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.admission import Admission
from nls_scheduler.core.planning.homes.queue_ledger import ledger_of
from nls_scheduler.core.planning.making_room.rooms import (
    Rooms,
    borrows_beside_a_stranger,
    has_room,
    out_of_service,
    room_bytes,
)
from nls_scheduler.core.planning.places.freezing import freeze_at, may_freeze
from nls_scheduler.core.step import step
from nls_scheduler.units.sizes import format_amount, format_bytes, format_bytes_down, format_bytes_up, format_seconds
from nls_scheduler.views.queues import pool_figures
from nls_scheduler.views.sentences import Names, sentence
from nls_scheduler.views.veil import SEES_ALL

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.queue_ledger import Ledger
    from nls_scheduler.views.veil import Viewer

_OFF: tuple[Phase, ...] = (Phase.QUEUED, Phase.SUSPENDED)
_STRANGERS = "processes that nobody placed use it"
_POOL_AGAIN = {
    Reason.NO_POOL: "configure it again",
    Reason.POOL_OFF: "turn it on",
    Reason.NO_GPU: "have it name one that is in service",
}


def explain(state: NodeState, workload_id: WorkloadId, now: float, viewer: Viewer = SEES_ALL) -> dict[str, Any]:
    """The whole answer as plain JSON values, for `nls explain`. `now`: of `awake_s`."""
    workload, entry = state.workloads[workload_id], state.plan[workload_id]
    admission, rooms = _as_planned(state, workload)
    names, reason = Names.of(state, viewer, workload.mention), entry.reason or workload.last_reason
    return {
        "id": workload.id,
        "name": viewer.calls(workload.mention),
        "phase": workload.phase.value,
        "reason": sentence(reason, names) if reason else "it is ending",
        "reason_kind": reason.kind.value if reason else None,
        "waiting_s": None if workload.waiting_since is None else round(max(0.0, now - workload.waiting_since), 3),
        "last_order": sentence(workload.last_reason, names) if workload.last_reason else None,
        "priority": priority_word(workload.spec.priority),
        "preemptible": workload.spec.preemptible,
        "steps": list(_steps(state, workload, entry, now, names)),
        "queue": _queue(state, workload),
        "gpus": [_gpu(state, workload, gpu, admission, rooms) for gpu in _in_order(state)],
        "ahead": _ahead(state, entry, viewer),
        "advice": list(_advice(state, workload, entry, admission, now)),
    }


def _in_order(state: NodeState) -> list[Gpu]:
    return sorted(state.gpus.values(), key=lambda gpu: gpu.index)


def _as_planned(state: NodeState, but: Workload) -> tuple[Admission, Rooms]:
    """The paper and the draft as the plan left them, without the one in question."""
    admission = Admission(state)
    rooms = Rooms(state, {key: entry.home for key, entry in state.plan.items() if entry.home})
    for other in state.workloads.values():
        if other.id == but.id:
            continue
        if other.home and all(uuid in state.gpus for uuid in other.home):
            admission.give(other, other.home)
        target = state.plan[other.id].target
        if target and all(uuid in state.gpus for uuid in target):
            rooms.add(other, target)
    return admission, rooms


def _steps(state: NodeState, workload: Workload, entry: PlanEntry, now: float, names: Names) -> list[str]:
    """The chain of decisions, one sentence each, in the order in which they are made."""
    spec = workload.spec
    several = "" if spec.gpu_count == 1 else f" on each of {spec.gpu_count} GPUs"
    size = f"{format_bytes(spec.request_bytes)} guaranteed, at most {format_bytes(spec.limit_bytes)}{several}"
    steps = [f"It asks for {size}, in pool {' or '.join(spec.pools)}."]
    if not workload.takes_part:
        ended = sentence(workload.release_reason or workload.last_reason, names)
        return [*steps, f"It asks for nothing any more: {ended}.", *_before_its_end(state, workload)]
    if entry.home:
        steps.append(f"Its request is counted on {state.label(entry.home)}.")
        steps += _whether_it_is_lent(state, workload)
    else:
        steps.append("Its request is counted nowhere yet: it is not admitted.")
    if not workload.wants_gpu:
        asked = workload.suspend_reason
        off = sentence(asked, names) if asked else "its next cell brings it back"
        return [*steps, f"It wants no GPU now: {off}."]
    if entry.target:
        there = "It is to stay on" if entry.target == workload.current else "It is to be on"
        steps.append(f"{there} {state.label(entry.target)}.")
    elif workload.present:
        steps.append(f"It has to leave {state.label(workload.current)}.")
    else:
        steps.append("There is no place for it now.")
    if entry.deadline_at is not None:
        left = _seconds_until(entry.deadline_at, now)
        steps.append(f"A guarantee waits for it to leave: it is stopped in {left} at the latest.")
        steps += _whether_it_freezes(state, workload, entry.deadline_at, now, names)
    if workload.interrupt is not None:
        given = sentence(workload.interrupt.reason, names)
        steps.append(f"The order to interrupt its cell has been given: {given}.")
    if workload.pending is not None:
        given = sentence(workload.pending.reason, names)
        steps.append(f"The order to {workload.pending.order.value} has been given: {given}.")
    return [*steps, f"So: {sentence(entry.reason, names)}."]


def _whether_it_is_lent(state: NodeState, workload: Workload) -> list[str]:
    """Whether its queue has more than its share, so that the guarantee holds until another one asks for its own."""
    if not state.policy.queues or not workload.spec.preemptible:
        return []
    ledger = ledger_of(state)
    pool = _pool_of(ledger, workload)
    queue = ledger.above_share(workload, pool)
    if queue is None:
        return []
    used, fair = (format_amount(of(queue.name, pool)) for of in (ledger.used, ledger.fair))
    return [
        f"Its queue {queue.name!r} has {used}, and a fair share of {fair} GPUs: others may take back what is above."
    ]


def _before_its_end(state: NodeState, workload: Workload) -> list[str]:
    if workload.frozen is None:
        return []
    where = state.label(workload.frozen.gpus)
    return [f"Its process stands still: it goes on when {where} has room for it, and is ended then."]


def _whether_it_freezes(
    state: NodeState, workload: Workload, deadline_at: float, now: float, names: Names
) -> list[str]:
    """Whether its running cell is to stand still rather than to be interrupted, or why not."""
    if not workload.executing or workload.spec.kind is not Kind.NOTEBOOK:
        return []
    if workload.freeze_trouble is not None:
        return [f"Its cell cannot be made to stand still: {sentence(workload.freeze_trouble, names)}."]
    if may_freeze(state, workload):
        left = _seconds_until(freeze_at(state, workload, deadline_at), now)
        return [f"Its cell is made to stand still in {left}, and goes on later where it is."]
    return []


def _queue(state: NodeState, workload: Workload) -> dict[str, Any] | None:
    """Its queue and those above; `None` where no queues are configured."""
    if not state.policy.queues:
        return None
    ledger = ledger_of(state)
    leaf, pool = ledger.leaf(workload), _pool_of(ledger, workload)
    return {
        "name": workload.spec.queue,
        "counts_in": leaf,
        "chain": [{"name": q.name, **pool_figures(ledger, q, pool)} for q in ledger.tree.chain(leaf)],
    }


def _pool_of(ledger: Ledger, workload: Workload) -> str:
    """Where it counts, or would first."""
    return next(iter(ledger.pools_of(workload.home)), workload.spec.pools[0])


def _smaller(state: NodeState, workload: Workload, admission: Admission) -> list[str]:
    """The largest request that there is room for on as many GPUs, if it would have that: none is kept for others."""
    spec = workload.spec
    rooms = [[(admission.free.get(u, 0), u) for u in admission.open_gpus(workload, pool)] for pool in spec.pools]
    if not any(rooms):
        return []  # its reason says why none of its Gpus can be had
    best = [sorted(room, reverse=True)[: spec.gpu_count] for room in rooms if len(room) >= spec.gpu_count]
    largest = max((chosen[-1][0] for chosen in best), default=0)
    if largest <= 0:
        return _within_its_share(state, workload) or ["Nothing is free on paper: something has to end first."]
    if largest >= spec.request_bytes:
        return []  # what keeps it waiting is not room, and its reason says what
    smaller = replace(workload, spec=_asking_for(spec, largest))
    chosen = next(chosen for chosen in best if chosen[-1][0] == largest)
    if not all(admission.has_home_room(smaller, uuid) for _, uuid in chosen):
        return []
    if not _would_get_it(state, workload, largest):
        return []
    return [f"There is room for a request of {format_bytes_down(largest)} now."]


def _within_its_share(state: NodeState, workload: Workload) -> list[str]:
    """The request with which its queue could take room back from those beyond their shares."""
    ledger = ledger_of(state) if state.policy.queues else None
    owed = 0 if ledger is None else max(ledger.left_of_share_bytes(workload, pool) for pool in workload.spec.pools)
    if not 0 < owed < workload.spec.request_bytes or not _would_get_it(state, workload, owed):
        return []
    return [f"Its queue is owed {format_bytes_down(owed)} more: a request of that much gets it from others."]


def _asking_for(spec: WorkloadSpec, size_bytes: int) -> WorkloadSpec:
    return replace(spec, request_bytes=size_bytes, limit_bytes=max(size_bytes, spec.limit_bytes))


def _would_get_it(state: NodeState, workload: Workload, size_bytes: int) -> bool:
    asked, _ = step(state, WorkloadRespecified(state.at, workload.id, _asking_for(workload.spec, size_bytes)))
    return bool(asked.workloads[workload.id].home)


def _larger(workload: Workload, admission: Admission) -> list[str]:
    """The request that covers what it brings, if its queue lets it have that and a Gpu of its is so large."""
    spec, enough = workload.spec, workload.return_bytes
    larger = replace(workload, spec=_asking_for(spec, enough))
    opens = (uuid for pool in spec.pools for uuid in admission.open_gpus(workload, pool))
    fits_one = any(enough <= admission.state.gpus[uuid].capacity_bytes for uuid in opens)
    if not fits_one or admission.is_held_back(larger) is not None:
        return []
    enough_reads = format_bytes_up(enough)
    return [f"With a request of {enough_reads}, once there is room for that, it need not wait for others' burst."]


def _gpu(state: NodeState, workload: Workload, gpu: Gpu, admission: Admission, rooms: Rooms) -> dict[str, Any]:
    """What each rule says to one Gpu, which names nobody; `None` is a yes."""
    return {
        "gpu": gpu.label,
        "uuid": gpu.uuid,
        "is_home": gpu.uuid in workload.home,
        "is_current": gpu.uuid in workload.current,
        "why_not_home": why_not_home(state, workload, gpu, admission),
        "why_not_place": _why_not_place(state, workload, gpu, rooms),
        "why_not_now": _why_not_now(state, workload, gpu),
    }


def why_not_home(state: NodeState, workload: Workload, gpu: Gpu, admission: Admission) -> str | None:
    """Why its request cannot be counted on `gpu` beside the others; `None`: it can."""
    pool = state.policy.pool_of(gpu)
    if pool.name not in workload.spec.pools:
        return f"it is in the pool {pool.name!r}, which it does not ask for"
    if not pool.enabled:
        return f"the pool {pool.name!r} is off"
    if gpu.uuid not in state.usable:
        return _why_unusable(state, gpu)
    if workload.spec.gpu_count > 1 and gpu.parent is not None:
        return "it is a slice, and who needs several GPUs has whole ones only"
    if gpu.uuid not in admission.open_gpus(workload, pool.name):
        return "it runs elsewhere and cannot move"
    obstacle = None if admission.ledger is None else admission.obstacle(admission.ledger, workload, pool.name)
    if obstacle is not None:
        return sentence(obstacle.why, Names.of(state))
    if admission.has_home_room(workload, gpu.uuid):
        return None
    asks, counts = workload.spec.request_bytes, admission.cost_bytes(workload, gpu.uuid)
    free = max(0, admission.free.get(gpu.uuid, 0))
    if free >= counts:  # more is promised there than there is
        return "those who cannot take turns and the largest of the others would not fit there together"
    as_much = "" if counts == asks else f", which counts as {format_bytes(counts)} there"
    return f"{format_bytes(free)} are free on paper, and it asks for {format_bytes(asks)}{as_much}"


def _why_unusable(state: NodeState, gpu: Gpu) -> str:
    why = out_of_service(state).get(gpu.uuid)
    return "the driver does not tell how much memory is used" if why is None else sentence(why, Names.of(state))


def _why_not_place(state: NodeState, workload: Workload, gpu: Gpu, rooms: Rooms) -> str | None:
    """Why it cannot be placed on `gpu` beside those who are to be there; `None`: it can."""
    if rooms.fits(workload, gpu.uuid):
        return None
    if gpu.uuid not in state.usable:
        return _why_unusable(state, gpu)
    if workload.stands_on is not None and gpu.uuid not in workload.stands_on:
        return "its cell stands still, and can go on only where it was"
    if not rooms.may_use(workload, gpu.uuid):
        home = gpu.uuid in workload.home
        if not home and not workload.spec.may_borrow:
            return "it is not its home, and only one that may burst and move can borrow"
        if gpu.owners:
            return "a pod of the cluster's has a right to it"
        return _STRANGERS if gpu.confirmed else "it is in a pool that it may not use now"
    if rooms.is_full_for(workload, gpu.uuid):
        return f"as many workloads as its pool allows ({rooms.pools[gpu.uuid].max_workloads_per_gpu}) are to be there"
    requests, sizes = rooms.left_bytes(gpu.uuid)
    if requests < workload.spec.request_bytes:
        return f"the requests of those who are to be there leave {format_bytes(max(0, requests))}"
    needs = format_bytes(rooms.size_on(workload, gpu.uuid))
    return f"what they hold leaves {format_bytes(max(0, sizes))}, and it needs {needs}"


def _why_not_now(state: NodeState, workload: Workload, gpu: Gpu) -> str | None:
    """Why it could not start on `gpu` at this moment; `None`: it could."""
    if gpu.uuid not in state.usable:
        return _why_unusable(state, gpu)
    if gpu.uuid in workload.current or has_room(state, workload, gpu):
        return None
    if borrows_beside_a_stranger(workload, gpu):
        return _STRANGERS
    left = format_bytes(max(0, room_bytes(state, workload, gpu)))
    return f"{left} are free in fact, and it needs {format_bytes(workload.return_bytes)}"


def _ahead(state: NodeState, entry: PlanEntry, viewer: Viewer) -> list[dict[str, str]]:
    """Who is in front of it in the line, first in line first."""
    if entry.position is None:
        return []
    places = {key: other.position for key, other in state.plan.items() if other.position is not None}
    front = sorted((place, key) for key, place in places.items() if place < entry.position)
    mentions = [state.workloads[key].mention for _, key in front]
    return [{"id": each.id, "name": viewer.calls(each), "kind": each.kind} for each in mentions]


def _advice(state: NodeState, workload: Workload, entry: PlanEntry, admission: Admission, now: float) -> list[str]:
    """What would help, as far as somebody can do something about it."""
    spec = workload.spec
    if workload.phase is Phase.FAILED:
        return [f"`nls resume {workload.id}` gives it another try."]
    if workload.release_reason is not None or workload.phase not in _OFF or not workload.wants_gpu:
        return []
    if (again := _POOL_AGAIN.get(entry.reason.kind)) is not None:
        return [f"Ask for another pool, or have the administrator {again}."]
    if not entry.home:
        held_back = admission.is_held_back(workload)
        if held_back is not None and held_back.because[0].kind is Reason.QUEUE_TOO_SMALL:
            return ["Ask for less, or name another queue."]
        if held_back is not None:
            softer = "" if spec.preemptible else " A priority below 100 may go over quota."
            nothing_used = held_back.because[0].kind is Reason.QUEUE_QUOTA and not held_back.because[0].numbers[0]
            what = "use another one" if nothing_used else "end something of that queue, or use another one"
            return [f"Its queue keeps it out: {what}.{softer}"]
        return _smaller(state, workload, admission)
    if workload.stands_on is not None:
        return [f"Its cell goes on when {state.label(workload.stands_on)} has room: nowhere else can it."]
    if not workload.within_request:
        return _larger(workload, admission)
    free_at = _free_at(state, entry.target)
    return [] if free_at is None else [f"Its place is free in {_seconds_until(free_at, now)} at the latest."]


def _free_at(state: NodeState, gpus: tuple[GpuUuid, ...]) -> float | None:
    """When all who have to leave `gpus` are gone at the latest; `None`: there is nobody, or one has no deadline."""
    plan = state.plan
    leavers = {w.id for uuid in gpus for w in state.on(uuid) if uuid not in plan[w.id].target}
    deadlines = [plan[key].deadline_at for key in leavers]
    known = [at for at in deadlines if at is not None]
    return max(known) + state.policy.stop_grace_s if known and len(known) == len(deadlines) else None


def _seconds_until(at: float, now: float) -> str:
    return format_seconds(round(max(0.0, at - now), 1))
