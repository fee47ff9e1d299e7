"""What each event changes in the state: facts are recorded here, decisions are made elsewhere."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Releasing
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.values import replace, updated
from nls_scheduler.core.model.workload import Frozen, Phase, Workload
from nls_scheduler.core.recording.above_limit import polls_above_limit
from nls_scheduler.core.recording.of_a_report import record_report
from nls_scheduler.core.recording.of_a_workload import record_of_workload

if TYPE_CHECKING:
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId


def record(state: NodeState, event: Event) -> NodeState:
    """`state` with `event` in it. Stale answers and facts about ended workloads change nothing but the time."""
    return _record(event, replace(state, at=max(state.at, event.at), settled=False))


@singledispatch
def _record(event: Event, state: NodeState) -> NodeState:
    raise TypeError(f"no rule for {event!r} in {state.at}")


@_record.register
def _(event: ev.TimerFired, state: NodeState) -> NodeState:
    del event
    return replace(state, timer_at=None)


@_record.register
def _(event: ev.DaemonRestarted, state: NodeState) -> NodeState:
    """Nobody is hurried for what the daemon missed: deadlines of commands begin again with the grace.

    Who is to leave is told so anew, and has the time of the last rungs from when orders are given again.
    """
    quiet_until = event.at + state.policy.reconnect_grace_s
    later = quiet_until + state.policy.stop_grace_s
    workloads = {}
    for key, workload in state.workloads.items():
        pending = workload.pending
        if pending is not None:
            workload = replace(workload, pending=replace(pending, deadline_at=max(pending.deadline_at, later)))
        workloads[key] = workload if workload.told_since is None else replace(workload, told_since=quiet_until)
    return replace(
        state,
        timer_at=None,
        quiet_until=quiet_until,
        unreported=frozenset(workloads),
        known_until=state.next_command,
        forgetful=event.forgetful,
        workloads=workloads,
    )


@_record.register
def _(event: ev.DaemonStoodStill, state: NodeState) -> NodeState:
    """Its own lateness is nobody's fault: whatever runs out for others does so later by as much."""
    late_s = event.seconds
    workloads = {key: _later(workload, late_s, event.at) for key, workload in state.workloads.items()}
    gpus = {
        uuid: updated(gpu, releasing=tuple(replace(r, since=r.since + late_s) for r in gpu.releasing))
        for uuid, gpu in state.gpus.items()
    }
    return replace(state, quiet_until=state.quiet_until + late_s, workloads=workloads, gpus=gpus)


def _later(workload: Workload, late_s: float, now: float) -> Workload:
    """Whom nobody could interrupt meanwhile is told anew that it has to leave: not before it is quiet no more."""
    asked = {"pending": workload.pending, "trim": workload.trim, "wanted": workload.wanted}
    told_since = None if workload.told_since is None else workload.told_since + late_s
    return updated(
        workload,
        **{name: replace(each, deadline_at=each.deadline_at + late_s) for name, each in asked.items() if each},
        trim_shows_by=None if workload.trim_shows_by is None else workload.trim_shows_by + late_s,
        told_since=max(now, told_since) if told_since is not None and workload.interrupt is None else told_since,
    )


@_record.register
def _(event: ev.PolicyChanged, state: NodeState) -> NodeState:
    """A cell that is to leave has the time of the last rungs by the new rules, too: an interrupt is not taken back.

    Nor is one given while it is quiet: who has its time from then on keeps that.
    """
    told_anew = (
        replace(w, told_since=max(event.at, w.told_since) if w.interrupt is None else w.interrupt.issued_at)
        for w in state.workloads.values()
        if w.told_since is not None and w.executing
    )
    return replace(state.having(*told_anew), policy=event.policy)


@_record.register
def _(event: ev.GpusClaimed, state: NodeState) -> NodeState:
    return replace(state, claims=event.claims)


@_record.register
def _(event: ev.GpusDiscovered, state: NodeState) -> NodeState:
    """Keep what samples told about the Gpus that are still there; what was being released on a lost one is gone."""
    gpus: dict[GpuUuid, Gpu] = {}
    for gpu in event.gpus:
        old = state.gpus.get(gpu.uuid)
        if old is None:
            gpus[gpu.uuid] = gpu
        else:
            gpus[gpu.uuid] = replace(
                old,
                index=gpu.index,
                name=gpu.name,
                memory_total_bytes=gpu.memory_total_bytes,
                healthy=gpu.healthy,
                unhealthy_reason=gpu.unhealthy_reason,
                parent=gpu.parent,
                numa_node=gpu.numa_node,
                links=gpu.links,
            )
    for uuid, old in state.gpus.items():
        # A Gpu that is gone stays as an unhealthy one while somebody is still on it.
        if uuid not in gpus and any(uuid in w.current for w in state.workloads.values()):
            why = Why(event.why_gone(uuid))
            gpus[uuid] = replace(old, healthy=False, unhealthy_reason=why, memory_used_bytes=None, releasing=())
    return replace(state, gpus=gpus)


