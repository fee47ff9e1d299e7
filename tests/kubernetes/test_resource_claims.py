"""What ResourceClaims give to pods, from the types of `resource.k8s.io/v1` and what NVIDIA's driver publishes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nls_scheduler.core.model.gpu import Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.kubernetes_driver.bind_requests import BindRequest
from nls_scheduler.kubernetes_driver.bind_requests import bind_request as parse_bind_request
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from nls_scheduler.kubernetes_driver.resource_claims import (
    ClaimedDevice,
    ResourceClaim,
    claims_of,
    keys,
    sizes_on,
    with_claims,
    without_onlookers,
)
from nls_scheduler.kubernetes_driver.resource_claims import resource_claim as parsed
from nls_scheduler.kubernetes_driver.resource_slices import Device, device_id
from nls_scheduler.kubernetes_driver.view import Sources, View, look
from objects import SOCKET_DIRECTORY, bind_request, pod, resource_claim, result

GIB = 2**30
A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
CAPACITIES = {A: 16 * GIB, B: 16 * GIB}
CUT, UNSIZED, LATER = "gpu-0-mig-1g10gb-19-6", "gpu-1-mig-1g10gb-19-0", "gpu-0-mig-2g10gb-14-0"
DEVICES = {
    device_id("node-a", name): device
    for name, device in {
        "gpu-0": Device(A, memory_bytes=16 * GIB),
        "gpu-1": Device(B, memory_bytes=16 * GIB),
        CUT: Device("MIG-a", A, 2 * GIB),
        UNSIZED: Device("MIG-b", B),
        LATER: Device("", A, 4 * GIB),
    }.items()
}


def share(device: str, memory: str) -> dict[str, Any]:
    """Of a device with `allowMultipleAllocations`."""
    return result(device, shareID="a671734a-e8e5-11e4-8fde-42010af09327", consumedCapacity={"memory": memory})


def record(written: dict[str, Any]) -> PodRecord:
    found = pod_record(written, SOCKET_DIRECTORY)
    assert found is not None
    return found


def claiming(**options: Any) -> PodRecord:
    """A pod with a claim and nothing else."""
    return record(pod("train", scheduler="default-scheduler", claim="gpu", uid="1", **options))


def given(*results: dict[str, Any], to: PodRecord | None = None) -> PodRecord:
    """The pod as its claim leaves it."""
    claim = parsed(resource_claim("gpu", *results, pods=("1",)))
    assert claim is not None
    return with_claims(to or claiming(), [claim], DEVICES, CAPACITIES)


def seen(record: PodRecord, allocations: dict[str, tuple[str, ...]] | None = None) -> View:
    return look(Sources("node-a", {record.uid: record}, allocations=allocations, capacities=CAPACITIES))


def test_a_claim_knows_better_than_an_annotation_which_gpu_its_pod_has() -> None:
    devices = {"nvidia.com/container.main.gpus.devices": A}
    pod_ = given(share("gpu-1", "6Gi"), to=record(pod("train", claim="gpu", uid="1", annotations=devices)))
    view = seen(pod_, {"default/train": (B,)})
    assert view.claims.owners == (Owner("1", "default/train", (B,), 6 * GIB),)
    assert [trouble.code for trouble in view.troubles["1"]] == ["GpuDevicesWrong"]


@pytest.mark.parametrize(
    ("results", "owned"),
    [
        ([result("gpu-0")], ((A,), None)),
        ([result("gpu-0"), result("gpu-1")], ((A, B), None)),
        ([result(CUT)], ((A,), 2 * GIB)),
        ([result(LATER)], ((A,), 4 * GIB)),
        ([result(UNSIZED)], ((B,), None)),
        ([result(CUT), result(LATER)], ((A,), 6 * GIB)),
        ([share("gpu-1", "6Gi")], ((B,), 6 * GIB)),
        ([share("gpu-1", "6Gi"), share("gpu-1", "2Gi")], ((B,), 8 * GIB)),
        ([share("gpu-1", "0")], ((B,), None)),
        ([result("gpu-1", consumedCapacity={"shares": "1"})], ((B,), None)),
        ([share("gpu-1", "much")], ((B,), None)),
        ([share(CUT, "1Gi")], ((A,), GIB)),
        ([share("gpu-0", "6Gi"), result("gpu-1")], ((A, B), None, 0, {A: 6 * GIB})),
        ([share("gpu-0", "6Gi"), share("gpu-1", "2Gi")], ((A, B), 6 * GIB, 0, {B: 2 * GIB})),
        ([share("gpu-0", "2Ti"), share("gpu-1", "1Ti")], ((A, B), 16 * GIB)),
        ([share("gpu-0", "1Ti")], ((A,), 16 * GIB)),
        ([result("gpu-0", adminAccess=True)], ((), None)),
        ([result("gpu-0", adminAccess=True), result("gpu-1")], ((B,), None)),
        ([result("gpu-0", adminAccess=False)], ((A,), None)),
        ([result("channel-0", driver="compute-domain.nvidia.com")], ((), None)),
    ],
    ids=[
        "a device",
        "two devices",
        "a slice, where its Gpu is not known to be cut",
        "a slice that has no UUID yet",
        "a slice of an unknown size",
        "two slices of one Gpu",
        "a part of a shared device",
        "two parts of the same",
        "a part of a shared device of which no memory is promised",
        "a share that is counted, and no memory",
        "an amount that cannot be read",
        "a part of a slice",
        "a part of one Gpu and all of another",
        "parts of two Gpus: each its own",
        "more of two Gpus than there is",
        "no more than there is",
        "administrative access",
        "administrative access, and a device",
        "administrative access that was refused",
        "another driver's",
    ],
)
def test_what_a_claim_gives_is_owned_before_the_kubelet_tells(
    results: list[dict[str, Any]], owned: tuple[Any, ...]
) -> None:
    view = seen(given(*results))
    assert view.claims.owners == (Owner("1", "default/train", *owned),)
    assert view.signals == {"1": "binding"}
    assert view.troubles == {}


def deciding(*results: dict[str, Any], count: int = 0) -> BindRequest:
    """As KAI decides on a pod with a claim: what it is about to get, by the name of the pod's claim."""
    written = bind_request("train", count=count)
    allocation = {"devices": {"results": list(results)}}
    written["spec"]["resourceClaimAllocations"] = [{"name": "gpu", "allocation": allocation}]
    found = parse_bind_request(written)
    assert found is not None
    return replace(found, claimed_bytes=sizes_on(found.claimed, DEVICES, CAPACITIES))


