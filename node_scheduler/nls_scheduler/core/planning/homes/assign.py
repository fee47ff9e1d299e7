"""Where each request is counted.

On a plain server homes are ours to choose, and choosing again costs nothing by itself: only a workload that cannot
burst has to follow its home.

The rule: the sum of the requests at home on a Gpu stays within its capacity, whole Gpus are kept free on paper
(best fit), and an older or more important workload is admitted first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.gangs import gangs_of, key_of
from nls_scheduler.core.planning.homes import elastic
from nls_scheduler.core.planning.homes.admission import Admission
from nls_scheduler.core.planning.homes.paper import Homes, Paper, admission_order
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.gangs import Gang, GangKey
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def assign_homes(state: NodeState, workloads: Iterable[Workload]) -> Paper:
    """Homes for `workloads` (those that are neither released nor failed), on a paper on which they may be exchanged."""
    admission, workloads, gangs = Admission(state), list(workloads), gangs_of(state.workloads.values())
    ordered = sorted(workloads, key=admission_order)
    admission.keep_given([w for w in ordered if w.given_home is not None])
    homeless = admission.keep([w for w in ordered if w.given_home is None])
    homeless += admission.give_up_incomplete(gangs)
    result, ledger = admission.result, admission.ledger
    units = _units(sorted(homeless, key=admission_order), gangs, result)
    if ledger is not None:
        ledger.ask(workloads, result.homes)
    heads = [unit[0] for unit in units.values()]
    waiting: list[Workload] = []
    for position, head in enumerate(heads if ledger is None else ledger.in_turn(heads), start=1):
        unit = units[head.id]
        result.line += [w.id for w in unit]
        changes = admission.exchanged
        with admission.turn_of(unit):
            admitted = admission.admit_together(unit)
        if admitted:
            if admission.exchanged > changes:
                waiting = _try_again(admission, waiting, units)
            continue
        waiting += unit
        starves_at = _starves_at(state, unit)
        if admission.is_held_back(head) or starves_at is None:
            continue  # for its queue's sake, or on a Gpu as long as nobody needs that: nobody keeps room free for it
        if state.at >= starves_at:
            admission.reserve_for(unit)
        elif len(heads) > position:
            result.wake_at.append(starves_at)
    displaced = [w for w in admission.displaced if w.id not in result.homes]
    result.line += [w.id for w in displaced if w.id not in result.line]
    _keep_causes(state, result, workloads)
    _say_why(state, admission, [*waiting, *displaced])
    if not waiting and not displaced:
        elastic.grow(admission)
    return admission


def _try_again(
    admission: Admission, waiting: list[Workload], units: Mapping[WorkloadId, list[Workload]]
) -> list[Workload]:
    """Others have changed their homes: who waits goes before who comes later in the line. Returns who still waits."""
    for head in [w for w in waiting if w.id in units]:
        with admission.turn_of(units[head.id]):
            admitted = admission.admit_together(units[head.id])
        if admitted:
            return _try_again(admission, [w for w in waiting if w not in units[head.id]], units)
    return waiting


def _keep_causes(state: NodeState, result: Homes, workloads: Iterable[Workload]) -> None:
    """Who has been given another home and is not there yet reads for whom, until it is."""
    for workload in workloads:
        move = workload.move
        if move is None or move.for_whom is None or workload.spec.may_borrow or not workload.present:
            continue
        given = move.to == result.homes.get(workload.id) != workload.current
        if given and move.for_whom in state.workloads:
            result.moved_for.setdefault(workload.id, move.for_whom)


def _say_why(state: NodeState, admission: Admission, waiting: list[Workload]) -> None:
    held = ""
    for workload in waiting:
        why = admission.is_held_back(workload)
        if why is None and (before := admission.kept_for(workload)) is not None:
            why = f"room is reserved for {before.spec.name}, which has waited longer"
        elif why is None:
            held = held or "; ".join(_holders(state, admission.result)) or "this node has no GPU in service"
            why = f"no room for {_demand(workload)}: {held}"
            if admission.ledger is not None:
                why += f"; {admission.ledger.standing(workload, workload.spec.pools[0])}"
        admission.result.waits[workload.id] = why


def _units(homeless: list[Workload], gangs: Mapping[GangKey, Gang], result: Homes) -> dict[WorkloadId, list[Workload]]:
    """Who is admitted with whom, by the first of them: a gang all or none; of one that cannot start, nobody."""
    heads: dict[object, Workload] = {}
    units: dict[WorkloadId, list[Workload]] = {}
    for workload in homeless:
        key = key_of(workload.spec)
        if key is not None and not gangs[key].may_start:
            result.waits[workload.id] = gangs[key].why_not()
        else:
            head = heads.setdefault(workload.id if key is None else key, workload)
            units.setdefault(head.id, []).append(workload)
    return units


def _demand(workload: Workload) -> str:
    spec = workload.spec
    gpus = "one GPU" if spec.gpu_count == 1 else f"each of {spec.gpu_count} GPUs"
    gang = "" if spec.gang is None else f" for each of the {spec.gang_size} members of gang {spec.gang} at once"
    return f"{format_bytes(spec.request_bytes)} on {gpus}{gang}"


def _starves_at(state: NodeState, unit: list[Workload]) -> float | None:
    """From when on room is kept free for `unit`; `None`: not while one of it is on a Gpu, or wants none."""
    since = [w.waiting_since for w in unit if w.waiting_since is not None]
    return max(since) + state.policy.starvation_s if len(since) == len(unit) else None


def _holders(state: NodeState, result: Homes) -> list[str]:
    """Who holds each Gpu on paper, as sentences."""
    names: dict[GpuUuid, list[str]] = {uuid: [] for uuid in state.gpus}
    for workload in sorted((state.workloads[key] for key in result.homes), key=admission_order):
        for uuid in result.homes[workload.id]:
            names[uuid].append(workload.spec.name)
    held = []
    for gpu in sorted(state.gpus.values(), key=lambda g: g.index):
        names[gpu.uuid] += [owner.name for owner in gpu.owners]
        if gpu.unplaced_bytes and not gpu.owners:
            names[gpu.uuid].append(f"other processes ({format_bytes(gpu.unplaced_bytes)})")
        if not gpu.healthy:
            held.append(f"{gpu.label} is out of service")
        elif names[gpu.uuid]:
            held.append(f"{gpu.label} is held by {' and '.join(names[gpu.uuid])}")
    return held


def why_no_room(before: NodeState, after: NodeState, adopted: WorkloadId) -> str | None:
    """Why a workload with a process cannot be taken up where it is; `None`: `after` keeps everybody's guarantee."""
    workload = after.workloads[adopted]
    for uuid in workload.current:
        now = sum(w.spec.request_bytes for w in after.workloads.values() if uuid in w.current)
        if now > after.gpus[uuid].memory_total_bytes:
            return f"the requests on {after.gpus[uuid].label} would be more than it has"
    if not workload.home:
        return "its request fits on no GPU on paper"
    homeless = [w for w in before.workloads.values() if w.home and not after.workloads[w.id].home]
    return f"{homeless[0].spec.name} would lose its guarantee" if homeless else None
