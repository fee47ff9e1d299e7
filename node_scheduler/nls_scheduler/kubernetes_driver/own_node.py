"""This node as the cluster knows it, and knew it last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.kubernetes_driver.quantities import counted_memory_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.kubernetes_driver.nodes import NodeRecord
    from nls_scheduler.kubernetes_driver.reflector import Reflector

MEMORY_LABEL: Final = "nvidia.com/gpu.memory"


class OwnNode:
    """This node as its object says, or said last. Lives in the daemon's loop."""

    def __init__(self, name: str, nodes: Reflector[NodeRecord]) -> None:
        """`nodes`: at most the one of that name."""
        self._name = name
        self._nodes = nodes
        self._labels: Mapping[str, str] | None = None
        self._counted: int | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """As it has them, or had them when it was deleted."""
        self._labels = next((node.labels for node in self._nodes.records.values()), self._labels)
        return self._labels or {}

    @property
    def counted_bytes(self) -> int | None:
        """What each Gpu counts for, as the label said last: that goes and comes again at updates of who writes it."""
        self._counted = counted_memory_bytes(self.labels.get(MEMORY_LABEL)) or self._counted
        return self._counted

    @property
    def cordoned(self) -> bool:
        """Whether it takes no new pods."""
        return any(node.cordoned for node in self._nodes.records.values())

    @property
    def trouble(self) -> str | None:
        """Why the cluster does not know it."""
        if not self._nodes.synced or self._nodes.records:
            return None
        if self._labels is not None:
            return (
                f"The node {self._name!r} has been deleted from the cluster: its pods go, unless its kubelet "
                "registers it again."
            )
        return (
            f"The cluster has no node {self._name!r}, so that no pod is seen: set NODE_NAME by a fieldRef to "
            "spec.nodeName, or give --node-name."
        )
