"""Sentences that hold after every step. `check` raises InvariantError with the sentence that broke and the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.commands import (
    InterruptCell,
    StartProcess,
    StopProcess,
    SuspendProcess,
    TrimMemory,
    WorkloadCommand,
)
from nls_scheduler.core.model.gangs import fellows, gangs_of
from nls_scheduler.core.model.queues import TOLERANCE, Tree
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.planning.homes import elastic_counts
from nls_scheduler.core.planning.places.burst_moves import moves_of_last_hour
from nls_scheduler.core.recording.of_a_workload import above_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Pending, Workload


class InvariantError(AssertionError):
    """A sentence that must hold does not."""


def check(before: NodeState, state: NodeState, commands: tuple[Command, ...]) -> None:
    """Hold `state`, reached from `before` with `commands`, against every sentence."""
    broken = [
        *_of_requests(state),
        *_of_phases(state),
        *_of_waits(before, state),
        *_of_plans(state),
        *_of_queues(before, state),
        *_of_deadlines(state),
        *_of_starts(state, commands),
        *_of_commands(before, state, commands),
        *_of_gangs(state, commands),
        *_of_counts(state),
        *_of_allowances(state),
        *_of_rungs(before, state, commands),
    ]
    if broken:
        raise InvariantError("; ".join(broken))


def _of_requests(state: NodeState) -> Iterator[str]:
    for uuid, gpu in state.gpus.items():
        now = sum(w.spec.request_bytes for w in state.workloads.values() if uuid in w.current)
        if now > gpu.memory_total_bytes:
            yield f"requests now on {gpu.label} are more than it has: {now} > {gpu.memory_total_bytes}"
        # What nobody placed can take a home's room at any time, and a cluster's scheduler may give more homes than
        # there is room; such a home is reported, not forbidden.
        at_home = [w for w in state.workloads.values() if uuid in w.home]
        if any(w.given_home for w in at_home):
            continue
        home = sum(w.spec.request_bytes for w in at_home)
        if gpu.healthy and home > gpu.memory_total_bytes * state.policy.pool_of(gpu).oversubscribe:
            yield f"home requests on {gpu.label} are more than it has: {home} > {gpu.memory_total_bytes}"


def _of_phases(state: NodeState) -> Iterator[str]:
    for workload in state.workloads.values():
        has_gpu = workload.phase in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING)
        if has_gpu != bool(workload.current):
            yield f"{workload.id} is {workload.phase} with current {workload.current}"
        if not has_gpu and (workload.process is not None or workload.pending is not None):
            yield f"{workload.id} is {workload.phase} with a process or a command"
        if workload.phase is Phase.RUNNING and (workload.process is None or workload.pending is not None):
            yield f"{workload.id} runs without a process or with a command pending"
        if workload.phase is Phase.STARTING and not _pending_is(workload, Order.START):
            yield f"{workload.id} is starting without StartProcess"
        if workload.phase is Phase.SUSPENDING and not _pending_is(workload, Order.SUSPEND, Order.STOP, Order.END):
            yield f"{workload.id} is suspending without a command"
        waits = workload.wants_gpu and not has_gpu and workload.phase is not Phase.FAILED
        if waits and workload.waiting_since is None:
            yield f"{workload.id} waits, but since when is not known"


def _of_waits(before: NodeState, state: NodeState) -> Iterator[str]:
    """A cell that waits for its Gpu gets it, or is interrupted: nobody else ends the wish for it."""
    for workload in state.workloads.values():
        was = before.workloads.get(workload.id)
        over = workload.release_reason is not None or workload.phase is Phase.FAILED
        waits = was is not None and was.wants_gpu and was.cell_waits and workload.cell_waits
        if waits and not workload.wants_gpu and not over:
            yield f"a cell of {workload.id} waits, and nothing brings its Gpu back any more"


def _pending_is(workload: Workload, *orders: Order) -> bool:
    return workload.pending is not None and workload.pending.order in orders


def _of_plans(state: NodeState) -> Iterator[str]:
    for workload in state.workloads.values():
        entry = state.plan[workload.id]
        if not entry.reason and workload.release_reason is None:
            yield f"{workload.id} has no reason"
        stays = bool(state.policy.queues) and entry.target == workload.current
        if entry.target and not entry.home and not stays:
            yield f"{workload.id} is to run without being admitted"
        if entry.target and entry.target != entry.home and not workload.spec.may_borrow and not workload.present:
            yield f"{workload.id} may not borrow, and is to run away from home"
        if entry.target and not workload.spec.request_bytes <= entry.allowance_bytes <= workload.spec.limit_bytes:
            yield f"{workload.id} has an allowance outside its request and limit"
    for uuid, gpu in state.gpus.items():
        planned = sum(w.spec.request_bytes for w in state.workloads.values() if uuid in state.plan[w.id].target)
        if planned > gpu.memory_total_bytes:
            yield f"the plan puts more requests on {gpu.label} than it has"


def _of_queues(before: NodeState, state: NodeState) -> Iterator[str]:
    """Nobody gets a home, or more of one, beyond a limit, nor without being preemptible beyond a quota."""
    if not state.policy.queues:
        return
    tree, taken = Tree(state.policy.queues), _taken(state)
    for key, here in taken.items():
        workload, was = state.workloads[key], before.workloads.get(key)
        adopted = was is None and workload.present and not _pending_is(workload, Order.START)
        stays = was is not None and set(workload.home) <= set(was.home)
        if adopted or stays or workload.given_home is not None:
            continue
        had = {} if was is None else _homes_by_pool(before, was)
        for pool in (p for p, gpus in _homes_by_pool(state, workload).items() if len(gpus) > len(had.get(p, ()))):
            for queue in tree.chain(tree.leaf(workload.spec.queue)):
                members = [k for k in taken if queue in tree.chain(tree.leaf(state.workloads[k].spec.queue))]
                used = sum(taken[k].get(pool, 0.0) for k in members)
                firm = sum(taken[k].get(pool, 0.0) for k in members if not state.workloads[k].spec.preemptible)
                limit, quota = queue.limit_in(pool), queue.quota_in(pool)
                if limit is not None and used > limit + TOLERANCE:
                    yield f"{key} got {here[pool]} of {pool}, with which {queue.name} is above its limit"
                if quota is not None and not workload.spec.preemptible and firm > quota + TOLERANCE:
                    yield f"{key} got {here[pool]} of {pool}, with which {queue.name} is above its quota in firm use"


def _homes_by_pool(state: NodeState, workload: Workload) -> dict[str, list[Gpu]]:
    by_pool: dict[str, list[Gpu]] = {}
    for gpu in (state.gpus[uuid] for uuid in workload.home if uuid in state.gpus):
        by_pool.setdefault(state.policy.pool_of(gpu).name, []).append(gpu)
    return by_pool


def _taken(state: NodeState) -> dict[WorkloadId, dict[str, float]]:
    """What each has at home, by pool, in Gpus of the pool's largest size."""
    largest: dict[str, int] = {}
    for gpu in state.gpus.values():
        pool = state.policy.pool_of(gpu).name
        largest[pool] = max(largest.get(pool, 1), gpu.memory_total_bytes)
    return {
        workload.id: {
            pool: len(gpus) * workload.spec.request_bytes / largest[pool]
            for pool, gpus in _homes_by_pool(state, workload).items()
        }
        for workload in state.workloads.values()
        if workload.home
    }


