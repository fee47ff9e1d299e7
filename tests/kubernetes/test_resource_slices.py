"""Which GPU a device of a DRA claim is, as the driver's ResourceSlices say."""

from __future__ import annotations

from typing import Any

import pytest

from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.kubernetes_driver.resource_slices import (
    Device,
    device_id,
    devices_of,
    gpu_of,
    resolved,
    slices_of_parents,
)
from nls_scheduler.kubernetes_driver.resource_slices import resource_slice as parsed
from objects import resource_slice, slice_device

MIG = "gpu-0-mig-1g10gb-19-6"


def devices(*written: dict[str, Any]) -> dict[str, Device]:
    return devices_of(found for each in written if (found := parsed(each)) is not None)


def uuids(*written: dict[str, Any]) -> dict[str, str]:
    return {name: device.uuid for name, device in devices(*written).items()}


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ([resource_slice({"gpu-0": "GPU-b", "gpu-1": "GPU-a"})], {"gpu-0": "GPU-b", "gpu-1": "GPU-a"}),
        ([resource_slice({MIG: "MIG-a"})], {MIG: "MIG-a"}),
        (
            [resource_slice({"gpu-0": "GPU-a"}), resource_slice({"gpu-1": "GPU-b"})],
            {"gpu-0": "GPU-a", "gpu-1": "GPU-b"},
        ),
        ([resource_slice({"gpu-0": "GPU-b"}, generation=2), resource_slice({"gpu-0": "GPU-a"})], {"gpu-0": "GPU-b"}),
        (
            [
                resource_slice({"gpu-0": "GPU-c"}, generation=2),
                resource_slice({"gpu-0": "GPU-a"}),
                resource_slice({"gpu-1": "GPU-b"}),
            ],
            {"gpu-0": "GPU-c", "gpu-1": "GPU-b"},
        ),
        ([resource_slice({"channel-0": "x"}, driver="compute-domain.nvidia.com")], {}),
    ],
    ids=[
        "minor numbers are no indexes",
        "a slice of a GPU",
        "two slices of one pool",
        "the newest generation counts",
        "of what it names",
        "another driver's",
    ],
)
def test_what_the_names_of_devices_mean(written: list[dict[str, Any]], known: dict[str, str]) -> None:
    assert uuids(*written) == {device_id("node-a", name): uuid for name, uuid in known.items()}


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"driver": "gpu.nvidia.com"},
        {"driver": "gpu.nvidia.com", "pool": {"name": 3}},
        {"driver": "gpu.nvidia.com", "pool": {"name": "a", "generation": "x"}},
    ],
)
def test_what_cannot_be_read_is_left_out(spec: object) -> None:
    assert parsed({"metadata": {}, "spec": spec}) is None


@pytest.mark.parametrize("device", [None, 3, {"name": "gpu-0"}, {"name": "gpu-0", "attributes": {"uuid": {"int": 1}}}])
def test_a_device_without_a_uuid_is_not_known(device: object) -> None:
    written = resource_slice({"gpu-1": "GPU-b"})
    written["spec"]["devices"].append(device)
    assert uuids(written) == {device_id("node-a", "gpu-1"): "GPU-b"}


def test_what_is_not_known_keeps_its_name() -> None:
    known = {device_id("node-a", "gpu-0"): Device("GPU-a")}
    allocations = {"default/train": (device_id("node-a", "gpu-0"), "GPU-a", device_id("node-a", MIG))}
    assert resolved(allocations, known, {"GPU-a"}) == {"default/train": ("GPU-a", device_id("node-a", MIG))}
    assert resolved(None, known, {"GPU-a"}) is None


@pytest.mark.parametrize(
    ("uuid", "gpus", "found"),
    [
        ("MIG-a", {"MIG-a", "MIG-b"}, "MIG-a"),
        ("MIG-a", {"GPU-a"}, "GPU-a"),
        (None, {"GPU-a"}, "GPU-a"),
        (None, {"MIG-a", "MIG-b"}, device_id("node-a", MIG)),
        ("MIG-a", {"GPU-b"}, "MIG-a"),
    ],
    ids=[
        "a slice that is a Gpu of its own",
        "a Gpu that is not known to be cut",
        "a slice that is only cut once it is claimed",
        "one of several slices, nobody knows which",
        "a slice of another Gpu",
    ],
)
def test_what_a_slice_of_a_gpu_is(uuid: str | None, gpus: set[str], found: str) -> None:
    written = resource_slice({})
    own = {} if uuid is None else {"uuid": uuid}
    written["spec"]["devices"] = [slice_device(MIG, memory="10Gi", parentUUID="GPU-a", **own)]
    known = devices(written)
    assert known == {device_id("node-a", MIG): Device(uuid or "", "GPU-a", 10 * 2**30)}
    assert gpu_of(device_id("node-a", MIG), known, gpus) == found


def test_a_slice_that_was_cut_for_its_claim_is_one_of_those_that_its_gpu_has_now() -> None:
    told = devices({**resource_slice({}), "spec": {**resource_slice({"gpu-1": "GPU-b"})["spec"], "devices": [
        slice_device(MIG, parentUUID="GPU-a"),
        slice_device("gpu-1-mig-1g10gb-19-0", parentUUID="GPU-b"),
        slice_device("gpu-2-mig-1g10gb-19-0", uuid="MIG-c", parentUUID="GPU-a"),
    ]}})  # fmt: skip
    parents = {GpuUuid("MIG-x"): "GPU-a", GpuUuid("MIG-y"): "GPU-a", GpuUuid("GPU-b"): ""}
    assert slices_of_parents(told, parents) == {device_id("node-a", MIG): frozenset({"MIG-x", "MIG-y"})}
