"""What each event changes in the state: facts are recorded here, decisions are made elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from nls_scheduler import events as ev
from nls_scheduler import gangs
from nls_scheduler.model import CommandId, Gpu, Kind, NodeState, Order, Phase, Releasing, Wanted, Workload, updated
from nls_scheduler.transitions import transition

if TYPE_CHECKING:
    from nls_scheduler.events import Event
    from nls_scheduler.model import GpuUuid, ProcessId, WorkloadId


# One sample may have met a process in the middle of giving memory back.
_POLLS_ABOVE_LIMIT = 2


def record(state: NodeState, event: Event) -> NodeState:
    """`state` with `event` in it. Stale answers and facts about ended workloads change nothing but the time."""
    return _record(event, replace(state, at=max(state.at, event.at)))


def _with(state: NodeState, workload: Workload) -> NodeState:
    return replace(state, workloads={**state.workloads, workload.id: workload})


def _without(state: NodeState, workload_id: WorkloadId) -> NodeState:
    left = {k: w for k, w in state.workloads.items() if k != workload_id}
    return replace(state, workloads=left, unreported=state.unreported - {workload_id})


@singledispatch
def _record(event: Event, state: NodeState) -> NodeState:
    raise TypeError(f"no rule for {event!r} in {state.at}")


@_record.register
def _(event: ev.TimerFired, state: NodeState) -> NodeState:
    del event
    return replace(state, timer_at=None)


@_record.register
def _(event: ev.DaemonRestarted, state: NodeState) -> NodeState:
    """Nobody is hurried for what the daemon missed: deadlines of commands begin again with the grace."""
    quiet_until = event.at + state.policy.reconnect_grace_s
    later = quiet_until + state.policy.stop_grace_s
    workloads = {}
    for key, workload in state.workloads.items():
        pending = workload.pending
        if pending is not None:
            workload = replace(workload, pending=replace(pending, deadline_at=max(pending.deadline_at, later)))
        workloads[key] = workload
    return replace(
        state,
        timer_at=None,
        quiet_until=quiet_until,
        unreported=frozenset(workloads),
        forgetful=event.forgetful,
        workloads=workloads,
    )


@_record.register
def _(event: ev.PolicyChanged, state: NodeState) -> NodeState:
    return replace(state, policy=event.policy)


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
        # A vanished Gpu stays as an unhealthy one while somebody is still on it.
        if uuid not in gpus and any(uuid in w.current for w in state.workloads.values()):
            gpus[uuid] = replace(
                old, healthy=False, unhealthy_reason="it has vanished", memory_used_bytes=None, releasing=()
            )
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
        gpus[uuid] = _sampled(gpu, reading, event.at)
        for use in reading.placed:
            if use.workload in used:
                used[use.workload][uuid] = used[use.workload].get(uuid, 0) + (use.bytes or 0)
    shown = {uuid for uuid, reading in event.readings.items() if reading.memory_used_bytes is not None}
    workloads = {k: _shown(_measured(w, used[k], event.at), shown, event.at) for k, w in state.workloads.items()}
    return replace(state, gpus=gpus, workloads=workloads)


def _measured(workload: Workload, used: dict[GpuUuid, int], at: float) -> Workload:
    """Count the samples in a row that show it above its limit; one on its way out leaves for what was counted."""
    since_ready = workload.resident_since is not None and at >= workload.resident_since
    above = workload.phase is Phase.RUNNING and max(used.values(), default=0) > workload.spec.limit_bytes
    counted = workload.over_limit_polls if above or workload.phase is Phase.SUSPENDING else 0
    return updated(
        workload,
        memory_used=used,
        measured=workload.measured or since_ready,
        over_limit_polls=counted + above,
        trimmed=workload.trimmed and above,
    )


def _shown(workload: Workload, gpus: set[GpuUuid], at: float) -> Workload:
    """Note that what was asked for, or given back, before `at` is in this sample."""
    wanted, trimmed_at = workload.wanted, workload.trimmed_at
    if wanted is not None and wanted.gpu in gpus and at >= wanted.asked_at:
        workload = updated(workload, wanted=updated(wanted, shown=True))
    if trimmed_at is not None and at >= trimmed_at and gpus.issuperset(workload.current):
        workload = updated(workload, trim_shows_by=None)
    return workload


def _sampled(gpu: Gpu, reading: ev.GpuReading, at: float) -> Gpu:
    unplaced = dict(reading.unplaced or {})
    releasing = tuple(r for r in gpu.releasing if r.since > at or _still_seen(r, reading))
    known = {r.process for r in releasing}
    strangers = {p: b for p, b in unplaced.items() if p not in known}
    return updated(
        gpu,
        memory_used_bytes=reading.memory_used_bytes,
        utilisation=reading.utilisation,
        unplaced=tuple(sorted(strangers)),
        unplaced_bytes=_unplaced_bytes(strangers, reading),
        releasing=releasing,
    )


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
    return _with(
        state,
        Workload(
            id=event.workload,
            spec=event.spec,
            submitted_at=event.at,
            waiting_since=event.at,
            context_bytes=event.context_bytes,
            given_home=event.given_home,
        ),
    )


@_record.register
def _(event: ev.WorkloadAdopted, state: NodeState) -> NodeState:
    """It is where it is: its home begins there, and what it uses is no stranger's any more."""
    if event.workload in state.workloads:
        raise ValueError(f"workload {event.workload} is known already")
    used = {uuid: sum(use.bytes or 0 for use in uses) for uuid, uses in event.uses.items()}
    adopted = Workload(
        id=event.workload,
        spec=event.spec,
        submitted_at=event.at,
        phase=Phase.RUNNING,
        home=event.gpus if event.given_home is None else event.given_home,
        given_home=event.given_home,
        current=event.gpus,
        process=event.process,
        measured=bool(used),
        memory_used=used,
        context_bytes=event.context_bytes,
        saved_bytes=event.saved_bytes,
        unsaved=event.executing,
        cell_since=event.at if event.executing else None,
        resident_since=event.at,
        idle_since=event.at,
    )
    gpus = {uuid: _without_adopted(gpu, event.uses.get(uuid, ())) for uuid, gpu in state.gpus.items()}
    next_command = CommandId(max(state.next_command, event.command_id + 1))
    return _with(replace(state, gpus=gpus, next_command=next_command), adopted)


