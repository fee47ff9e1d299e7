"""ResourceSlices (`resource.k8s.io/v1`): which UUID a device of a DRA claim has. Pure; never written.

The kubelet names a device of a claim by driver, pool and name. NVIDIA's driver makes that name of a number: of the
index in its first versions, of the minor number since; `gpu-0-mig-1g10gb-19-6` is a slice of a Gpu. What a number means
is not guessed: the driver publishes the UUID.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.written import mapping, objects, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER: Final = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A part of what a driver has on this node.

    Attributes:
        pool: its name.
        generation: of the pool; slices of an earlier one are out of date.
        uuids: by the name of the device; one that has none yet is missing.
    """

    pool: str
    generation: int
    uuids: Mapping[str, str]


def resource_slice(written: Mapping[str, Any]) -> ResourceSlice | None:
    """The record of a slice of NVIDIA's GPUs; `None` for another's, and for what cannot be read."""
    spec, pool = mapping(written, "spec"), mapping(written, "spec", "pool")
    name, generation = text(pool.get("name")), pool.get("generation", 0)
    if spec.get("driver") != DRIVER or not name or type(generation) is not int:
        return None
    devices = objects(spec.get("devices"))
    named = {text(each.get("name")): text(mapping(each, "attributes", "uuid").get("string")) for each in devices}
    uuids = {device: uuid for device, uuid in named.items() if device and uuid}
    return ResourceSlice(name, generation, uuids)


def device_id(pool: str, device: str) -> str:
    """How a device of a claim is called until its UUID is known."""
    return f"{DRIVER}/{pool}/{device}"


def uuids_of(slices: Iterable[ResourceSlice]) -> dict[str, str]:
    """UUIDs by `device_id`, of the newest generation of each pool."""
    known = sorted(slices, key=lambda each: each.generation)
    newest = {each.pool: each.generation for each in known}
    current = (each for each in known if each.generation == newest[each.pool])
    return {device_id(each.pool, name): uuid for each in current for name, uuid in each.uuids.items()}


def resolved(
    allocations: Mapping[str, tuple[str, ...]] | None, uuids: Mapping[str, str]
) -> dict[str, tuple[str, ...]] | None:
    """`allocations` with UUIDs where they are known."""
    if allocations is None:
        return None
    return {key: tuple(dict.fromkeys(uuids.get(each, each) for each in ids)) for key, ids in allocations.items()}