@_record.register
def _(event: ev.MemorySampled, state: NodeState) -> NodeState:
    gpus: dict[GpuUuid, Gpu] = {}
    used: dict[WorkloadId, dict[GpuUuid, int]] = {w: {} for w in state.workloads}
    for uuid, gpu in state.gpus.items():
        reading = event.readings.get(uuid)
        if reading is None:
            gpus[uuid] = replace(gpu, memory_used_bytes=None, utilisation=None)
            continue
        away = tuple(u for u in reading.placed if u.workload in used and not _is_on(uuid, state.workloads[u.workload]))
        gpus[uuid] = _sampled(gpu, reading, away, event.at)
        for use in reading.placed:
            if use.workload in used:
                used[use.workload][uuid] = used[use.workload].get(uuid, 0) + (use.bytes or 0)
    shown = {uuid for uuid, reading in event.readings.items() if reading.memory_used_bytes is not None}
    workloads = {k: _shown(_measured(w, used[k], event.at), shown, event.at) for k, w in state.workloads.items()}
    return replace(state, gpus=gpus, workloads=workloads)


def _measured(workload: Workload, used: dict[GpuUuid, int], at: float) -> Workload:
    if not (used or workload.current or workload.memory_used or workload.over_limit_polls or workload.trimmed):
        return workload
    most, spec = max((used[uuid] for uuid in workload.current if uuid in used), default=0), workload.spec
    # Its libraries keep to the limit by what a context takes about; they cannot know what it takes.
    tolerated_bytes = workload.context_bytes if spec.kind is Kind.NOTEBOOK else 0
    above = workload.phase is Phase.RUNNING and most > spec.limit_bytes + tolerated_bytes
    remembers = above or workload.over_limit_polls or workload.trimmed or spec.starts_again
    if workload.measured and used == workload.memory_used and not remembers:
        return workload
    since_ready = workload.resident_since is not None and at >= workload.resident_since
    polls = polls_above_limit(workload, above=above)
    return updated(
        workload,
        memory_used=used,
        measured=workload.measured or since_ready,
        # Nobody tells a command what it may use: what it used once it will use again.
        needed_bytes=max(workload.needed_bytes, min(most, spec.limit_bytes)) if spec.starts_again else 0,
        over_limit_polls=polls,
        trimmed=workload.trimmed and polls > 0,
    )


def _shown(workload: Workload, gpus: set[GpuUuid], at: float) -> Workload:
    """Note that what was asked for, or given back, before `at` is in this sample."""
    wanted, trimmed_at = workload.wanted, workload.trimmed_at
    if wanted is not None and wanted.gpu in gpus and at >= wanted.asked_at:
        workload = updated(workload, wanted=updated(wanted, shown=True))
    is_unseen = workload.trim_shows_by is not None
    if is_unseen and trimmed_at is not None and at >= trimmed_at and gpus.issuperset(workload.current):
        workload = replace(workload, trim_shows_by=None)
    return workload


def _is_on(gpu: GpuUuid, workload: Workload) -> bool:
    return gpu in workload.current


def _sampled(gpu: Gpu, reading: ev.GpuReading, away: tuple[ev.PlacedUse, ...], at: float) -> Gpu:
    unplaced = dict(reading.unplaced or {})
    releasing = _releasing(gpu, reading, away, at)
    known = {r.process for r in releasing}
    strangers = {p: b for p, b in unplaced.items() if p not in known}
    unplaced_bytes = _unplaced_bytes(strangers, reading)
    return updated(
        gpu,
        memory_used_bytes=reading.memory_used_bytes,
        utilisation=reading.utilisation,
        unplaced=tuple(sorted(strangers)),
        unplaced_bytes=unplaced_bytes,
        confirmed=bool(strangers and gpu.unplaced),
        confirmed_bytes=min(gpu.unplaced_bytes, unplaced_bytes),
        releasing=releasing,
    )