def _without_adopted(gpu: Gpu, uses: tuple[ev.PlacedUse, ...]) -> Gpu:
    adopted = {use.process for use in uses} & set(gpu.unplaced)
    freed = sum(use.bytes or 0 for use in uses if use.process in adopted)
    strangers = tuple(process for process in gpu.unplaced if process not in adopted)
    return replace(gpu, unplaced=strangers, unplaced_bytes=max(0, gpu.unplaced_bytes - freed) if strangers else 0)


@_record.register
def _(event: ev.WorkloadEvent, state: NodeState) -> NodeState:
    """Everything about one workload; about one that has ended there is nothing to record."""
    workload = state.workloads.get(event.workload)
    if workload is None:
        return state
    return _about(event, workload, state)


@singledispatch
def _about(event: ev.WorkloadEvent, workload: Workload, state: NodeState) -> NodeState:
    raise TypeError(f"no rule for {event!r} of {workload.id} in {state.at}")


@_about.register
def _(event: ev.WorkloadRespecified, workload: Workload, state: NodeState) -> NodeState:
    return _with(state, replace(workload, spec=event.spec))


@_about.register
def _(event: ev.HomeAssigned, workload: Workload, state: NodeState) -> NodeState:
    return _with(state, replace(workload, given_home=event.gpus))


@_about.register
def _(event: ev.WorkloadReleased, workload: Workload, state: NodeState) -> NodeState:
    return _with(state, replace(workload, release_reason=workload.release_reason or event.reason, wants_gpu=False))


@_about.register
def _(event: ev.SupervisorLost, workload: Workload, state: NodeState) -> NodeState:
    return _without(_let_go(state, workload, event.at), workload.id)


