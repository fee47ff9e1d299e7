"""What the kubelet gave to a pod is the pod's for as long as it runs, although the kubelet may not say so.

A kubelet that has just started answers before it has heard of its pods: of none of them does it tell anything then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nls_scheduler.kubernetes_driver.pods import PodRecord


class LastingAllocations:
    """Devices as they were told last, by the UID of their pod. Lives in the daemon's loop."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def allocations(
        self, told: Mapping[str, tuple[str, ...]] | None, pods: Collection[PodRecord]
    ) -> Mapping[str, tuple[str, ...]] | None:
        """What the kubelet has `told`, and what it told before of those of `pods` that go on.

        `pods`: those that have not ended.
        """
        if told is None:
            return None
        latest = {pod.uid: told.get(pod.key) or self._known.get(pod.uid, ()) for pod in pods if not pod.leaves}
        self._known = {uid: ids for uid, ids in latest.items() if ids}
        return {**told, **{pod.key: self._known[pod.uid] for pod in pods if pod.uid in self._known}}
