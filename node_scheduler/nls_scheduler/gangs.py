"""Gangs: commands of one owner that get their Gpus together, start together, and start again together. Pure.

A gang is whole while every member is here or has ended well. One that is not gets no Gpu; what of it runs is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nls_scheduler.events import ProcessExited
from nls_scheduler.rooms import is_usable
from nls_scheduler.transitions import transition
from nls_scheduler.workload import Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.draft import Draft
    from nls_scheduler.gpu import Gpu
    from nls_scheduler.ids import GpuUuid, WorkloadId
    from nls_scheduler.model import NodeState, PlanEntry
    from nls_scheduler.workload import Workload, WorkloadSpec

GangKey = tuple[int, str, str]
"""User id, tenant and name."""


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang as it is now.

    Attributes:
        members: those that are neither released nor failed, in order of arrival.
        leaving: whether one that was released or has failed still has its process.
    """

    name: str
    size: int
    members: tuple[Workload, ...]
    leaving: bool

    @property
    def done(self) -> int:
        """How many have ended well."""
        return max((w.gang_done for w in self.members), default=0)

    @property
    def whole(self) -> bool:
        """Whether every member is here or has ended well."""
        return len(self.members) + self.done == self.size and not self.leaving

    @property
    def started(self) -> bool:
        """Whether any of it is on a Gpu, on its way there or from there."""
        return any(w.present for w in self.members)

    @property
    def runs(self) -> bool:
        """Whether all of it is started and nobody is on the way out."""
        return self.whole and all(w.phase in (Phase.STARTING, Phase.RUNNING) for w in self.members)

    @property
    def may_start(self) -> bool:
        """Whether it may have Gpus from the beginning: whole, nobody on a Gpu, nobody gone already."""
        return self.whole and self.done == 0 and not self.started

    def why_not(self) -> str:
        """Why it has no Gpu now, or is to leave those that it has, for people."""
        trouble = next((w.gang_trouble for w in self.members if w.gang_trouble is not None), None)
        if not self.whole:
            here = f"waits for {self.size - len(self.members) - self.done} of {self.size} members of gang {self.name}"
            return here if trouble is None else f"{here}: {trouble}"
        if self.done:
            return f"gang {self.name} cannot start again whole: {self.done} of its members have ended well already"
        again = f"gang {self.name} starts again when all of it has stopped"
        return again if trouble is None else f"{trouble}; {again}"


def key_of(spec: WorkloadSpec) -> GangKey | None:
    """Names are an owner's own, and a tenant's where users share an id: two users' gangs of one name are two gangs."""
    return None if spec.gang is None else (spec.owner, spec.tenant, spec.gang)


def gangs_of(workloads: Iterable[Workload]) -> dict[GangKey, Gang]:
    """All gangs among `workloads`."""
    found: dict[GangKey, list[Workload]] = {}
    for workload in workloads:
        key = key_of(workload.spec)
        if key is not None:
            found.setdefault(key, []).append(workload)
    return {key: _gang(key, members) for key, members in found.items()}


def _gang(key: GangKey, everybody: list[Workload]) -> Gang:
    alive = [w for w in everybody if w.release_reason is None and w.phase is not Phase.FAILED]
    ordered = tuple(sorted(alive, key=lambda w: (w.submitted_at, w.id)))
    return Gang(key[2], max(w.spec.gang_size for w in everybody), ordered, any(w.present for w in set_aside(everybody)))


def set_aside(everybody: Iterable[Workload]) -> list[Workload]:
    """Those who take no part any more, although their records are still there."""
    return [w for w in everybody if w.release_reason is not None or w.phase is Phase.FAILED]


def fellows(state: NodeState, workload: Workload) -> list[Workload]:
    """The others of its gang."""
    key = key_of(workload.spec)
    others = (w for w in state.workloads.values() if w.id != workload.id and key_of(w.spec) == key)
    return [] if key is None else list(others)


def rank(state: NodeState, workload: Workload) -> int:
    """Its number in its gang, from 0: the first to come is 0. The same again after a restart of the same members."""
    key = key_of(workload.spec)
    members = [w for w in state.workloads.values() if key_of(w.spec) == key]
    return sorted(members, key=lambda w: (w.submitted_at, w.id)).index(workload)


def resting(gangs: Mapping[GangKey, Gang], homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]) -> dict[WorkloadId, str]:
    """Members that are to be on no Gpu now, each with the reason: all of a gang, or none."""
    rests: dict[WorkloadId, str] = {}
    for gang in gangs.values():
        admitted = all(w.id in homes for w in gang.members)
        if not (admitted and (gang.runs or gang.may_start)):
            why = gang.why_not() if not (gang.may_start or gang.runs) else f"not all of gang {gang.name} have room"
            rests |= dict.fromkeys((w.id for w in gang.members), why)
    return rests


def leave_together(draft: Draft, gangs: Mapping[GangKey, Gang]) -> None:
    """Where one of a gang gets no place or loses it, the others have none either, for its cause and by its deadline."""
    for gang in gangs.values():
        placed = [w for w in gang.members if w.id in draft.rooms.target]
        without = [w for w in gang.members if w.id not in draft.rooms.target]
        if not placed or not without:
            continue
        first = without[0]
        since = draft.claimed_since(first) if first.present else None
        for workload in placed:
            draft.rooms.remove(workload)
            draft.waits[workload.id] = f"{first.spec.name} of gang {gang.name} has no place now: all of it, or nobody"
            if first.id in draft.cause and workload.present:
                draft.cause[workload.id] = draft.cause[first.id]
            if since is not None and workload.present:
                draft.since[workload.id] = since


