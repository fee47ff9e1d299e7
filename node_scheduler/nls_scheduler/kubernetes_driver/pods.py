"""What this node's pods say about GPUs: an object of the API becomes a record. Pure; no object makes it raise."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.priorities import PRIORITY_LIMIT
from nls_scheduler.kubernetes_driver.quantities import Container, Demand, Trouble, demand_of
from nls_scheduler.kubernetes_driver.written import mapping, objects, text, texts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

GROUP_LABEL: Final = "runai-gpu-group"
GROUP_PREFIX: Final = "runai-gpu-group/"
DEVICES_ANNOTATION_SUFFIX: Final = ".gpus.devices"
RECEIVED_TYPE: Final = "received-resource-type"
RESERVED_GPU: Final = "run.ai/reserve_for_gpu_index"
SHARING_SCHEDULERS: Final = frozenset({"kai-scheduler", "runai-scheduler"})
"""Those that give parts of a GPU: KAI's and Run:ai's."""
RESERVATION_NAMESPACES: Final = frozenset({"kai-resource-reservation", "runai-reservation"})
QUEUE_LABELS: Final = ("kai.scheduler/queue", "runai/queue")
PRIORITY_LABEL: Final = "priorityClassName"
PRIORITY_CLASSES: Final[Mapping[str, int]] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
_USUAL_CLASS: Final = "train"
"""As KAI has it for a pod that names none (`calcPriorityClassWithDefaults`)."""
MANAGED_ANNOTATION: Final = "nls-jupyter/managed"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_STATIC_UID: Final = re.compile("[0-9a-f]{32}")
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod of this node, as far as GPUs are concerned.

    Attributes:
        uid: see `pod_uid`; unlike its name never another pod's.
        node: where it is bound; empty: nowhere yet.
        ended: it holds nothing any more.
        dying: it has been told to end.
        scheduler: who placed it.
        queue: as KAI or Run:ai call it; empty: none.
        priority: of its class, or the number that Kubernetes worked out.
        demand: what it asks for; `None`: no GPU.
        groups: KAI's names of the devices that it shares, in order; empty for a pod that KAI does not place.
        devices: UUIDs that KAI 0.18 wrote on it; empty likewise.
        claims: its ResourceClaims, by `namespace/name`; one without a name is not made yet.
        claimed: Gpus that these give it, as far as they have been read.
        claimed_bytes: how much of each, where it asks for nothing else; `None`: all of it.
        managed: its GPU processes are looked after by us: it can reach the daemon's socket.
        reserves: UUID of the device that this reservation pod holds; empty: it has not said yet; `None`: it is none.
        started_at: when its GPU container began, seconds since the epoch.
        troubles: what of it cannot be used as it is written.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    ended: bool = False
    dying: bool = False
    scheduler: str = ""
    queue: str = ""
    priority: int = 0
    demand: Demand | None = None
    groups: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    claimed_bytes: Mapping[str, int | None] = field(default_factory=dict)
    managed: bool = False
    reserves: str | None = None
    started_at: float | None = None
    troubles: tuple[Trouble, ...] = ()

    @property
    def key(self) -> str:
        """As people and BindRequests name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def leaves(self) -> bool:
        """It has been told to end and its GPU container does not run any more; it may be there for long."""
        return self.dying and self.started_at is None

    @property
    def shares(self) -> bool:
        """It asks for a part of a GPU in KAI's words, and not by a claim."""
        return self.demand is not None and not self.demand.whole and not self.claimed_bytes

    def in_turns(self, given: Collection[str]) -> PodRecord:
        """The same where some of its devices, as the kubelet has `given` them, are one GPU that is given in turns."""
        again = len(given) - len(set(given))
        if self.demand is None or not self.demand.devices or not again:
            return self
        return replace(self, demand=replace(self.demand, devices=max(1, self.demand.devices - again)))

    @property
    def given_none(self) -> bool:
        """It asks for a part of a GPU, and its scheduler gives nobody one."""
        return self.shares and not self.claimed and self.scheduler not in SHARING_SCHEDULERS


