"""KAI's BindRequests (`scheduling.run.ai/v1alpha2`): the earliest word on who gets what. Pure; never written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.quantities import LEAST_FRACTION, MOST_DEVICES
from nls_scheduler.kubernetes_driver.resource_claims import allocated
from nls_scheduler.kubernetes_driver.written import mapping, objects, text, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.kubernetes_driver.resource_claims import ClaimedDevice

PATH: Final = "/apis/scheduling.run.ai/v1alpha2/bindrequests"
_NODE_LABEL: Final = "selected-node"
_LABEL_LIMIT: Final = 63
FRACTION: Final = "Fraction"
REGULAR: Final = "Regular"
MIG: Final = "MigInstance"


@dataclass(frozen=True, slots=True)
class BindRequest:
    """A decision of KAI's that is about to be carried out.

    Attributes:
        uid: its own.
        pod: `namespace/name` of the pod.
        node: for which node.
        shared: whether the pod gets parts of devices, named in `groups`; else complete ones.
        count: of how many devices, of slices at least; 0: of none but what its claims get.
        portion: which part of each; 1.0 for complete ones.
        groups: KAI's names of the devices; one that no reservation pod has is a device to come.
        over: it has been carried out, or has failed for good.
        claimed: devices that its ResourceClaims are about to get.
        claimed_bytes: what these come to on each Gpu, once the devices are known; `None`: all of it.
    """

    uid: str
    pod: str
    node: str
    shared: bool
    count: int
    portion: float
    groups: tuple[str, ...]
    over: bool = False
    claimed: tuple[ClaimedDevice, ...] = ()
    claimed_bytes: Mapping[str, int | None] = field(default_factory=dict)


def selector(node: str) -> str:
    """The label that KAI gives to each request for `node` (`createBindRequest`); empty: a node cannot be a label."""
    return f"{_NODE_LABEL}={node}" if len(node) <= _LABEL_LIMIT else ""


def bind_request(written: Mapping[str, Any]) -> BindRequest | None:
    """The record of an object; `None` where it says nothing about GPUs or nothing that can be relied on."""
    metadata, spec = mapping(written, "metadata"), mapping(written, "spec")
    uid, namespace, node = text(metadata.get("uid")), text(metadata.get("namespace")), text(spec.get("selectedNode"))
    name, kind = text(spec.get("podName") or metadata.get("name")), spec.get("receivedResourceType")
    if not (uid and namespace and name and node) or kind not in (FRACTION, REGULAR, MIG):
        return None
    # The last one is of the claim that is made for extended resources which DRA gives.
    claims = (*objects(spec.get("resourceClaimAllocations")), mapping(spec, "extendedResourceClaimAllocation"))
    claimed = tuple(device for claim in claims for device in allocated(mapping(claim, "allocation")))
    groups = words(spec.get("selectedGPUGroups"))
    count, portion = _received(mapping(spec, "receivedGPU"))
    if kind != REGULAR:
        count = len(groups) or max(1, count)
    if count < 1 and not claimed:
        return None
    over = _is_over(mapping(written, "status"), spec.get("backoffLimit"))
    return BindRequest(uid, f"{namespace}/{name}", node, kind == FRACTION, count, portion, groups, over, claimed)


def _is_over(status: Mapping[str, Any], limit: object) -> bool:
    """As KAI counts (`IsFailed`): one that has failed is tried again until its limit, if it has one."""
    if status.get("phase") != "Failed":
        return status.get("phase") == "Succeeded"
    attempts = status.get("failedAttempts", 0)
    return type(limit) is not int or type(attempts) is not int or attempts >= limit


def _received(received: Mapping[str, Any]) -> tuple[int, float]:
    """Count and portion; a portion is written as a text, and one that makes no sense counts as everything.

    No node has more devices than `MOST_DEVICES`.
    """
    count = received.get("count")
    try:
        portion = float(received.get("portion") or 1.0)
    except (TypeError, ValueError, OverflowError):
        portion = 1.0
    devices = min(count, MOST_DEVICES) if type(count) is int and count > 0 else 0
    return devices, portion if LEAST_FRACTION <= portion <= 1 else 1.0