@_about.register
def _(event: ev.SuspendRequested, workload: Workload, state: NodeState) -> NodeState:
    if workload.spec.kind is Kind.COMMAND:
        return state
    off = replace(workload, wants_gpu=False, suspend_reason=event.reason, waiting_since=None, woken_by_cell=False)
    return _with(state, off)


@_about.register
def _(event: ev.ResumeRequested, workload: Workload, state: NodeState) -> NodeState:
    if workload.phase is Phase.FAILED:
        workload = transition(workload, ev.ResumeRequested, _phase_without_process(workload), failures=0)
        others = [w for w in gangs.fellows(state, workload) if w.phase is Phase.FAILED and w.release_reason is None]
        for other in others:
            again = transition(other, ev.ResumeRequested, Phase.QUEUED, failures=0)
            state = _with(state, _wanting(again, event.at))
    return _with(state, _wanting(replace(workload, woken_by_cell=False, suspend_reason=None), event.at))


@_about.register
def _(event: ev.KeepRequested, workload: Workload, state: NodeState) -> NodeState:
    return _with(state, replace(workload, keep_until=event.until))


@_about.register
def _(event: ev.MigrateRequested, workload: Workload, state: NodeState) -> NodeState:
    """A wish of one that runs; it holds until its process is ready again, there or elsewhere."""
    return _with(state, replace(workload, wish=event.gpu)) if workload.phase is Phase.RUNNING else state


@_about.register
def _(event: ev.CellStarted, workload: Workload, state: NodeState) -> NodeState:
    woken = workload.woken_by_cell or not workload.wants_gpu
    started = replace(workload, cell_since=event.at, woken_by_cell=woken, unsaved=True, interrupt=None, wished_bytes=0)
    return _with(state, _wanting(started, event.at))


@_about.register
def _(event: ev.CellFinished, workload: Workload, state: NodeState) -> NodeState:
    workload = replace(workload, cell_since=None, idle_since=event.at, interrupt=None)
    if workload.phase is Phase.RUNNING:
        workload = replace(workload, failures=0, unsaved=True)
    elif workload.woken_by_cell and not workload.present:
        workload = replace(workload, wants_gpu=False, woken_by_cell=False, waiting_since=None)
    return _with(state, workload)


@_about.register
def _(event: ev.StateSaved, workload: Workload, state: NodeState) -> NodeState:
    return _with(state, replace(workload, saved_bytes=event.saved_bytes, unsaved=workload.cell_since is not None))


@_about.register
def _(event: ev.WorkloadReported, workload: Workload, state: NodeState) -> NodeState:
    """Make up for what was said while nobody listened."""
    state = replace(state, unreported=state.unreported - {workload.id})
    cell_since = (workload.cell_since or event.at) if event.executing else None
    saved_bytes = workload.saved_bytes if event.saved_bytes is None else event.saved_bytes
    workload = replace(workload, cell_since=cell_since, saved_bytes=saved_bytes)
    if event.executing:
        workload = _wanting(workload, event.at)
    state = _with(state, workload)
    pending = workload.pending
    received = pending is None or event.command_id >= pending.command_id
    if event.process is not None:
        state = _with(state, replace(workload, process=event.process)) if workload.present else state
        if event.ready and received and pending is not None and pending.order is Order.START:
            return record(state, ev.ProcessReady(event.at, workload.id, pending.command_id))
        return state
    starting = pending is not None and pending.order is Order.START
    if not workload.present or starting:
        # A start is on its way to it, or being carried out: its answer is still to come.
        return state
    if received and pending is not None and pending.order is Order.SUSPEND and event.saved_bytes is not None:
        return record(state, ev.ProcessSuspended(event.at, workload.id, pending.command_id, event.saved_bytes))
    return _ended(state, workload, event.at, "it ended while the daemon was away", ev.ProcessExited)


@_about.register
def _(event: ev.MemoryTrimmed, workload: Workload, state: NodeState) -> NodeState:
    if workload.trim is None or workload.trim.command_id != event.command_id:
        return state
    return _with(state, trimmed(workload, event.at, workload.trim.deadline_at))


