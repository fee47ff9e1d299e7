"""Where each request is counted.

On a plain server homes are ours to choose, and choosing again costs nothing by itself: only a workload that cannot
burst has to follow its home.

The rule: the sum of the requests at home on a Gpu stays within its capacity, whole Gpus are kept free on paper
(best fit), and an older or more important workload is admitted first.
"""

from __future__ import annotations

from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model.gangs import key_of
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.planning.homes import elastic
from nls_scheduler.core.planning.homes.admission import Admission
from nls_scheduler.core.planning.homes.paper import admission_order, held_by, no_room
from nls_scheduler.core.planning.making_room.rooms import out_of_service, why_unusable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.gangs import Gang, GangKey
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Homes, LookedAt


def assign_homes(state: NodeState, workloads: Iterable[Workload]) -> tuple[Homes, LookedAt]:
    """Homes for `workloads` (those that are neither released nor failed), and what they depend on."""
    admission, workloads, gangs = Admission(state), list(workloads), state.gangs
    ordered = sorted(workloads, key=admission_order)
    admission.keep_given([w for w in ordered if w.given_home is not None])
    homeless = admission.keep([w for w in ordered if w.given_home is None])
    homeless += admission.give_up_incomplete(gangs)
    result, ledger = admission.result, admission.ledger
    units = units_of(sorted(homeless, key=admission_order), gangs)
    without = {w.id for w in homeless}
    for gang in (gang for gang in gangs.values() if not gang.may_start):
        result.waits |= {w.id: gang.why_not() for w in gang.members if w.id in without}
    result.ledger = ledger
    if ledger is not None:
        ledger.ask(workloads, result.homes)
    if state.settling:
        _wait_for_who_runs(state, units, result)
    heads = [unit[0] for unit in units.values()]
    waiting: list[Workload] = []
    starves = admission.looked_at.until
    if ledger is None:
        admission.units = list(units.values())
    for head in heads if ledger is None else ledger.in_turn(heads):
        unit = units[head.id]
        result.line += [w.id for w in unit]
        changes = admission.exchanged
        if admission.admit_in_turn(unit):
            if admission.exchanged > changes:
                waiting = _try_again(admission, waiting, units)
            continue
        waiting += unit
        if admission.is_held_back(head):
            continue  # for its queue's sake: nobody keeps room free for it
        # Never where one of them is on a Gpu as long as nobody needs that, or wants none.
        starves_at = max(workload.in_line_since for workload in unit) + state.policy.starvation_s
        if state.at >= starves_at:
            admission.reserve_for(unit)
        else:
            starves = min(starves, starves_at)
    displaced = [w for w in admission.displaced if w.id not in result.homes]
    result.line += [w.id for w in displaced if w.id not in result.line]
    _keep_causes(result, workloads)
    _say_why(state, admission, [*waiting, *displaced])
    if not waiting and not displaced:
        elastic.grow(admission)
    if starves < inf:
        result.wake_at.append(starves)
    result.in_vain, result.starves_at, result.left = admission.in_vain(), starves, dict(admission.free)
    admission.looked_at.until = min((starves, admission.looked_at.until, *(t for t in result.wake_at if t > state.at)))
    return result, admission.looked_at


def _wait_for_who_runs(state: NodeState, units: dict[WorkloadId, list[Workload]], result: Homes) -> None:
    """Who is new could take what somebody has who runs, and has not told of itself yet: it is in line until then."""
    why = Why(Reason.JOURNAL_LOST, numbers=(state.policy.reconnect_grace_s,))
    for unit in [unit for unit in units.values() if not unit[0].present]:
        del units[unit[0].id]
        result.waits.update(dict.fromkeys((w.id for w in unit), why))
    result.wake_at.append(state.quiet_until)


def _try_again(
    admission: Admission, waiting: list[Workload], units: Mapping[WorkloadId, list[Workload]]
) -> list[Workload]:
    """Others have changed their homes: who waits goes before who comes later in the line. Returns who still waits."""
    for head in [w for w in waiting if w.id in units]:
        if admission.admit_in_turn(units[head.id]):
            return _try_again(admission, [w for w in waiting if w not in units[head.id]], units)
    return waiting


def _keep_causes(result: Homes, workloads: Iterable[Workload]) -> None:
    """Who has been given another home and is not there yet reads for whom, until it is or that one has no home."""
    for workload in workloads:
        move = workload.move
        if move is None or move.for_whom is None or workload.spec.may_borrow or not workload.present:
            continue
        given = move.to == result.homes.get(workload.id) != workload.current
        if given and move.for_whom in result.homes:
            result.moved_for.setdefault(workload.id, move.for_whom)


