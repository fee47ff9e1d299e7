"""Kubernetes objects for tests, as the API server has them: the fields that are read, and what it insists on."""

from __future__ import annotations

import uuid
from typing import Any

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/configmaps"
BIND_REQUESTS = "/apis/scheduling.run.ai/v1alpha2/bindrequests"
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
NODE = "node-a"
SOCKET_DIRECTORY = "/run/nls"
RESERVATIONS = "kai-resource-reservation"
POLICY = "nls-system/nls-policy"


def pod(
    name: str,
    *,
    namespace: str = "default",
    node: str | None = NODE,
    scheduler: str = "kai-scheduler",
    annotations: dict[str, Any] | None = None,
    labels: dict[str, Any] | None = None,
    gpus: int | str | None = None,
    environment: list[dict[str, Any]] | None = None,
    managed: bool = False,
    phase: str = "Running",
    uid: str | None = None,
    priority_class: str | None = None,
    started_at: str | None = None,
    dying: bool = False,
    socket_directory: str = SOCKET_DIRECTORY,
    claim: str | None = None,
) -> dict[str, Any]:
    """A pod with one container `main`; `claim`: the ResourceClaim that this uses, by its own name."""
    container: dict[str, Any] = {"name": "main", "image": "none", "env": environment or []}
    if gpus is not None:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [container], "volumes": []}
    if claim is not None:
        container.setdefault("resources", {})["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    if node is not None:
        spec["nodeName"] = node
    if managed:
        spec["volumes"] = [{"name": "nls", "hostPath": {"path": socket_directory}}]
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    status: dict[str, Any] = {"phase": phase}
    if started_at is not None:
        status["containerStatuses"] = [{"name": "main", "state": {"running": {"startedAt": started_at}}}]
    metadata = {"name": name, "namespace": namespace, "uid": uid or str(uuid.uuid4())}
    metadata |= {"annotations": annotations or {}, "labels": labels or {}}
    if dying:
        metadata["deletionTimestamp"] = "2026-11-23T10:00:00Z"
    return {"metadata": metadata, "spec": spec, "status": status}


def mirror_pod(name: str, static_uid: str, **options: Any) -> dict[str, Any]:
    """What the kubelet writes of a static pod, of which it alone knows the UID (`CreateMirrorPod`)."""
    hashes = dict.fromkeys(("kubernetes.io/config.hash", "kubernetes.io/config.mirror"), static_uid)
    written = pod(name, scheduler="default-scheduler", annotations=hashes, **options)
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "0-node", "controller": True}
    written["metadata"]["ownerReferences"] = [owner]
    return written


def shared_pod(name: str, fraction: str, group: str | None = None, **options: Any) -> dict[str, Any]:
    """A pod of KAI's with a part of a device."""
    labels = {"runai-gpu-group": group} if group is not None else {}
    return pod(name, annotations={"gpu-fraction": fraction}, labels={**labels, **options.pop("labels", {})}, **options)


def reservation(
    group: str, gpu: str | None, name: str | None = None, *, namespace: str = RESERVATIONS, **options: Any
) -> dict[str, Any]:
    """KAI's reservation pod for a group; without `gpu` it has not said yet which device it holds."""
    annotations = {"run.ai/reserve_for_gpu_index": gpu} if gpu is not None else {}
    return pod(
        name or f"gpu-reservation-{group}",
        namespace=namespace,
        annotations=annotations,
        labels={"runai-gpu-group": group},
        gpus=1,
        **options,
    )


def bind_request(
    name: str, *, groups: list[str] | None = None, portion: str = "0.5", count: int = 1, node: str = NODE
) -> dict[str, Any]:
    """KAI's decision for the pod of that name: parts of the devices of `groups`, or `count` whole ones."""
    kind = "Fraction" if groups is not None else "Regular"
    spec: dict[str, Any] = {
        "podName": name,
        "selectedNode": node,
        "receivedResourceType": kind,
        "receivedGPU": {"count": count, "portion": portion if groups is not None else "1.0"},
    }
    if groups is not None:
        spec["selectedGPUGroups"] = groups
    metadata = {"name": name, "namespace": "default", "uid": str(uuid.uuid4()), "labels": {"selected-node": node}}
    return {"metadata": metadata, "spec": spec}


def node(labels: dict[str, str] | None = None, *, cordoned: bool = False) -> dict[str, Any]:
    """This node."""
    spec = {"unschedulable": True} if cordoned else {}
    return {"metadata": {"name": NODE, "uid": "0-node", "labels": labels or {}}, "spec": spec}


def resource_slice(
    uuids: dict[str, str], *, name: str = "node-a-gpus", generation: int = 1, driver: str = "gpu.nvidia.com"
) -> dict[str, Any]:
    """What a DRA driver has on this node: UUIDs by the names of the devices."""
    devices = [slice_device(device, uuid=uuid) for device, uuid in uuids.items()]
    pool = {"name": NODE, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": NODE, "pool": pool, "devices": devices}
    return {"metadata": {"name": name, "uid": f"0-{name}"}, "spec": spec}


def slice_device(name: str, *, memory: str | None = None, **attributes: str) -> dict[str, Any]:
    """A device of a ResourceSlice, as NVIDIA's driver publishes it (`GetDevice`, `PartGetDevice`)."""
    written = {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}
    return written if memory is None else {**written, "capacity": {"memory": {"value": memory}}}


def result(device: str, *, driver: str = "gpu.nvidia.com", **more: Any) -> dict[str, Any]:
    """A `DeviceRequestAllocationResult`; `more`: adminAccess, shareID, consumedCapacity."""
    return {"request": "gpu", "driver": driver, "pool": NODE, "device": device, **more}


def resource_claim(name: str, *results: dict[str, Any], pods: tuple[str, ...] = ()) -> dict[str, Any]:
    """A ResourceClaim that is allocated and reserved for these pods, by their UIDs; without `results` it is neither."""
    status: dict[str, Any] = {}
    if results:
        consumers = [{"resource": "pods", "name": "any", "uid": uid} for uid in pods]
        status = {"allocation": {"devices": {"results": list(results)}}, "reservedFor": consumers}
    metadata = {"name": name, "namespace": "default", "uid": f"0-{name}"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    return {"metadata": metadata, "spec": spec, "status": status}


def config_map(text: str) -> dict[str, Any]:
    """The policy."""
    namespace, name = POLICY.split("/")
    return {"metadata": {"name": name, "namespace": namespace, "uid": "0-map"}, "data": {"policy.json": text}}
