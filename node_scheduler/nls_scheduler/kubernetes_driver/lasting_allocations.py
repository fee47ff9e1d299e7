"""What the kubelet gave to a pod is the pod's for as long as it runs, although the kubelet may not say so.

A kubelet that has just started answers before it has heard of its pods: of none of them does it tell anything then. It
names pods, and not their UIDs: what it told before a pod was seen may be of an earlier one of that name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nls_scheduler.kubernetes_driver.pods import PodRecord


class LastingAllocations:
    """Devices as they were told last, by the UID of their pod. Lives in the daemon's loop.

    Attributes:
        wants_word: whether there is a pod of which the kubelet was not asked since it was seen.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}
        self._seen_at: dict[str, float] = {}
        self.wants_word = False

    def allocations(
        self, told: Mapping[str, tuple[str, ...]] | None, asked_at: float | None, pods: Collection[PodRecord], at: float
    ) -> Mapping[str, tuple[str, ...]] | None:
        """What the kubelet has `told`, and what it told before of those of `pods` that go on.

        `asked_at`: when it was asked for that. `pods`: those that have not ended, at `at`.
        """
        self._seen_at = {pod.uid: self._seen_at.get(pod.uid, at) for pod in pods}
        heard = {uid for uid, seen_at in self._seen_at.items() if asked_at is not None and asked_at > seen_at}
        self.wants_word = len(heard) < len(self._seen_at)
        if told is None:
            return None
        now = {pod.uid: told.get(pod.key, ()) if pod.uid in heard else () for pod in pods if not pod.leaves}
        latest = {uid: ids or self._known.get(uid, ()) for uid, ids in now.items()}
        self._known = {uid: ids for uid, ids in latest.items() if ids}
        return {**told, **{pod.key: self._known[pod.uid] for pod in pods if pod.uid in self._known}}

    def of(self, pod: PodRecord) -> tuple[str, ...]:
        """What the kubelet has given to `pod`, as far as it has told since that was seen."""
        return self._known.get(pod.uid, ())
