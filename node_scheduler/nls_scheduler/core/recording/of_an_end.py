"""What it changes that a process has left its Gpus: what it held is on its way back, and who had it is off. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.gpu import Releasing
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.recording import of_a_gang
from nls_scheduler.core.recording.above_limit import above_limit

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def ended(
    state: NodeState, workload: Workload, at: float, reason: Why, trigger: type, code: int | None = None
) -> NodeState:
    """Its process ended, asked for (StopProcess) or by itself. `code`: its exit status, if that was told."""
    asked = told_to_end(workload)
    if asked and workload.pending is not None:
        reason = workload.pending.reason  # by which signal it ended then says nothing
    state = let_go(state, workload, at)
    if workload.release_reason is not None:
        return without(state, workload.id)
    if gangs.is_member(workload.spec):
        return _member_ended(state, workload, at, reason, trigger, well=code == 0)
    if workload.spec.kind is Kind.COMMAND and not (asked and workload.spec.requeue):
        # A command that ended has nothing to come back for.
        return without(state, workload.id)
    failures = workload.failures + (0 if asked and not _was_at_fault(workload) else 1)
    return _off(state, workload, at, trigger, failures, reason)


def _was_at_fault(workload: Workload) -> bool:
    """Whether it was above its limit when it was told to end, for whatever reason: a command in one sample already."""
    return workload.over_limit_polls > 0 if workload.spec.kind is Kind.COMMAND else above_limit(workload)


def _member_ended(
    state: NodeState, workload: Workload, at: float, reason: Why, trigger: type, *, well: bool
) -> NodeState:
    """What ended well is done; a death is counted in the whole gang; a stop is no death, unless for its own fault."""
    if well and not told_to_end(workload):
        return without(of_a_gang.after_a_success(state, workload), workload.id)
    if told_to_end(workload) and not _was_at_fault(workload):
        return _off(state, workload, at, trigger, workload.failures, workload.gang_trouble or reason)
    failures = of_a_gang.failures_with(state, workload, at)
    trouble = of_a_gang.death_of(workload, reason)
    state = of_a_gang.after_a_death(state, workload, trouble, at)
    return _off(state, replace(workload, gang_trouble=trouble), at, trigger, failures, trouble)


def _off(state: NodeState, workload: Workload, at: float, trigger: type, failures: int, reason: Why) -> NodeState:
    """Without its process it queues again, or has failed for good."""
    given_up = of_a_gang.why_given_up(state, workload, failures, reason)
    phase = phase_without_process(workload) if given_up is None else Phase.FAILED
    ended = transition(off_the_gpu(workload, at), trigger, phase, failures=failures, last_move_s=0.0)
    if given_up is not None:
        ended = replace(ended, last_reason=given_up, waiting_since=None)
    return state.having(ended)


def told_to_end(workload: Workload) -> bool:
    """Whether it was told to end its process, by its supervisor or by the daemon itself."""
    return workload.pending is not None and workload.pending.order in (Order.STOP, Order.END)


def phase_without_process(workload: Workload) -> Phase:
    """Suspended where something of it is saved, else as when it was new."""
    return Phase.QUEUED if workload.saved_bytes is None else Phase.SUSPENDED


def let_go(state: NodeState, workload: Workload, at: float) -> NodeState:
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


def off_the_gpu(workload: Workload, at: float) -> Workload:
    """On no Gpu, and without all that was true of its process alone. Its phase is still the one before."""
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
        over_limit_polls=0.0,
        memory_used={},
        freezable=False,
        freeze_trouble=None,
        frozen=None,
        perhaps_locked=False,
        suspend_trouble=None,
        resident_since=None,
        waiting_since=at if workload.wants_gpu else None,
    )


def without(state: NodeState, workload_id: WorkloadId) -> NodeState:
    """Without its record: it is done."""
    left = {k: w for k, w in state.workloads.items() if k != workload_id}
    return replace(state, workloads=left, unreported=state.unreported - {workload_id})
