"""What is on its way out, or between two watches: of which nobody may think that an owner has come. Pure.

KAI ends a group in steps: its last pod goes, and a moment later the reservation pod, of which the kubelet goes on
telling for a while. And the news of one decision come by two watches: a BindRequest may be seen to go, or to have been
carried out, before its pod is seen bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nls_scheduler.kubernetes_driver.bind_requests import BindRequest
    from nls_scheduler.kubernetes_driver.pods import PodRecord

LINGER_S: Final = 1.0
"""So much later than the other may a watch tell."""


@dataclass(frozen=True, slots=True)
class Passing:
    """What was there until a moment ago.

    Attributes:
        groups: KAI's groups that had a member while their reservation was there.
        reservations: `namespace/name` of reservation pods that were there; all of them while the kubelet tells of them.
        requests: BindRequests that are not over, as they were last, by UID.
        gone: those of them that are over or have gone without their pod having been seen here, and when.
    """

    groups: frozenset[str] = frozenset()
    reservations: frozenset[str] = frozenset()
    requests: Mapping[str, BindRequest] = field(default_factory=dict)
    gone: Mapping[str, float] = field(default_factory=dict)

    def after(
        self,
        at: float,
        pods: Collection[PodRecord],
        requests: Mapping[str, BindRequest],
        allocations: Mapping[str, tuple[str, ...]] | None,
    ) -> Passing:
        """The same, when that is there now; `at` in seconds of any steady clock."""
        reserving = [pod for pod in pods if pod.reserves is not None]
        there = {pod.key for pod in reserving}
        going = {uid: request for uid, request in requests.items() if not request.over}
        known = {pod.key for pod in pods} | {request.pod for request in going.values()}
        gone = {uid: self.gone.get(uid, at) for uid in self.requests.keys() - going.keys()}
        lingering = {
            uid: since for uid, since in gone.items() if at < since + LINGER_S and self.requests[uid].pod not in known
        }
        return Passing(
            (self.groups & _groups(reserving)) | (members(pods, going.values()) & _groups(reserving)),
            frozenset(there | (self.reservations & (allocations or {}).keys())),
            {**going, **{uid: self.requests[uid] for uid in lingering}},
            lingering,
        )

    def spent(self, pods: Collection[PodRecord]) -> frozenset[str]:
        """The groups whose last member has gone: KAI is about to end their reservations."""
        return self.groups - members(pods, self.requests.values())

    def again_at(self) -> float | None:
        """When time alone changes something."""
        return min(self.gone.values()) + LINGER_S if self.gone else None


def members(pods: Collection[PodRecord], requests: Collection[BindRequest]) -> frozenset[str]:
    """The groups that somebody is in, or is about to be."""
    living = {group for pod in pods if pod.reserves is None and not pod.ended for group in pod.groups}
    return frozenset(living | {group for request in requests for group in request.groups})


def _groups(reserving: Collection[PodRecord]) -> frozenset[str]:
    return frozenset(group for pod in reserving if not pod.ended for group in pod.groups)
