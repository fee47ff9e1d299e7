"""Gangs: commands of one owner that get their Gpus together, start together, and start again together. Pure.

A gang is whole while every member is here or has ended well. One that is not gets no Gpu; what of it runs is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

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
    def asks(self) -> bool:
        """Whether it waits for nothing but Gpus, or for its members to leave those that they had."""
        return len(self.members) == self.size and self.done == 0

    @property
    def started(self) -> bool:
        """Whether any of it is on a Gpu, on its way there or from there."""
        return any(w.present for w in self.members)

    @property
    def runs(self) -> bool:
        """Whether all of it is started and nobody is on the way out."""
        return self.whole and all(w.stays for w in self.members)

    @property
    def may_start(self) -> bool:
        """Whether it may have Gpus from the beginning: whole, nobody on a Gpu, nobody gone already."""
        return self.whole and self.done == 0 and not self.started

    def why_not(self) -> Why:
        """Why it has no Gpu now, or is to leave those that it has."""
        trouble = tuple(w.gang_trouble for w in self.members if w.gang_trouble is not None)[:1]
        if (missing := self.size - len(self.members) - self.done) > 0:
            return Why(Reason.GANG_INCOMPLETE, numbers=(missing, self.size), names=(self.name,), because=trouble)
        if self.done:
            return Why(Reason.GANG_CANNOT_RESTART, numbers=(self.done,), names=(self.name,))
        return Why(Reason.GANG_STARTS_AGAIN, names=(self.name,), because=trouble)

    def why_not_without(self, member: Workload) -> Why:
        """Why it has no Gpu now where `member` has no place."""
        return Why(Reason.GANG_MEMBER_WITHOUT_PLACE, who=(member.mention,), names=(self.name,))


def key_of(spec: WorkloadSpec) -> GangKey | None:
    """Names are an owner's own, and a tenant's where users share an id: two users' gangs of one name are two gangs."""
    return None if spec.gang is None else (spec.owner, spec.tenant, spec.gang)


def gangs_of(workloads: Iterable[Workload]) -> dict[GangKey, Gang]:
    """All gangs among `workloads`."""
    found: dict[GangKey, list[Workload]] = {}
    for workload in workloads:
        if workload.spec.gang is not None and (key := key_of(workload.spec)) is not None:
            found.setdefault(key, []).append(workload)
    return {key: _gang(key, members) for key, members in found.items()}


def _gang(key: GangKey, everybody: list[Workload]) -> Gang:
    ordered = tuple(sorted((w for w in everybody if w.takes_part), key=lambda w: (w.submitted_at, w.id)))
    return Gang(key[2], max(w.spec.gang_size for w in everybody), ordered, any(w.present for w in set_aside(everybody)))


def set_aside(everybody: Iterable[Workload]) -> list[Workload]:
    """Those who take no part any more, although their records are still there."""
    return [w for w in everybody if not w.takes_part]


def fellows(state: NodeState, workload: Workload) -> list[Workload]:
    """The others of its gang."""
    key = key_of(workload.spec)
    if key is None:
        return []
    return [w for w in state.workloads.values() if w.id != workload.id and key_of(w.spec) == key]


def is_fellow(one: Workload, other: Workload) -> bool:
    """Whether they are of one gang; each is its own."""
    return one.spec.gang is not None and key_of(one.spec) == key_of(other.spec)


def rank(state: NodeState, workload: Workload) -> int:
    """Its number in its gang, from 0: the first to come is 0. The same again after a restart of the same members."""
    key = key_of(workload.spec)
    members = [w for w in state.workloads.values() if key_of(w.spec) == key]
    return sorted(members, key=lambda w: (w.submitted_at, w.id)).index(workload)


def runs(state: NodeState, workload: Workload) -> bool:
    """Whether all of its gang is started, and nobody of it on the way out. False outside gangs."""
    key = key_of(workload.spec)
    mine = [w for w in state.workloads.values() if key_of(w.spec) == key]
    return key is not None and gangs_of(mine)[key].runs


def would_end(state: NodeState, workload: Workload) -> bool:
    """Whether somebody of its gang runs who would not start again, if `workload` gave its start up."""
    others = [] if workload.spec.requeue else fellows(state, workload)
    return any(other.phase is Phase.RUNNING for other in others) and runs(state, workload)


def spared_bytes(there: Collection[Workload], size_of: Callable[[Workload], int]) -> int:
    """What members of a gang that has a Gpu alone hold above their requests in what fellows leave of theirs.

    Nobody makes room for a fellow of its own gang: all of it would stop, and start again as it was.

    Args:
        there: who is on one Gpu, or is to be.
        size_of: bytes that each counts with, at least its request.
    """
    keys = {key_of(workload.spec) for workload in there}
    if len(keys) != 1 or None in keys:
        return 0
    held = sum(size_of(w) if size_of(w) > w.spec.request_bytes else w.held_bytes for w in there)
    return sum(map(size_of, there)) - max(held, sum(w.spec.request_bytes for w in there))


def side_by_side(state: NodeState, whom: Collection[WorkloadId]) -> list[WorkloadId]:
    """`whom` in the order in which orders are given: who is admitted before others first, a gang's members together."""
    first = {key: min(w.precedence for w in gang.members) for key, gang in state.gangs.items() if gang.members}

    def place(each: WorkloadId) -> tuple[object, object]:
        workload = state.workloads[each]
        own, key = workload.precedence, key_of(workload.spec)
        return (own if key is None else first.get(key, own)), own

    return sorted(whom, key=place)


def is_member(spec: WorkloadSpec) -> bool:
    """Whether the command's end is its gang's business."""
    return spec.kind is Kind.COMMAND and spec.gang is not None
