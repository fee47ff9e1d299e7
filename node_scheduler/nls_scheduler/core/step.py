"""`step(state, event) -> (state, commands)`: record the fact, plan again, order the next legal thing for each workload.

Release before acquire, on evidence: the planner counts memory that is being released as free, `has_room` does not hand
it out until the driver shows it free.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.commands import (
    ReportRefusal,
    SetTimer,
    StartProcess,
    ThawProcess,
)
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.values import replace, updated
from nls_scheduler.core.model.workload import Move, Order, Phase
from nls_scheduler.core.orders.beside_who_comes import beside_who_comes
from nls_scheduler.core.orders.giving import give
from nls_scheduler.core.orders.next_order import keep_limit, next_order
from nls_scheduler.core.orders.refusals import refusal
from nls_scheduler.core.orders.who_would_stay import SentOffEarly
from nls_scheduler.core.planning.claims import settle_claims
from nls_scheduler.core.planning.line import joined
from nls_scheduler.core.planning.places import trims
from nls_scheduler.core.planning.places.failed_allocations import answer_wanted
from nls_scheduler.core.planning.plan import make_plan
from nls_scheduler.core.recording.of_a_workload import not_suspended, trimmed
from nls_scheduler.core.recording.of_the_node import record

if TYPE_CHECKING:
    from collections.abc import Collection

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Pending, Workload


def step(state: NodeState, event: Event) -> tuple[NodeState, tuple[Command, ...]]:
    """The state after `event` and the commands it leads to. Pure: the same input gives the same output."""
    before = state
    state = facts = _note_pressure(settle_claims(_give_up_what_is_late(_forget_the_ended(record(before, event)))))
    if before.settled and (newcomers := _all_that_is_new(before, state)) is not None:
        if not newcomers:
            return replace(state, settled=True), ()
        if len(newcomers) == 1 and (with_one_more := joined(state, newcomers[0])) is not None:
            return replace(state, plan=with_one_more, settled=True), ()
    plan = make_plan(state)
    planned = [_planned(state, workload, plan.entries[key]) for key, workload in state.workloads.items()]
    changed = [new for new, old in zip(planned, state.workloads.values(), strict=True) if new is not old]
    state = replace(state.having(*changed), plan=plan.entries, remembered=plan.remembered, weighed=plan.weighed)
    state = answer_wanted(state)
    commands: list[Command] = []
    whom = () if state.quiet else [w.id for w in state.workloads.values() if not _is_at_rest(w, plan.entries[w.id])]
    in_order = gangs.side_by_side(state, whom) if whom else []
    early = SentOffEarly(in_order)
    wakes = [] if plan.wake_at is None else [plan.wake_at]
    for workload_id in in_order:
        entry, workload = plan.entries[workload_id], state.workloads[workload_id]
        decided = next_order(state, workload, entry) or keep_limit(workload) or trims.order(workload, entry)
        if decided is Order.START and workload.sent_off_early and not early.may_start(state, workload):
            waits = replace(entry, reason=Why(Reason.WOULD_LEAVE, gpus=entry.target))
            decided, state = None, replace(state, plan={**state.plan, workload_id: waits})
            wakes.append(early.starts_anyway_at(state, workload))
        refused = None if decided is None else refusal(state, workload, entry, decided)
        if refused != workload.refused:
            workload = replace(workload, refused=refused)
            state = state.having(workload)
            commands += [] if decided is None or refused is None else [ReportRefusal(workload_id, decided, refused)]
        if decided is not None and refused is None:
            state, command = give(state, workload, entry, decided)
            commands.append(command)
    if any(isinstance(command, StartProcess | ThawProcess) for command in commands):
        state = beside_who_comes(state)
    at = _next_timer_at(state, wakes)
    if at is not None:
        commands.append(SetTimer(at=at))
    timer_at = state.timer_at if at is None else at
    return replace(state, settled=state.workloads == facts.workloads, timer_at=timer_at), tuple(commands)


def _is_at_rest(workload: Workload, entry: PlanEntry) -> bool:
    """Whether it is to stay on no Gpu, or runs where it is to be, within its limit, and keeps what it holds."""
    to_end = workload.frozen is not None and workload.release_reason is not None
    if entry.target != workload.current or workload.refused is not None or to_end:
        return False
    within = entry.trim_since is None and not workload.over_limit_polls
    return not workload.current or (workload.phase is Phase.RUNNING and within)


def _all_that_is_new(before: NodeState, state: NodeState) -> list[Workload] | None:
    """The workloads that are new, if else `state` has only what no plan reads, and a later time; `None`: it has more.

    What no plan reads is the use of Gpus, and cells where they count for nothing: most samples of an idle node have no
    more than that, and most cells of a crowded one.
    """
    if before.timer_at is not None and state.at >= before.timer_at:
        return None
    newcomers = []
    for key, workload in state.workloads.items():
        old_one = before.workloads.get(key)
        if old_one is None:
            newcomers.append(workload)
        elif workload is not old_one and _without_its_cell(before, old_one, workload) != old_one:
            return None
    if len(state.workloads) - len(newcomers) < len(before.workloads) or state.gpus.keys() != before.gpus.keys():
        return None
    same = {
        uuid: updated(gpu, utilisation=old.utilisation)
        for uuid, gpu in state.gpus.items()
        if (old := before.gpus.get(uuid)) is not None
    }
    is_all = before == replace(state, gpus=same, workloads=before.workloads, settled=True, at=before.at)
    return newcomers if is_all else None


def _without_its_cell(before: NodeState, old: Workload, workload: Workload) -> Workload:
    """`workload` with the cell and the times that it had before, where no plan reads them; else as it is.

    No plan reads those of one that has neither a home nor a Gpu. Nor of one that stays where it runs and holds what it
    held, unless the last plan has weighed there who is to leave, or may be moved (`NodeState.weighed`).
    """
    cells = {"cell_since": old.cell_since, "idle_since": old.idle_since, "unsaved": old.unsaved}
    if not workload.home and not workload.present:
        return replace(workload, **cells, woken_by_cell=old.woken_by_cell)
    entry = before.plan[old.id]
    stays = workload.phase is Phase.RUNNING and entry.target == workload.current and not entry.has_to_act
    if not stays or workload.place_facts != old.place_facts or not before.weighed.isdisjoint(workload.current):
        return workload
    return replace(workload, **cells, saved_bytes=old.saved_bytes)


def _planned(state: NodeState, workload: Workload, entry: PlanEntry) -> Workload:
    """With what lasts of the plan: the home, since when deadlines count, and where it is being sent."""
    stays = entry.deadline_at is None and entry.cause is None and entry.bound is None and workload.move is None
    known = entry.home == workload.home and (workload.home_since is not None) is bool(entry.home)
    if stays and known and workload.told_since is None:
        return workload  # as most do
    home_since = _since(workload.home_since, state.at) if entry.home else None
    told_since = _since(workload.told_since, state.orders_from) if entry.deadline_at is not None else None
    move = _move(workload, entry) if workload.present or entry.bound is not None else None
    lasts = (entry.home, home_since, told_since, move)
    if lasts == (workload.home, workload.home_since, workload.told_since, workload.move):
        return workload
    return replace(workload, home=entry.home, home_since=home_since, told_since=told_since, move=move)


def _move(workload: Workload, entry: PlanEntry) -> Move | None:
    """Of one that is on a Gpu, or bound to one. Who is off its Gpu goes on for whomever it left it."""
    if entry.bound is not None:
        for_whom = entry.cause if workload.present or workload.move is None else workload.move.for_whom
        return Move((entry.bound,), for_whom)
    follows = entry.cause is not None and not workload.spec.may_borrow
    return Move(entry.home, entry.cause) if follows and entry.home != workload.current else None


def _forget_the_ended(state: NodeState) -> NodeState:
    released = [w for w in state.workloads.values() if w.release_reason is not None]
    ended = [w.id for w in released if not w.present and w.frozen is None]
    return replace(state, workloads={k: w for k, w in state.workloads.items() if k not in ended}) if ended else state


def _give_up_what_is_late(state: NodeState) -> NodeState:
    """Trims, and suspends that no guarantee waits for: neither says that anything is wrong with the process."""
    trims = [w for w in state.workloads.values() if w.trim is not None and state.at >= w.trim.deadline_at]
    state = state.having(*(trimmed(workload, state.at, state.at) for workload in trims))
    ordered = [(w, w.pending) for w in state.workloads.values() if w.pending is not None]
    suspends = [(workload, order) for workload, order in ordered if _is_suspended_in_vain(state, workload, order)]
    return state.having(
        *(
            not_suspended(workload, state.at, Why(Reason.NOT_SAVED, numbers=(order.allowed_s,)))
            for workload, order in suspends
        )
    )


def _is_suspended_in_vain(state: NodeState, workload: Workload, order: Pending) -> bool:
    is_late = order.order is Order.SUSPEND and state.at >= order.deadline_at and not state.quiet
    return is_late and workload.release_reason is None and workload.told_since is None


def _note_pressure(state: NodeState) -> NodeState:
    """Remember since when the requests on a Gpu do not fit beside what is used there, for the deadline."""
    claimed = {uuid for workload in state.workloads.values() for uuid in workload.home}
    changed = {}
    for uuid, gpu in state.gpus.items():
        present = state.on(uuid)
        over_bytes = sum([w.size_bytes for w in present]) - gpu.capacity_bytes
        over_full = over_bytes > 0 and over_bytes > gangs.spared_bytes(present, lambda w: w.size_bytes)
        intruded = gpu.has_foreigners and any(w.borrowed for w in present)
        pressed = over_full or intruded or (bool(present) and not gpu.healthy)
        unclaimed_since = None if uuid in claimed else _since(gpu.unclaimed_since, state.at)
        pressed_since = _since(gpu.pressed_since, state.at) if pressed else None
        if (unclaimed_since, pressed_since) != (gpu.unclaimed_since, gpu.pressed_since):
            changed[uuid] = replace(gpu, unclaimed_since=unclaimed_since, pressed_since=pressed_since)
    return replace(state, gpus={**state.gpus, **changed}) if changed else state


def _since(before: float | None, now: float) -> float:
    return now if before is None else before


def _next_timer_at(state: NodeState, wakes: Collection[float]) -> float | None:
    """When to be woken because a deadline passes, or at one of `wakes`; `None`: never, or as is already asked for."""
    times = [*wakes, state.quiet_until] if state.quiet else [*wakes]
    for workload in state.workloads.values():
        if workload.pending or workload.trim or workload.wanted:
            times += [p.deadline_at for p in (workload.pending, workload.trim, workload.wanted) if p is not None]
        if workload.trim_shows_by is not None:
            times.append(workload.trim_shows_by)
    times += [r.since + state.policy.stop_timeout_s for g in state.gpus.values() for r in g.releasing]
    next_at = min((t for t in times if state.at < t < inf), default=None)
    return None if next_at == state.timer_at else next_at