def _of_starts(state: NodeState, commands: tuple[Command, ...]) -> Iterator[str]:
    """No start before a release: what is there, what is on its way out and what starts fit together."""
    for uuid in {uuid for c in commands if isinstance(c, StartProcess) for uuid in c.gpus}:
        gpu = state.gpus[uuid]
        taken = gpu.foreign_bytes + sum(r.bytes for r in gpu.releasing)
        for workload in state.workloads.values():
            if uuid in workload.current:
                taken += max(workload.size_bytes, workload.used_bytes(uuid))
        if taken > gpu.memory_total_bytes:
            yield f"a process starts on {gpu.label} before there is room: {taken} > {gpu.memory_total_bytes}"


def _of_commands(before: NodeState, state: NodeState, commands: tuple[Command, ...]) -> Iterator[str]:
    ids = [c.command_id for c in commands if isinstance(c, WorkloadCommand)]
    if ids != list(range(before.next_command, before.next_command + len(ids))):
        yield f"command ids are not consecutive: {ids} after {before.next_command}"
    targets = [c.workload for c in commands if isinstance(c, WorkloadCommand)]
    if len(set(targets)) != len(targets):
        yield "a workload got two commands in one step"
    for command in commands:
        if isinstance(command, WorkloadCommand):
            if not command.reason:
                yield f"command {command.command_id} has no reason"
            workload = state.workloads[command.workload]
            pending = _pending_of(workload, command)
            if pending is None or pending.command_id != command.command_id:
                yield f"command {command.command_id} is not pending"
            yield from _of_harm(before, state, command)


def _pending_of(workload: Workload, command: WorkloadCommand) -> Pending | None:
    if isinstance(command, InterruptCell):
        return workload.interrupt
    return workload.trim if isinstance(command, TrimMemory) else workload.pending