def trimmed(workload: Workload, at: float, shows_by: float) -> Workload:
    """Its trim is answered, or given up; the driver shows what that freed by `shows_by`."""
    return replace(workload, trim=None, trimmed=True, trimmed_at=at, trim_shows_by=shows_by, over_limit_polls=0)


@_about.register
def _(event: ev.MemoryWanted, workload: Workload, state: NodeState) -> NodeState:
    """Said again after a lost connection, it is the same allocation."""
    if workload.answer is not None and event.number <= workload.answer.number:
        return state
    deadline_at = event.at + state.policy.allocation_wait_s
    wanted = Wanted(event.number, event.gpu, event.bytes, event.held_bytes, event.at, deadline_at)
    known = workload.wanted is not None and event.number <= workload.wanted.number
    return state if known else _with(state, replace(workload, wanted=wanted))


@_about.register
def _(event: ev.CellInterrupted, workload: Workload, state: NodeState) -> NodeState:
    """What counts is that the cell ends, or that the deadline comes."""
    del event, workload
    return state


@_about.register
def _(event: ev.ProcessStarted, workload: Workload, state: NodeState) -> NodeState:
    return _with(state, replace(workload, process=event.process)) if workload.present else state


@_about.register
def _(event: ev.ProcessReady, workload: Workload, state: NodeState) -> NodeState:
    if not _answers(workload, event, Order.START):
        return state
    waited = event.at - (workload.pending.issued_at if workload.pending else event.at)
    ready = transition(
        workload,
        ev.ProcessReady,
        Phase.RUNNING,
        pending=None,
        waiting_since=None,
        woken_by_cell=False,
        suspend_reason=None,
        # Where it is now is where it was wished, or the wish could not be met.
        wish=None,
        moved_at=event.at if workload.wish is not None else workload.moved_at,
        resident_since=event.at,
        idle_since=event.at,
        last_move_s=workload.last_move_s + waited,
    )
    return _with(state, ready)


@_about.register
def _(event: ev.StartFailed, workload: Workload, state: NodeState) -> NodeState:
    pending = workload.pending
    older = pending is not None and pending.order is Order.START and pending.command_id != event.command_id
    if not workload.present or older:
        return state
    return _ended(state, workload, event.at, event.reason, ev.StartFailed)


@_about.register
def _(event: ev.ProcessSuspended, workload: Workload, state: NodeState) -> NodeState:
    if workload.phase is not Phase.SUSPENDING:
        return state
    took = event.at - (workload.pending.issued_at if workload.pending else event.at)
    state = _let_go(state, workload, event.at)
    saved = transition(
        _off_the_gpu(workload, event.at), ev.ProcessSuspended, Phase.SUSPENDED, saved_bytes=event.saved_bytes
    )
    return _with(state, replace(saved, last_move_s=took, failures=0))


@_about.register
def _(event: ev.SuspendFailed, workload: Workload, state: NodeState) -> NodeState:
    if not _answers(workload, event, Order.SUSPEND):
        return state
    failed_at = workload.suspend_failed_at if event.busy else event.at
    back = transition(workload, ev.SuspendFailed, Phase.RUNNING, pending=None, suspend_failed_at=failed_at)
    # The planner may have given it up for lost; while it has a process and no wish of its user's, it wants to stay.
    wants = workload.wants_gpu or workload.suspend_reason is None
    return _with(state, replace(back, wants_gpu=wants))


@_about.register
def _(event: ev.ProcessExited, workload: Workload, state: NodeState) -> NodeState:
    # Of an earlier process: a start is answered by ProcessStarted before its process can exit.
    stale = event.process is not None and event.process != workload.process
    # A stop that found no process answers a stop; it may have crossed with a newer start.
    if stale or not workload.present or (event.process is None and not _told_to_end(workload)):
        return state
    return _ended(state, workload, event.at, event.reason, ev.ProcessExited, event.code)