@pytest.mark.parametrize(
    ("results", "owned"),
    [
        ([result("gpu-1")], ((B,), None)),
        ([result(CUT)], ((A,), None, 0, {A: 2 * GIB})),
        ([share("gpu-1", "6Gi"), result("gpu-0")], ((B, A), None, 0, {B: 6 * GIB})),
        ([share("gpu-1", "1Ti")], ((B,), None, 0, {B: 16 * GIB})),
    ],
    ids=["a device", "a slice to be cut", "a part, and a device", "no more than there is"],
)
@pytest.mark.parametrize("count", [0, 1])
def test_what_kai_is_about_to_give_to_a_claim_is_owned_before_the_pod_is_bound(
    results: list[dict[str, Any]], owned: tuple[Any, ...], count: int
) -> None:
    """`receivedGPU` counts the devices of claims or does not, as KAI's version has it."""
    request = deciding(*results, count=count)
    view = look(Sources("node-a", {}, bind_requests=(request,), capacities=CAPACITIES))
    key = f"bind:{request.uid}"
    assert view.claims.owners == (Owner(key, "default/train", *owned),)
    assert view.signals == {key: "bind_request"}


def test_whoever_is_about_to_look_only_owns_nothing() -> None:
    request = deciding(result("gpu-0", adminAccess=True))
    view = look(Sources("node-a", {}, bind_requests=(request,), capacities=CAPACITIES))
    assert view.claims.owners == (Owner(f"bind:{request.uid}", "default/train"),)
    assert view.somewhere == {}


def test_a_device_that_kai_names_and_no_slice_describes_is_some_gpu() -> None:
    request = deciding(result("gpu-9"))
    view = look(Sources("node-a", {}, bind_requests=(request,), capacities=CAPACITIES))
    assert view.somewhere == {"default/train": (device_id("node-a", "gpu-9"),)}


def test_once_the_pod_is_bound_its_own_claims_say_what_it_has() -> None:
    request = deciding(result("gpu-1"))
    pods = {"1": given(result("gpu-0"))}
    view = look(Sources("node-a", pods, bind_requests=(request,), capacities=CAPACITIES))
    assert view.claims.owners == (Owner("1", "default/train", (A,)),)


def test_the_kubelet_s_word_on_the_same_device_changes_nothing() -> None:
    told = seen(given(share("gpu-0", "6Gi")), {"default/train": (A,)})
    assert told.claims == seen(given(share("gpu-0", "6Gi"))).claims


def test_a_device_that_no_slice_describes_is_some_gpu_until_the_kubelet_and_the_driver_tell() -> None:
    view = seen(given(result("gpu-9")))
    assert view.somewhere == {"default/train": (device_id("node-a", "gpu-9"),)}
    assert {owner.gpus for owner in view.claims.owners} == {(), (A, B)}