def _of_harm(before: NodeState, state: NodeState, command: WorkloadCommand) -> Iterator[str]:
    """A running cell is stopped for a guarantee at its deadline or because its workload ends, never for a burst."""
    workload, entry = state.workloads[command.workload], state.plan[command.workload]
    was = before.workloads.get(workload.id)
    asked = workload.suspend_reason is not None or workload.wish is not None or entry.deadline_at is not None
    if isinstance(command, SuspendProcess) and workload.kept(state.at) and not asked:
        yield f"{workload.id} is suspended for less than a guarantee while its user keeps it"
    if workload.cell_since is None or was is None or was.phase is not Phase.RUNNING:
        return
    if isinstance(command, InterruptCell) and (entry.deadline_at is None or was.interrupt is not None):
        yield f"{workload.id} is interrupted without a deadline, or twice in one cell"
    if isinstance(command, SuspendProcess):
        yield f"{workload.id} is suspended in mid-cell"
    overdue = entry.deadline_at is not None and entry.deadline_at <= state.at
    due = overdue or workload.release_reason is not None or above_limit(workload)
    if isinstance(command, StopProcess) and not due:
        yield f"{workload.id} is stopped in mid-cell before any deadline"


def _of_allowances(state: NodeState) -> Iterator[str]:
    """Everybody may use what they are allowed to at the same time."""
    for uuid, gpu in state.gpus.items():
        there = [state.plan[w] for w in state.workloads if uuid in state.plan[w].target]
        requests = sum(state.workloads[w].spec.request_bytes for w in state.workloads if uuid in state.plan[w].target)
        if sum(entry.allowance_bytes for entry in there) > max(requests, gpu.capacity_bytes):
            yield f"the allowances on {gpu.label} are more than it has"


def _of_rungs(before: NodeState, state: NodeState, commands: tuple[Command, ...]) -> Iterator[str]:
    """A trim is for somebody above their request, and once for each cause; a move for burst alone is within bounds."""
    for command in commands:
        was = before.workloads.get(command.workload) if isinstance(command, WorkloadCommand) else None
        if was is None or not isinstance(command, WorkloadCommand):
            continue
        workload, since = state.workloads[command.workload], state.plan[command.workload].trim_since
        if isinstance(command, TrimMemory) and not above_limit(workload):
            if since is None or workload.over_request_bytes <= 0:
                yield f"{workload.id} is trimmed without a cause"
            elif was.trimmed_at is not None and was.trimmed_at >= since:
                yield f"{workload.id} is trimmed twice for what began at {since}"
        recent = moves_of_last_hour(workload.burst_moves, state.at)
        if workload.burst_moves != was.burst_moves and len(recent) > max(1, state.policy.max_moves_per_hour):
            yield f"{workload.id} has moved {len(recent)} times for burst alone within an hour"


def _of_gangs(state: NodeState, commands: tuple[Command, ...]) -> Iterator[str]:
    """A gang is admitted, planned and started whole or not at all."""
    started = {c.workload for c in commands if isinstance(c, StartProcess)}
    for gang in gangs_of(state.workloads.values()).values():
        targets = [bool(state.plan[w.id].target) for w in gang.members]
        if any(targets) and not (all(targets) and gang.whole):
            yield f"the plan gives Gpus to some of gang {gang.name} only"
        absent = [w for w in gang.members if not w.present]
        if any(w.home for w in absent) and not (gang.whole and all(w.home for w in gang.members)):
            yield f"a part of gang {gang.name} is admitted"
        if started & {w.id for w in gang.members} and any(w.phase is not Phase.STARTING for w in gang.members):
            yield f"a part of gang {gang.name} is started"


def _of_counts(state: NodeState) -> Iterator[str]:
    """Nobody has fewer Gpus than it asks for, nor more; one of several is never on a slice."""
    for workload in state.workloads.values():
        for gpus in (workload.home, state.plan[workload.id].target, workload.current):
            if len(set(gpus)) != len(gpus):
                yield f"{workload.id} has one Gpu twice: {gpus}"
        target, spec = state.plan[workload.id].target, workload.spec
        if target and not workload.present and not spec.gpu_count <= len(target) <= elastic_counts.most(spec):
            yield f"{workload.id} is to start on {len(target)} Gpus"
        if len(target) > 1 and any(uuid in state.gpus and state.gpus[uuid].parent for uuid in target):
            yield f"{workload.id} spans a slice"


def _of_deadlines(state: NodeState) -> Iterator[str]:
    """Only a guarantee sets a deadline: somebody within their request, or a Gpu that is pressed from outside.

    A gang leaves whole, by the deadline of the one that is in the way.
    """
    for workload in state.workloads.values():
        if state.plan[workload.id].deadline_at is None:
            continue
        leaving = [workload, *fellows(state, workload)]
        left = {uuid for w in leaving for uuid in w.current}
        claims = (
            other.within_request and set(state.plan[other.id].target) & left
            for other in state.workloads.values()
            if other not in leaving
            and (other.phase is not Phase.RUNNING or other.current != state.plan[other.id].target)
        )
        pressed = any(g in state.gpus and state.gpus[g].pressed_since is not None for g in left)
        if not pressed and not any(claims):
            yield f"{workload.id} has a deadline, and no guarantee waits for it to leave"