def _answers(workload: Workload, event: ev.CommandEvent, order: Order) -> bool:
    pending = workload.pending
    return pending is not None and pending.order is order and pending.command_id == event.command_id


def _wanting(workload: Workload, at: float) -> Workload:
    since = at if workload.waiting_since is None and not workload.present else workload.waiting_since
    return replace(workload, wants_gpu=workload.release_reason is None, waiting_since=since)


def _phase_without_process(workload: Workload) -> Phase:
    return Phase.QUEUED if workload.saved_bytes is None else Phase.SUSPENDED


def _let_go(state: NodeState, workload: Workload, at: float) -> NodeState:
    """Its process is gone; what it held counts as being released until the driver shows it free."""
    if workload.process is None:
        return state
    gpus = dict(state.gpus)
    for uuid in workload.current:
        if uuid in gpus and gpus[uuid].healthy:
            held = max(workload.used_bytes(uuid), workload.spec.request_bytes)
            releasing = Releasing(workload.process, workload.id, held, at)
            gpus[uuid] = replace(gpus[uuid], releasing=(*gpus[uuid].releasing, releasing))
    return replace(state, gpus=gpus)


def _off_the_gpu(workload: Workload, at: float) -> Workload:
    return replace(
        workload,
        current=(),
        process=None,
        pending=None,
        measured=False,
        trim=None,
        trimmed=False,
        trimmed_at=None,
        trim_shows_by=None,
        wanted=None,
        answer=None,
        wished_bytes=0,
        interrupt=None,
        over_limit_polls=0,
        memory_used={},
        resident_since=None,
        waiting_since=at if workload.wants_gpu else None,
    )


def _told_to_end(workload: Workload) -> bool:
    return workload.pending is not None and workload.pending.order in (Order.STOP, Order.END)


def above_limit(workload: Workload) -> bool:
    """Whether two samples in a row have shown more than its limit."""
    return workload.over_limit_polls >= _POLLS_ABOVE_LIMIT


def _ended(
    state: NodeState, workload: Workload, at: float, reason: str, trigger: type, code: int | None = None
) -> NodeState:
    """Its process ended, asked for (StopProcess) or by itself. `code`: its exit status, if that was told."""
    asked = _told_to_end(workload)
    state = _let_go(state, workload, at)
    if workload.release_reason is not None:
        return _without(state, workload.id)
    if gangs.is_member(workload.spec):
        return _member_ended(state, workload, at, reason, trigger, well=code == 0)
    if workload.spec.kind is Kind.COMMAND and not (asked and workload.spec.requeue):
        # A command that ended has nothing to come back for.
        return _without(state, workload.id)
    failures = workload.failures + (0 if asked and not above_limit(workload) else 1)
    return _off(state, workload, at, trigger, failures, reason)


def _member_ended(
    state: NodeState, workload: Workload, at: float, reason: str, trigger: type, *, well: bool
) -> NodeState:
    """What ended well is done; a death is counted in the whole gang; a stop is no death, unless for its own fault."""
    if well and not _told_to_end(workload):
        return _without(gangs.after_a_success(state, workload), workload.id)
    if _told_to_end(workload) and not above_limit(workload):
        return _off(state, workload, at, trigger, workload.failures, workload.gang_trouble or reason)
    failures = gangs.failures_with(state, workload, at)
    trouble = f"{workload.spec.name} of gang {workload.spec.gang} {reason}"
    state = gangs.after_a_death(state, workload, reason, at)
    return _off(state, replace(workload, gang_trouble=trouble), at, trigger, failures, trouble)


def _off(state: NodeState, workload: Workload, at: float, trigger: type, failures: int, reason: str) -> NodeState:
    """Without its process it queues again, or has failed for good."""
    phase = Phase.FAILED if failures >= state.policy.max_failures else _phase_without_process(workload)
    ended = transition(_off_the_gpu(workload, at), trigger, phase, failures=failures, last_move_s=0.0)
    if phase is Phase.FAILED:
        ended = replace(ended, last_reason=gangs.gave_up(failures, reason), waiting_since=None)
    return _with(state, ended)
