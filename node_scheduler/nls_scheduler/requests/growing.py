"""A change of what a workload asks for takes nobody's guarantee away. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.queues import Tree
from nls_scheduler.core.planning.homes.paper import Paper
from nls_scheduler.core.planning.homes.queue_ledger import Ledger
from nls_scheduler.wire.errors import impossible

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.wire.errors import Problem


def check(before: NodeState, after: NodeState, changed: WorkloadId) -> None:
    """Raises Problem where somebody's guarantee would not hold any more; `after` is `before` with the change.

    What was admitted first with less would otherwise go before who was admitted later, with all that it grows to. Where
    there are queues, it takes only from whom it could take as a newcomer that asks for as much. Who asks for more than
    there is room for keeps what it has.
    """
    workload, was = after.workloads[changed], before.workloads[changed]
    if was.home and not workload.home and _asks_for_more(before, was.spec, workload.spec):
        raise _refused("it would lose its own guarantee")
    losers = [w for w in before.workloads.values() if w.home and w.id != changed and w.id in after.workloads]
    losers = [w for w in losers if not after.workloads[w.id].home]
    if before.policy.queues:
        losers = _who_is_not_to_lose(before, after, changed, losers)
    if losers:
        whose = "another workload" if len(losers) == 1 else f"{len(losers)} other workloads"
        raise _refused(f"it would take the guarantee of {whose}")
    if workload.given_home is None and workload.spec.request_bytes > was.spec.request_bytes:
        full = _full_without_it(after, workload)
        if full is not None:
            raise _refused(f"nobody on {full.label} can make room, whose requests would be more than it has")


def _who_is_not_to_lose(
    before: NodeState, after: NodeState, changed: WorkloadId, losers: list[Workload]
) -> list[Workload]:
    """Those of `losers` who lose their homes to `changed` against the rules of the queues.

    Who waited is a newcomer, and who asks for no more takes nothing.
    """
    workload, spec = after.workloads[changed], before.workloads[changed].spec
    if not before.workloads[changed].home or not _asks_for_more(before, spec, workload.spec):
        return []
    ledger, alive = Ledger(after), [w for w in after.workloads.values() if w.takes_part]
    homes = {w.id: home for w in before.workloads.values() if (home := w.home)}
    for other in alive:
        if other.id != changed:
            ledger.count(other, homes.get(other.id, ()))
    ledger.ask(alive, homes)
    wronged = []
    takes = {pool: ledger.demand(workload.spec, pool, gpus) for pool, gpus in ledger.pools_of(workload.home).items()}
    for loser in sorted(losers, key=lambda w: w.spec.request_bytes):  # whoever brings a queue down to its share is last
        pools = takes.keys() & ledger.pools_of(loser.home).keys()
        if loser.given_home is None and any(ledger.may_displace(workload, loser, pool, takes[pool]) for pool in pools):
            ledger.count(loser, loser.home, -1)
        else:
            wronged.append(loser)
    return wronged


def _asks_for_more(state: NodeState, old: WorkloadSpec, new: WorkloadSpec) -> bool:
    """Whether it counts for more than before, or in another queue."""
    tree = Tree(state.policy.queues)
    larger = new.request_bytes > old.request_bytes or new.gpu_count > old.gpu_count
    return larger or tree.leaf(new.queue) != tree.leaf(old.queue)


def _full_without_it(state: NodeState, workload: Workload) -> Gpu | None:
    """A Gpu of its home that has not that much beside all others at home there; who has to stay keeps its home.

    One that is out of service is nobody's new home: there those count who stay on it.
    """
    paper = Paper(state)
    for other in state.workloads.values():
        if other.home and other.id != workload.id:
            paper.give(other, other.home)
    for uuid in dict.fromkeys((*workload.home, *state.plan[workload.id].target)):
        gpu = state.gpus[uuid]
        if uuid in paper.free:
            is_full = uuid in workload.home and not paper.has_home_room(workload, uuid)
        else:
            staying = [w for w in state.workloads.values() if uuid in state.plan[w.id].target]
            is_full = sum(w.spec.request_bytes for w in staying) > gpu.memory_total_bytes
        if is_full:
            return gpu
    return None


def _refused(why: str) -> Problem:
    advice = "Ask for less, or again when there is more room."
    return impossible(f"The change is refused and nothing is changed: {why}. {advice}")
