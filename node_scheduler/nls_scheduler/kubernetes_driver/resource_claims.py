"""ResourceClaims (`resource.k8s.io/v1`): which devices DRA gave to a pod, as its scheduler says. Pure; never written.

A claim cannot be selected by its node, and a watch of all claims by every node would be quadratic. None is needed: a
claim is allocated and reserved for its pod before that is bound, and its allocation stays while it is reserved. So each
claim that a pod of this node names is read once, when the pod is seen here; again only if it is not reserved for it.

That is earlier than the kubelet's word and says more: which part of a shared device was consumed, and whether a device
is only looked at (`adminAccess`), as by a monitor: that takes nothing from anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.quantities import parse_quantity
from nls_scheduler.kubernetes_driver.resource_slices import DRIVER, device_id, gpu_of
from nls_scheduler.kubernetes_driver.written import mapping, objects, text, texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from nls_scheduler.kubernetes_driver.pods import PodRecord
    from nls_scheduler.kubernetes_driver.resource_slices import Device

PATH: Final = "/apis/resource.k8s.io/v1/resourceclaims"


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device of a claim.

    Attributes:
        id: its `resource_slices.device_id`.
        only_looks: `adminAccess`: whoever has it owns nothing of it.
        consumed_bytes: of its memory, where several claims may have it; `None`: nothing is said of memory.
    """

    id: str
    only_looks: bool = False
    consumed_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """An allocated claim.

    Attributes:
        devices: NVIDIA's.
        pods: UIDs of those for which it is reserved.
        groups: whether it is reserved for a group of pods, which does not say which ones.
    """

    devices: tuple[ClaimedDevice, ...]
    pods: frozenset[str] = frozenset()
    groups: bool = False

    def is_for(self, pod: PodRecord) -> bool:
        """Whether the pod may use it."""
        return self.groups or pod.uid in self.pods


def resource_claim(written: Mapping[str, Any]) -> ResourceClaim | None:
    """The record of a claim; `None` while nothing is allocated."""
    status = mapping(written, "status")
    if not mapping(status, "allocation"):
        return None
    devices = allocated(mapping(status, "allocation"))
    consumers = objects(status.get("reservedFor"))
    pods = frozenset(text(each.get("uid")) for each in consumers if each.get("resource") == "pods")
    return ResourceClaim(devices, pods, any(each.get("resource") != "pods" for each in consumers))


def allocated(allocation: Mapping[str, Any]) -> tuple[ClaimedDevice, ...]:
    """NVIDIA's devices of an `AllocationResult`."""
    results = objects(mapping(allocation, "devices").get("results"))
    return tuple(_device(result) for result in results if result.get("driver") == DRIVER)


def _device(result: Mapping[str, Any]) -> ClaimedDevice:
    size = parse_quantity(texts(result.get("consumedCapacity")).get("memory", ""))
    # A share of which none is promised may use all of it.
    consumed_bytes = int(size) if size is not None and size >= 1 else None
    name = device_id(text(result.get("pool")), text(result.get("device")))
    return ClaimedDevice(name, result.get("adminAccess") is True, consumed_bytes)


def keys(pod: PodRecord) -> list[str]:
    """Of the claims of a pod as they are for it: `namespace/name/UID of the pod`."""
    return [f"{claim}/{pod.uid}" for claim in pod.claims if not claim.endswith("/")]


def claims_of(pod: PodRecord, known: Mapping[str, ResourceClaim]) -> tuple[ResourceClaim, ...] | None:
    """The claims of a pod by `keys`; `None`: one of them is not known, or is not for it."""
    found = (known.get(key) for key in keys(pod))
    claims = tuple(claim for claim in found if claim is not None and claim.is_for(pod))
    return claims if len(claims) == len(pod.claims) else None


def with_claims(
    pod: PodRecord, claims: Iterable[ResourceClaim], devices: Mapping[str, Device], gpus: Collection[str]
) -> PodRecord:
    """`pod` with the Gpus that its claims give it and, where it asks for nothing else, with what these come to."""
    sizes = sizes_on(chain.from_iterable(claim.devices for claim in claims), devices, gpus)
    pod = replace(pod, claimed=tuple(sizes))
    if pod.demand is None or pod.demand.devices or not sizes:
        return pod
    # One of ours asks for one size on all its Gpus: too much is safe, too little is not.
    known = [size for size in sizes.values() if size is not None]
    whole = len(known) < len(sizes)
    size: float | int = 1.0 if whole else max(known)
    demand = replace(pod.demand, request=size, limit=size, devices=len(sizes), whole=whole)
    return replace(pod, demand=demand, claimed_bytes=sizes)


def sizes_on(
    claimed: Iterable[ClaimedDevice], devices: Mapping[str, Device], gpus: Collection[str]
) -> dict[str, int | None]:
    """What is taken of each Gpu; `None`: all of it. A device of which it is not known which Gpu it is has its name."""
    sizes: dict[str, int | None] = {}
    for device in (each for each in claimed if not each.only_looks):
        gpu = gpu_of(device.id, devices, gpus)
        part, before = _bytes_on(gpu, device, devices, gpus), sizes.get(gpu, 0)
        sizes[gpu] = None if part is None or before is None else before + part
    return sizes


def _bytes_on(gpu: str, claimed: ClaimedDevice, devices: Mapping[str, Device], gpus: Collection[str]) -> int | None:
    """What a device takes of its Gpu; `None`: all of it."""
    if gpu not in gpus:
        return None
    if claimed.consumed_bytes is not None:
        return claimed.consumed_bytes
    device = devices[claimed.id]
    return device.memory_bytes if gpu == device.parent else None


def without_onlookers(
    allocations: Mapping[str, tuple[str, ...]] | None,
    pods: Iterable[PodRecord],
    known: Mapping[str, ResourceClaim],
    asked_for: Collection[str],
) -> dict[str, tuple[str, ...]] | None:
    """`allocations` without the devices that `pods` only look at, nor those whose claims are about to be known."""
    if allocations is None:
        return None
    found = dict(allocations)
    for pod in pods:
        if not pod.claims or pod.key not in found:
            continue
        claims = claims_of(pod, known)
        told = [device for claim in claims or () for device in claim.devices]
        owned = {device.id for device in told if not device.only_looks}
        hidden = {device.id for device in told} - owned
        if claims is None and any(key in asked_for for key in keys(pod)):
            hidden = {each for each in found[pod.key] if each.startswith(f"{DRIVER}/")}
        found[pod.key] = tuple(each for each in found[pod.key] if each not in hidden)
    return {key: ids for key, ids in found.items() if ids}