@dataclass(frozen=True, slots=True)
class _Parts:
    """An object's parts with the types that they must have; what has another type is absent."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def pod_uid(pod: Mapping[str, Any]) -> str:
    """As the kubelet knows it, which is what its cgroup and its Events name; empty for an object without one.

    Of a static pod the API server has a mirror, with a UID of its own and a new one each time that it is made again.
    The static pod's is a hash of its manifest, which cannot be any other pod's.
    """
    metadata = mapping(pod, "metadata")
    static = texts(metadata.get("annotations")).get(MIRROR_ANNOTATION, "")
    is_mirror = any(owner.get("kind") == "Node" for owner in objects(metadata.get("ownerReferences")))
    return static if is_mirror and _STATIC_UID.fullmatch(static) else text(metadata.get("uid"))


def pod_record(
    pod: Mapping[str, Any], socket_directory: str, reservations: Collection[str] = RESERVATION_NAMESPACES
) -> PodRecord | None:
    """The record of a pod; `None` for an object without identity.

    `socket_directory`: of the daemon, on the node. `reservations`: the namespaces of reservation pods.
    """
    metadata = mapping(pod, "metadata")
    parts = _Parts(
        metadata,
        mapping(pod, "spec"),
        mapping(pod, "status"),
        texts(metadata.get("labels")),
        texts(metadata.get("annotations")),
    )
    uid = pod_uid(pod)
    namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
    if not uid or not namespace or not name:
        return None
    containers = _containers(parts.spec)
    reservation = namespace in reservations
    demand = demand_of(parts.annotations, containers)
    troubles = () if demand is None else demand.troubles
    if RESERVED_GPU in parts.annotations and not reservation:
        troubles = (*troubles, _reserves_elsewhere(namespace))
    scheduler = text(parts.spec.get("schedulerName"))
    # Anybody can write labels and annotations: they are KAI's word only on its own pods and reservations.
    shared = scheduler in SHARING_SCHEDULERS
    return PodRecord(
        uid=uid,
        namespace=namespace,
        name=name,
        node=text(parts.spec.get("nodeName")),
        ended=text(parts.status.get("phase")) in _ENDED,
        dying=bool(text(metadata.get("deletionTimestamp"))),
        scheduler=scheduler,
        queue=next((parts.labels[label] for label in QUEUE_LABELS if parts.labels.get(label)), ""),
        priority=_priority(parts.spec, parts.labels.get(PRIORITY_LABEL, ""), shared=shared),
        demand=demand,
        groups=_groups(parts.labels) if shared or reservation else (),
        devices=_devices(parts.annotations, demand) if shared else (),
        claims=_claims(parts, namespace),
        managed=_is_managed(parts, socket_directory),
        reserves=parts.annotations.get(RESERVED_GPU, "").strip() if reservation else None,
        started_at=_started_at(parts.status, None if demand is None else demand.container),
        troubles=troubles,
    )


def _reserves_elsewhere(namespace: str) -> Trouble:
    """Anybody can write the annotation: what it says counts only where the cluster's scheduler alone makes pods."""
    what = f"It has the annotation {RESERVED_GPU} and is in no namespace of reservations: it counts as any other pod."
    hint = f"If KAI Scheduler has its own there, give the daemons --reservation-namespace={namespace}."
    return Trouble("GpuReservationElsewhere", f"{what} {hint}")


def _containers(spec: Mapping[str, Any]) -> list[Container]:
    """Those that stay, and then the init containers in their order."""
    stay, initial = objects(spec.get("containers")), objects(spec.get("initContainers"))
    return [_container(each) for each in stay] + [_container(each, initial=True) for each in initial]


def _container(written: Mapping[str, Any], *, initial: bool = False) -> Container:
    resources = mapping(written, "resources")
    environment: dict[str, str | None] = {}
    for variable in objects(written.get("env")):
        elsewhere = "valueFrom" in variable
        environment[text(variable.get("name"))] = None if elsewhere else text(variable.get("value"))
    claims = tuple(text(claim.get("name")) for claim in objects(resources.get("claims")))
    limits = {**texts(resources.get("requests")), **texts(resources.get("limits"))}
    sidecar = initial and written.get("restartPolicy") == "Always"
    return Container(text(written.get("name")), limits, environment, claims, initial=initial, sidecar=sidecar)