def _releasing(gpu: Gpu, reading: ev.GpuReading, away: tuple[ev.PlacedUse, ...], at: float) -> tuple[Releasing, ...]:
    """`away`: what is left here of workloads that are not here any more. Nobody gets that room before it is gone."""
    kept = [r for r in gpu.releasing if r.since > at or _still_seen(r, reading)]
    not_shown_yet = {r.workload for r in kept if r.since > at}
    since = {r.workload: r.since for r in gpu.releasing}
    left = [
        Releasing(use.process, use.workload, use.bytes, since.get(use.workload, at))
        for use in away
        if use.bytes is not None and use.workload not in not_shown_yet
    ]
    shown = {r.process for r in left}
    return (*(r for r in kept if r.process not in shown), *left)


def _still_seen(releasing: Releasing, reading: ev.GpuReading) -> bool:
    return releasing.process in (reading.unplaced or {}) or any(u.process == releasing.process for u in reading.placed)


def _unplaced_bytes(strangers: dict[ProcessId, int | None], reading: ev.GpuReading) -> int:
    """What strangers use; where the driver hides that, all that nobody else accounts for."""
    if reading.unplaced is not None and all(size is not None for size in strangers.values()):
        return sum(size or 0 for size in strangers.values())
    accounted = sum(use.bytes or 0 for use in reading.placed)
    return max(0, (reading.memory_used_bytes or 0) - accounted)


@_record.register
def _(event: ev.WorkloadSubmitted, state: NodeState) -> NodeState:
    if event.workload in state.workloads:
        raise ValueError(f"workload {event.workload} was submitted twice")
    submitted = Workload(
        id=event.workload,
        spec=event.spec,
        submitted_at=event.at,
        waiting_since=event.at,
        context_bytes=event.context_bytes,
        given_home=event.given_home,
    )
    return state.having(submitted)


@_record.register
def _(event: ev.WorkloadAdopted, state: NodeState) -> NodeState:
    """It is where it is: its home begins there, and what it uses is no stranger's any more."""
    if event.workload in state.workloads:
        raise ValueError(f"workload {event.workload} is known already")
    used = {uuid: sum(use.bytes or 0 for use in uses) for uuid, uses in event.uses.items()}
    runs, why = event.frozen_bytes is None, Why(Reason.ADOPTED)
    adopted = Workload(
        id=event.workload,
        spec=event.spec,
        submitted_at=event.at,
        phase=Phase.RUNNING if runs else Phase.SUSPENDED,
        frozen=None if event.frozen_bytes is None else Frozen(event.gpus, event.frozen_bytes, event.at, why),
        waiting_since=None if runs else event.at,
        home=(event.gpus if runs else ()) if event.given_home is None else event.given_home,
        given_home=event.given_home,
        current=event.gpus if runs else (),
        process=event.process,
        measured=runs and bool(used),
        memory_used=used,
        context_bytes=event.context_bytes,
        saved_bytes=event.saved_bytes,
        unsaved=event.executing,
        cell_since=event.at if event.executing else None,
        resident_since=event.at if runs else None,
        idle_since=event.at,
        last_reason=why,
    )
    gpus = {uuid: _without_adopted(gpu, event.uses.get(uuid, ())) for uuid, gpu in state.gpus.items()}
    return replace(state.after_command(event.command_id), gpus=gpus).having(adopted)


def _without_adopted(gpu: Gpu, uses: tuple[ev.PlacedUse, ...]) -> Gpu:
    adopted = {use.process for use in uses} & set(gpu.unplaced)
    freed = sum(use.bytes or 0 for use in uses if use.process in adopted)
    strangers = tuple(process for process in gpu.unplaced if process not in adopted)
    left = max(0, gpu.unplaced_bytes - freed) if strangers else 0
    return replace(
        gpu,
        unplaced=strangers,
        unplaced_bytes=left,
        confirmed=gpu.confirmed and bool(strangers),
        confirmed_bytes=min(gpu.confirmed_bytes, left),
    )


@_record.register
def _(event: ev.WorkloadEvent, state: NodeState) -> NodeState:
    """Everything about one workload; about one that has ended there is nothing to record."""
    workload = state.workloads.get(event.workload)
    return state if workload is None else record_of_workload(event, workload, state)


@_record.register
def _(event: ev.WorkloadReported, state: NodeState) -> NodeState:
    workload = state.workloads.get(event.workload)
    return state if workload is None else record_report(event, workload, state)
