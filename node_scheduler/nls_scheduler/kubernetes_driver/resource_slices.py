"""ResourceSlices (`resource.k8s.io/v1`): which Gpu a device of a DRA claim is. Pure; never written.

The kubelet names a device of a claim by driver, pool and name. NVIDIA's driver makes that name of a number: of the
index in its first versions, of the minor number since; `gpu-0-mig-1g10gb-19-6` is a slice of a Gpu. What a number means
is not guessed: the driver publishes the UUID. A slice that is only cut out of its Gpu once it is claimed has none, and
names its Gpu (`parentUUID`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.quantities import parse_quantity
from nls_scheduler.kubernetes_driver.written import mapping, objects, text, texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER: Final = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its driver describes it.

    Attributes:
        uuid: its own; empty: it has none yet.
        parent: UUID of the Gpu that it is a slice of; empty: of none.
        memory_bytes: what it has; `None`: not said.
    """

    uuid: str
    parent: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A part of what a driver has on this node.

    Attributes:
        pool: its name.
        generation: of the pool.
        devices: by name; one that says nothing of a Gpu is missing.
    """

    pool: str
    generation: int
    devices: Mapping[str, Device]


def resource_slice(written: Mapping[str, Any]) -> ResourceSlice | None:
    """The record of a slice of NVIDIA's GPUs; `None` for another's, and for what cannot be read."""
    spec, pool = mapping(written, "spec"), mapping(written, "spec", "pool")
    name, generation = text(pool.get("name")), pool.get("generation", 0)
    if spec.get("driver") != DRIVER or not name or type(generation) is not int:
        return None
    named = {text(each.get("name")): _device(each) for each in objects(spec.get("devices"))}
    known = {device: found for device, found in named.items() if device and (found.uuid or found.parent)}
    return ResourceSlice(name, generation, known)


def _device(written: Mapping[str, Any]) -> Device:
    attributes = mapping(written, "attributes")
    uuid, parent = (text(mapping(attributes, name).get("string")) for name in ("uuid", "parentUUID"))
    size = parse_quantity(texts(mapping(written, "capacity", "memory")).get("value", ""))
    return Device(uuid, parent, None if size is None else int(size))


def device_id(pool: str, device: str) -> str:
    """How a device of a claim is called until its UUID is known."""
    return f"{DRIVER}/{pool}/{device}"


def devices_of(slices: Iterable[ResourceSlice]) -> dict[str, Device]:
    """Devices by `device_id`, as the newest generation that names it has each.

    A driver writes the slices of a generation one after another, and a pod keeps a device that is in none any more.
    """
    known = sorted(slices, key=lambda each: each.generation)
    return {device_id(each.pool, name): device for each in known for name, device in each.devices.items()}


def gpu_of(name: str, devices: Mapping[str, Device], gpus: Collection[str]) -> str:
    """The UUID of a device, or of the Gpu that it is a slice of where that is one of `gpus`; else its name as it is."""
    device = devices.get(name)
    if device is None:
        return name
    return device.parent if device.uuid not in gpus and device.parent in gpus else device.uuid or name


def slices_of_parents(devices: Mapping[str, Device], parents: Mapping[GpuUuid, str]) -> dict[str, frozenset[GpuUuid]]:
    """Which slices a device could be that was cut out of its Gpu for its claim: the driver publishes no UUID of it.

    `parents`: of this node's Gpus, the Gpu that each is a slice of; empty: of none.
    """
    unnamed = {name: device.parent for name, device in devices.items() if device.parent and not device.uuid}
    cut = {name: frozenset(gpu for gpu, of in parents.items() if of == parent) for name, parent in unnamed.items()}
    return {name: gpus for name, gpus in cut.items() if gpus}


def resolved(
    allocations: Mapping[str, tuple[str, ...]] | None, devices: Mapping[str, Device], gpus: Collection[str]
) -> dict[str, tuple[str, ...]] | None:
    """`allocations` with UUIDs where they are known."""
    if allocations is None:
        return None
    return {key: tuple(dict.fromkeys(gpu_of(each, devices, gpus) for each in ids)) for key, ids in allocations.items()}
