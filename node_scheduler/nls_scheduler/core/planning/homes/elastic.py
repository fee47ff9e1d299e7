"""The homes of elastic commands: they grow over Gpus that nobody wants, and shrink for whoever wants them. Pure.

The fewest Gpus of one are guaranteed. Those above are its own until somebody else's home needs them: then it starts
again on fewer, if it may be started again; one that may not keeps what it got when it started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.topology import CLOSEST_FIRST, worst_link
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.paper import admission_order
from nls_scheduler.core.planning.homes.repacking import repack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Paper


def grow(paper: Paper) -> None:
    """Elastic ones get what nobody else wants, in order of admission."""
    homes = paper.result.homes
    elastics = [w for key in homes if (w := paper.state.workloads[key]).spec.elastic and w.given_home is None]
    for workload in sorted(elastics, key=admission_order):
        home = homes[workload.id]
        paper.looked_at.places = True
        missing = workload.spec.gpu_counts[0] - len(home)
        extra = _extra(paper, workload, home)[:missing] if missing > 0 else []
        if extra:
            paper.take(workload)
            while extra and not paper.may_have_home(workload, (*home, *extra)):
                extra.pop()
            paper.give(workload, paper.in_order((*home, *extra)))


def keep_where_it_fits(paper: Paper, workloads: Iterable[Workload]) -> None:
    """One that is to start again and needs more than its request has its home where that is beside others' requests.

    So as far as these are enough Gpus: else it waits for all that it has.
    """
    for workload in workloads:
        if not workload.spec.resizable:
            continue
        paper.looked_at.costs = True
        home = paper.result.homes[workload.id]
        if not workload.present and not workload.within_request:
            fits = tuple(uuid for uuid in home if _has_room_beside_requests(paper, workload, uuid))
            if fits != home and len(fits) >= workload.spec.gpu_count:
                _change(paper, workload, fits)


def _has_room_beside_requests(paper: Paper, workload: Workload, uuid: GpuUuid) -> bool:
    """Whether `uuid` has, beside the requests of others, what `workload` needs there."""
    own = workload.spec.request_bytes if uuid in paper.result.homes.get(workload.id, ()) else 0
    return paper.free[uuid] + own >= workload.return_bytes


def _extra(paper: Paper, workload: Workload, home: tuple[GpuUuid, ...]) -> list[GpuUuid]:
    """The Gpus that it may have now beside `home`, those first that are best connected with all of that."""
    gpus = paper.state.gpus
    own = [gpus[uuid] for uuid in home if uuid in gpus]
    extra: list[Gpu] = []
    if any(gpu.parent is not None for gpu in own):
        return []  # a process sees one slice at most, and nothing besides
    for uuid, gpu in gpus.items():
        if uuid in home or gpu.parent is not None or not paper.is_of_its_pool(home, uuid):
            continue
        if not _has_room_beside_requests(paper, workload, uuid) or not paper.has_room_in_fact(workload, uuid):
            continue
        at = _grows_at(paper.state, workload, gpu) if paper.is_offered(workload, uuid) else None
        if at is not None and at > paper.at:
            paper.result.wake_at.append(at)
        elif at is not None:
            extra.append(gpu)
    extra.sort(key=lambda gpu: (CLOSEST_FIRST.index(worst_link((*own, gpu))), gpu.index))
    return [gpu.uuid for gpu in extra]


def shrink(paper: Paper, newcomer: Workload) -> bool:
    """Admit `newcomer` on Gpus that elastic ones have above their fewest; no more is taken than it needs."""
    return _admit_where_given(paper, newcomer, lambda *_: False)


def shrink_and_repack(paper: Paper, newcomer: Workload) -> bool:
    """As `shrink`, where others besides have to be given another home."""
    return _admit_where_given(paper, newcomer, repack)


def _admit_where_given(paper: Paper, newcomer: Workload, otherwise: Callable[[Paper, Workload], bool]) -> bool:
    """Admit `newcomer` as soon as elastic ones have given enough; or else `otherwise`, when they have given all."""
    homes, given = paper.result.homes, []
    givers = _givers(paper.state.workloads, homes, newcomer) if paper.resizes else []
    if not givers:
        return False
    before, checkpoint = dict(homes), paper.checkpoint()
    for giver, uuid in [(one, uuid) for one in givers for uuid in _to_give(paper, one, newcomer)]:
        _give_up(paper, giver, uuid)
        given.append((giver, uuid))
        home = paper.best_fit(newcomer)
        if home is not None:
            paper.give(newcomer, home)
            break
    if newcomer.id not in homes and not otherwise(paper, newcomer):
        paper.roll_back(checkpoint)
        return False
    for giver, uuid in given:
        if paper.has_home_room(giver, uuid):
            _change(paper, giver, (*homes[giver.id], uuid))
    changed = {giver.id for giver, _ in given if homes[giver.id] != before[giver.id]}
    paper.result.moved_for.update(dict.fromkeys(changed, newcomer.id))
    return True


def keep_within_limit(paper: Paper, newcomer: Workload) -> bool:
    """Elastic ones of its queues give back what these have with `newcomer` above what they may. Whether any had to."""
    ledger, homes = paper.ledger, paper.result.homes
    pool = None if ledger is None else next(iter(ledger.pools_of(homes[newcomer.id])), None)
    changed = False
    while ledger is not None and pool is not None and (above := ledger.above_limit(newcomer, pool)) is not None:
        there = {key: home for key, home in homes.items() if pool in ledger.pools_of(home)}
        givers = _givers(paper.state.workloads, there, newcomer)
        givers = [w for w in givers if not (above.only_firm and w.spec.preemptible)]
        giver = next((w for w in givers if above.queue in ledger.tree.chain(ledger.leaf(w))), None)
        if giver is None:
            break
        _give_up(paper, giver, _to_give(paper, giver, newcomer)[0])
        paper.result.moved_for[giver.id] = newcomer.id
        changed = True
    return changed


def _to_give(paper: Paper, giver: Workload, newcomer: Workload) -> list[GpuUuid]:
    """What `giver` has above its fewest: Gpus first that would then take `newcomer`, and do not yet.

    Then those that would with those moved elsewhere who can be.
    """
    home, request = paper.result.homes[giver.id], newcomer.spec.request_bytes
    of_use = {uuid for pool in paper.pools_for(newcomer) for uuid in paper.open_gpus(newcomer, pool)}

    def rank(uuid: GpuUuid) -> tuple[bool, bool, bool, int]:
        lacking = uuid in of_use and not paper.has_home_room(newcomer, uuid)
        room = paper.free[uuid] + paper.cost_bytes(giver, uuid)
        movable = sum(paper.cost_bytes(w, uuid) for w in paper.on_paper.members(uuid) if w.spec.movable)
        return not lacking, room < request, room + movable < request, -paper.state.gpus[uuid].index

    return sorted(home, key=rank)[: giver.spec.spare(len(home))]


def _give_up(paper: Paper, giver: Workload, uuid: GpuUuid) -> None:
    _change(paper, giver, tuple(other for other in paper.result.homes[giver.id] if other != uuid))


def _change(paper: Paper, workload: Workload, home: tuple[GpuUuid, ...]) -> None:
    paper.take(workload)
    paper.give(workload, paper.in_order(home))


def _givers(
    workloads: Mapping[WorkloadId, Workload], homes: Mapping[WorkloadId, tuple[GpuUuid, ...]], newcomer: Workload
) -> list[Workload]:
    """Who can give Gpus back for `newcomer`: lowest priority first, then who has lost the least by starting again."""
    having = [workloads[key] for key, home in homes.items() if workloads[key].spec.spare(len(home))]
    return sorted(
        (w for w in having if w.id != newcomer.id and w.given_home is None),
        key=lambda w: (w.spec.priority, w.present, -(w.resident_since or 0.0), -w.submitted_at, w.id),
    )


def _grows_at(state: NodeState, workload: Workload, gpu: Gpu) -> float | None:
    """From when on `workload` may have `gpu` besides: at once before it starts; `None`: not as things are.

    A restart costs work, so that it has run, and the Gpu has been nobody's home, for the cool-down.
    """
    if not workload.present:
        return state.at
    if not workload.spec.resizable or workload.phase is not Phase.RUNNING or workload.resident_since is None:
        return None
    if gpu.unclaimed_since is None or gpu.has_foreigners or gpu.unplaced:
        return None
    return max(workload.resident_since, gpu.unclaimed_since) + state.policy.cool_down_s
