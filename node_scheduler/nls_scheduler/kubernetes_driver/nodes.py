"""What the Node object says of this node. Pure; no object makes it raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.written import mapping, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

CORDONED: Final = "This node is cordoned: no new pod comes here."
IDLE_LEAVE: Final = "Idle notebooks leave their GPUs, one after another, and come back with their next cell."


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """This node.

    Attributes:
        labels: by which a policy chooses its pool.
        cordoned: it takes no new pods.
    """

    labels: Mapping[str, str]
    cordoned: bool


def node_record(written: Mapping[str, Any]) -> NodeRecord:
    """The record of a node."""
    labels = texts(mapping(written, "metadata", "labels"))
    return NodeRecord(labels, mapping(written, "spec").get("unschedulable") is True)