def test_extended_resources_that_dra_gives_are_asked_for_by_the_pod_and_named_by_the_claim() -> None:
    written = pod("train", gpus=1, uid="1")
    written["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "made", "requestMappings": []}
    assert record(written).claims == ("default/made",)
    view = seen(given(result("gpu-1"), to=record(written)))
    assert view.claims.owners == (Owner("1", "default/train", (B,)),)


def test_a_notebook_with_a_claim_is_at_home_on_what_that_gives_it() -> None:
    notebook = given(share("gpu-1", "6Gi"), to=claiming(managed=True))
    assert seen(notebook).homes == {"1": (B,)}
    assert notebook.demand is not None
    assert (notebook.demand.request, notebook.demand.limit, notebook.demand.devices) == (6 * GIB, 6 * GIB, 1)


@pytest.mark.parametrize(
    ("claims", "statuses", "names"),
    [
        ([{"name": "gpu", "resourceClaimName": "mine"}], [], ("default/mine",)),
        (
            [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            [{"name": "gpu", "resourceClaimName": "train-gpu-x7"}],
            ("default/train-gpu-x7",),
        ),
        ([{"name": "gpu", "resourceClaimTemplateName": "t"}], [{"name": "gpu"}], ()),
        ([{"name": "gpu", "resourceClaimTemplateName": "t"}], [], ("default/",)),
        ([{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimName": "x"}], [], ("default/x",)),
        ([7, {"name": 3}], "no list", ("default/",)),
    ],
    ids=["by its name", "of a template", "that was not needed", "that is not made yet", "twice the same", "nonsense"],
)
def test_the_claims_of_a_pod(claims: list[Any], statuses: Any, names: tuple[str, ...]) -> None:
    written = pod("train", uid="1")
    written["spec"]["resourceClaims"], written["status"]["resourceClaimStatuses"] = claims, statuses
    assert record(written).claims == names


def claim(*devices: ClaimedDevice, **options: Any) -> ResourceClaim:
    return ResourceClaim(devices, **options)


WATCHED, OWNED = ClaimedDevice("gpu.nvidia.com/node-a/gpu-0", only_looks=True), ClaimedDevice("gpu.nvidia.com/node-a/a")
SAME = ClaimedDevice(WATCHED.id)
KEY, MINE = "default/gpu/1", frozenset({"1"})


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({}, None),
        ({KEY: claim(pods=MINE)}, (claim(pods=MINE),)),
        ({KEY: claim(pods=frozenset({"2"}))}, None),
        ({KEY: claim(groups=True)}, (claim(groups=True),)),
        ({"default/gpu/2": claim(pods=MINE)}, None),
    ],
    ids=["not read", "reserved for it", "reserved for another", "reserved for a group", "as another pod has read it"],
)
def test_a_claim_counts_once_it_is_reserved_for_the_pod(
    known: dict[str, ResourceClaim], found: tuple[ResourceClaim, ...] | None
) -> None:
    assert keys(claiming()) == [KEY]
    assert claims_of(claiming(), known) == found


@pytest.mark.parametrize(
    ("known", "asked_for", "left"),
    [
        ({KEY: claim(WATCHED, pods=MINE)}, set(), {"default/train": ("GPU-plugin",)}),
        ({KEY: claim(WATCHED, OWNED, pods=MINE)}, set(), {"default/train": ("GPU-plugin",)}),
        ({KEY: claim(SAME, pods=MINE)}, set(), {"default/train": (WATCHED.id, "GPU-plugin")}),
        ({KEY: claim(WATCHED, SAME, pods=MINE)}, set(), {"default/train": (WATCHED.id, "GPU-plugin")}),
        ({}, {KEY}, {"default/train": ("GPU-plugin",)}),
        ({}, set(), {"default/train": (WATCHED.id, "GPU-plugin")}),
    ],
    ids=[
        "what it looks at",
        "what it looks at, beside another one",
        "what it owns",
        "what it looks at and owns",
        "what is being asked",
        "what nobody could say",
    ],
)  # fmt: skip
def test_what_the_kubelet_tells_of_a_pod_that_only_looks_is_nobody_s(
    known: dict[str, ResourceClaim], asked_for: set[str], left: dict[str, tuple[str, ...]]
) -> None:
    told = {"default/train": (WATCHED.id, "GPU-plugin"), "default/other": (WATCHED.id,)}
    left = {**left, "default/other": (WATCHED.id,)}
    assert without_onlookers(told, [claiming()], known, asked_for) == left
    assert without_onlookers(None, [claiming()], known, asked_for) is None


@pytest.mark.parametrize(
    "status",
    [None, 3, {}, {"allocation": None}, {"allocation": {}}, {"allocation": "x"}],
)
def test_a_claim_that_is_not_allocated_says_nothing(status: object) -> None:
    assert parsed({"metadata": {}, "spec": {}, "status": status}) is None


@pytest.mark.parametrize("results", [None, "x", [3, {"driver": "gpu.nvidia.com"}], [{"driver": 3}]])
def test_nothing_in_a_claim_makes_it_raise(results: object) -> None:
    written = {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": [3, {"resource": "pods"}]}}
    found = parsed(written)
    assert found is not None
    assert not found.groups