def _say_why(state: NodeState, admission: Admission, waiting: list[Workload]) -> None:
    holders = _holders(admission) if waiting else {}
    held: dict[tuple[str, ...], tuple[Why, ...]] = {}
    no_pool: dict[tuple[str, ...], Why | None] = {}
    told: dict[object, Why] = {}
    for workload in waiting:
        why = told.get(workload.spec.demand)
        if (why is None or why.kind is Reason.NO_ROOM) and (before := admission.kept_for(workload)) is not None:
            why = admission.is_held_back(workload) or Why(Reason.RESERVED, who=(before.mention,))
        elif why is None:
            # The same values as before where they are the same reasons: then nobody has to compare them again.
            last = state.plan[workload.id].reason if workload.id in state.plan else None
            pools = workload.spec.pools
            if pools not in held:
                held[pools], no_pool[pools] = _held_in(state, pools, holders, last), _no_pool(state, pools)
            why = no_pool[pools] or admission.is_held_back(workload) or _no_room(admission, workload, held[pools])
            why = told[workload.spec.demand] = last if last == why else why
        admission.result.waits[workload.id] = why


def units_of(homeless: list[Workload], gangs: Mapping[GangKey, Gang]) -> dict[WorkloadId, list[Workload]]:
    """Who is admitted with whom, by the first of them: a gang all or none; of one that cannot start, nobody."""
    heads: dict[GangKey, Workload] = {}
    units: dict[WorkloadId, list[Workload]] = {}
    for workload in homeless:
        key = key_of(workload.spec)
        if key is None:
            units[workload.id] = [workload]
        elif gangs[key].may_start:
            units.setdefault(heads.setdefault(key, workload).id, []).append(workload)
    return units


def _no_pool(state: NodeState, pools: tuple[str, ...]) -> Why | None:
    there = [pool for pool in state.policy.all_pools if pool.name in pools]
    if there and not any(pool.enabled for pool in there):
        return Why(Reason.POOL_OFF, names=tuple(pool.name for pool in there))
    if state.gpus and there and not any(pool.name in pools for pool in state.pools.values()):
        return Why(Reason.NO_GPU, names=tuple(pool.name for pool in there))
    return None if there else Why(Reason.NO_POOL, names=pools)


def _held_in(
    state: NodeState, pools: tuple[str, ...], holders: Mapping[GpuUuid, Why], last: Why | None
) -> tuple[Why, ...]:
    """Who holds the Gpus of these pools; the same values as in `last` where they are the same reasons."""
    of = state.pools
    held = [why for uuid, why in holders.items() if of[uuid].enabled and of[uuid].name in pools]
    held = held or [Why(Reason.NO_HOME if state.usable else Reason.NO_GPU)]
    known = () if last is None else last.because[: len(held)]
    return tuple(old if old == new else new for old, new in zip_longest(known, held))


def _no_room(admission: Admission, workload: Workload, held: tuple[Why, ...]) -> Why:
    """That there is none, and who has it."""
    ledger, policy = admission.ledger, admission.state.policy
    because = held if ledger is None else (*held, ledger.standing(workload, workload.spec.pools[0]))
    if workload.id in admission.result.spared_by:
        numbers = (policy.starvation_s, policy.max_moved_for_one * workload.fewest_gpus)
        because = (Why(Reason.MOVES_TOO_MANY, numbers=numbers), *because)
    return no_room(workload.spec, because)


def _holders(admission: Admission) -> dict[GpuUuid, Why]:
    """Who holds each Gpu on paper, of those that somebody holds or that get nobody."""
    state, held, out = admission.state, {}, out_of_service(admission.state)
    for gpu in sorted(state.gpus.values(), key=lambda g: g.index):
        why = held_by(gpu, sorted(admission.on_paper.members(gpu.uuid), key=admission_order))
        if gpu.uuid in out or (why is None and gpu.uuid not in state.usable):
            why = why_unusable(state, (gpu.uuid,))
        if why is not None:
            held[gpu.uuid] = why
    return held


def why_no_room(before: NodeState, after: NodeState, adopted: WorkloadId) -> Why | None:
    """Why a workload with a process cannot be taken up where it is; `None`: `after` keeps everybody's guarantee."""
    workload = after.workloads[adopted]
    for uuid in workload.current:
        now = sum(w.spec.request_bytes for w in after.on(uuid))
        if now > after.gpus[uuid].memory_total_bytes:
            return Why(Reason.WOULD_EXCEED, gpus=(uuid,))
    if not workload.home and workload.frozen is None:  # one that stands still holds nothing, and waits for a home
        return Why(Reason.NO_HOME)
    homeless = [w for w in before.workloads.values() if w.home and not after.workloads[w.id].home]
    return Why(Reason.WOULD_COST, who=(homeless[0].mention,)) if homeless else None
