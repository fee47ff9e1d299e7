"""What the Node object says of this node. Pure; no object makes it raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

CORDONED: Final = "This node is cordoned: no new pod comes here, and whoever is here goes on as before."


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
    metadata, spec = written.get("metadata"), written.get("spec")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    texts = {k: v for k, v in labels.items() if isinstance(v, str)} if isinstance(labels, dict) else {}
    return NodeRecord(texts, isinstance(spec, dict) and spec.get("unschedulable") is True)