def _groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """One device: the label's value. Several: a label per device, whose name ends in the group."""
    several = sorted(label.removeprefix(GROUP_PREFIX) for label in labels if label.startswith(GROUP_PREFIX))
    if several:
        return tuple(several)
    return (labels[GROUP_LABEL],) if labels.get(GROUP_LABEL) else ()


def _devices(annotations: Mapping[str, str], demand: Demand | None) -> tuple[str, ...]:
    """`nvidia.com/container.<c>.gpus.devices`: UUIDs with commas."""
    for name in sorted(annotations):
        if not (name.startswith("nvidia.com/container.") and name.endswith(DEVICES_ANNOTATION_SUFFIX)):
            continue
        of = name.removeprefix("nvidia.com/container.").removesuffix(DEVICES_ANNOTATION_SUFFIX)
        if demand is None or demand.container in (None, of):
            words = (word.strip() for word in annotations[name].split(","))
            return tuple(word for word in words if word.startswith(("GPU-", "MIG-")))
    return ()


def _claims(parts: _Parts, namespace: str) -> tuple[str, ...]:
    """Those that it names, those made for it from templates, and the one for extended resources that DRA gives."""
    statuses = objects(parts.status.get("resourceClaimStatuses"))
    made = {text(each.get("name")): text(each.get("resourceClaimName")) for each in statuses}
    # One that is in the status without a name was not needed.
    needed = [each for each in objects(parts.spec.get("resourceClaims")) if made.get(text(each.get("name"))) != ""]
    names = [text(each.get("resourceClaimName")) or made.get(text(each.get("name")), "") for each in needed]
    extended = text(mapping(parts.status, "extendedResourceClaimStatus").get("resourceClaimName"))
    return tuple(dict.fromkeys(f"{namespace}/{name}" for name in (*names, *filter(None, [extended]))))


def _priority(spec: Mapping[str, Any], label: str, *, shared: bool) -> int:
    """As KAI reads it for its own: the label comes first, since the cluster may give a class to whoever names none."""
    number, own = spec.get("priority"), text(spec.get("priorityClassName"))
    for named in (label, own) if shared else (own,):
        if named in PRIORITY_CLASSES:
            return PRIORITY_CLASSES[named]
    if shared and not own:
        return PRIORITY_CLASSES[_USUAL_CLASS]
    # Those of the system go beyond what a workload can have.
    return max(-PRIORITY_LIMIT, min(number, PRIORITY_LIMIT)) if type(number) is int else 0


def _is_managed(parts: _Parts, socket_directory: str) -> bool:
    """Whether the daemon's socket is mounted, or its injector has said that it will be.

    A pod whose init containers alone mount it asks whether it may start, and is no notebook's.
    """
    said = parts.annotations.get(MANAGED_ANNOTATION)
    if said is not None:
        return said == "true"
    paths = {text(v.get("name")): text(mapping(v, "hostPath").get("path")) for v in objects(parts.spec.get("volumes"))}
    names = {name for name, path in paths.items() if path and path.rstrip("/") == socket_directory.rstrip("/")}
    first = objects(parts.spec.get("initContainers"))
    stay = [*objects(parts.spec.get("containers")), *(c for c in first if c.get("restartPolicy") == "Always")]
    return bool(names) and (bool(names & _mounted(stay)) or not names & _mounted(first))


def _mounted(containers: list[Mapping[str, Any]]) -> set[str]:
    return {text(mount.get("name")) for container in containers for mount in objects(container.get("volumeMounts"))}


def _started_at(status: Mapping[str, Any], container: str | None) -> float | None:
    for state in (*objects(status.get("containerStatuses")), *objects(status.get("initContainerStatuses"))):
        if container is None or state.get("name") == container:
            running = mapping(state, "state", "running")
            return _moment(text(running.get("startedAt")))
    return None


def _moment(written: str) -> float | None:
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        return None