def runs(state: NodeState, workload: Workload) -> bool:
    """Whether all of its gang is started, and nobody of it on the way out. False outside gangs."""
    key = key_of(workload.spec)
    mine = [w for w in state.workloads.values() if key_of(w.spec) == key]
    return key is not None and gangs_of(mine)[key].runs


def side_by_side(state: NodeState) -> list[WorkloadId]:
    """All workloads in the order in which orders are given: a gang's members together, so that nobody comes between."""
    first = {
        key: min(w.id for w in gang.members) for key, gang in gangs_of(state.workloads.values()).items() if gang.members
    }
    lead = {w.id: first.get(key, w.id) if (key := key_of(w.spec)) else w.id for w in state.workloads.values()}
    return sorted(state.workloads, key=lambda each: (lead[each], each))


def have_room(state: NodeState, plan: Mapping[WorkloadId, PlanEntry], workload: Workload) -> bool:
    """Whether all of its gang that has not started has room in fact, together. True outside gangs."""
    if workload.spec.gang is None:
        return True
    members = [w for w in (*fellows(state, workload), workload) if not w.present]
    if any(w.release_reason is None and w.phase is not Phase.FAILED and not plan[w.id].target for w in members):
        return False
    needed: dict[GpuUuid, int] = {}
    for member in members:
        for uuid in plan[member.id].target:
            needed[uuid] = needed.get(uuid, 0) + member.return_bytes
    return all(_takes(state, state.gpus[uuid], size) for uuid, size in needed.items())


def _takes(state: NodeState, gpu: Gpu, size_bytes: int) -> bool:
    taken = gpu.foreign_bytes + sum(r.bytes for r in gpu.releasing)
    taken += sum(max(w.size_bytes, w.used_bytes(gpu.uuid)) for w in state.workloads.values() if gpu.uuid in w.current)
    return is_usable(state, gpu) and taken + size_bytes <= gpu.memory_total_bytes


def after_a_death(state: NodeState, dead: Workload, why: str, at: float) -> NodeState:
    """Record in every other member that `dead` (still as it was while it ran) ended by itself without success.

    Deaths in a row are the gang's, not a member's; one that had run longer than a start may take begins a new row.
    """
    trouble = f"{dead.spec.name} of gang {dead.spec.gang} {why}"
    failures = failures_with(state, dead, at)
    others = []
    for other in fellows(state, dead):
        changed = replace(other, failures=failures, gang_trouble=trouble)
        if failures >= state.policy.max_failures and other.phase is Phase.QUEUED:
            reason = gave_up(failures, trouble)
            changed = transition(changed, ProcessExited, Phase.FAILED, waiting_since=None, last_reason=reason)
        others.append(changed)
    return state.having(*others)


def failures_with(state: NodeState, dead: Workload, at: float) -> int:
    """The gang's deaths in a row, with this one."""
    lasted = dead.resident_since is not None and at - dead.resident_since >= state.policy.start_timeout_s
    before = max((w.failures for w in (*fellows(state, dead), dead)), default=0)
    return 1 if lasted else before + 1


def after_a_success(state: NodeState, done: Workload) -> NodeState:
    """Record in every other member that `done` has ended well."""
    return state.having(*(replace(w, gang_done=w.gang_done + 1) for w in fellows(state, done)))


def gave_up(failures: int, why: str) -> str:
    """The last sentence about a member."""
    return f"gave up after {failures} failures in a row: {why}"


def is_member(spec: WorkloadSpec) -> bool:
    """Whether the command's end is its gang's business."""
    return spec.kind is Kind.COMMAND and spec.gang is not None


def refusal(spec: WorkloadSpec, workloads: Iterable[Workload], gpus: Iterable[Gpu]) -> str | None:
    """Why `spec` cannot join its gang, or why the gang can never fit; `None`: it can.

    Who is still to come is taken to ask for as little as the smallest member known.
    """
    key = key_of(spec)
    mine = [w for w in workloads if key is not None and key_of(w.spec) == key]
    others = [w.spec for w in mine if w.release_reason is None]
    if spec.gang is None:
        return None
    sizes = {other.gang_size for other in others} - {spec.gang_size}
    if sizes:
        return f"Gang {spec.gang} has {min(sizes)} members, not {spec.gang_size}: say the same size for all of them."
    if len(others) + max((w.gang_done for w in mine), default=0) >= spec.gang_size:
        return f"Gang {spec.gang} has its {spec.gang_size} members already: choose another name for another gang."
    known = [*others, spec]
    unknown = spec.gang_size - len(known)
    smallest = min(other.request_bytes for other in known)
    fewest = min(other.gpu_count for other in known)
    demands = [*((s.request_bytes, s.gpu_count) for s in known), *[(smallest, fewest)] * unknown]
    offered = [gpu.memory_total_bytes for gpu in gpus]
    slots = sum(min(spec.gang_size, total // smallest) for total in offered)
    shares = sum(count for _, count in demands)
    if shares > slots or sum(size * count for size, count in demands) > sum(offered):
        return (
            f"Gang {spec.gang} can never fit: its {spec.gang_size} members ask for {shares} shares of a GPU at once, "
            f"and this node has at most {slots} of that size: ask for fewer members or for less."
        )
    return None
