"""What a pod needs to be a notebook's or to wait for its GPU, as a JSON patch (RFC 6902). Pure.

Only ever adds, and what is there stays: a pod that has been patched needs nothing more.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.pods import MANAGED_ANNOTATION, MIRROR_ANNOTATION, pod_record
from nls_scheduler.kubernetes_driver.quantities import parse_quantity
from nls_scheduler.kubernetes_driver.written import mapping, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.kubernetes_driver.pods import PodRecord

LABEL: Final = "nls-jupyter/inject"
"""Of a pod: `notebook`, `owner`, or anything else for nothing. Of a namespace: `owner` for its pods with a GPU."""
WAITING: Final = "nls-wait-for-gpus"
SOCKET_VOLUME: Final = "nls-jupyter-socket"
ALL_GPUS_VOLUME: Final = "nls-jupyter-all-gpus"
ALL_GPUS: Final = "/var/run/nvidia-container-devices/all"
"""A mount here shows a container all GPUs of its node, where NVIDIA's runtime takes volume mounts for a request."""
EVICTABLE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Volumes of the node, by name and with commas, that do not keep Cluster Autoscaler from taking the node away."""
UNPRIVILEGED: Final = 65532
"""A user id that is nobody's, as in many images."""
SOCKET_VARIABLE: Final = "NLS_SOCKET"
_ENOUGH: Final = {"cpu": "500m", "memory": "128Mi"}
"""For a wait. Less than a processor: where the kubelet gives whole ones away, it might be far from the pod's GPU."""
_LEAST_MEMORY: Final = "64Mi"
"""With less than half of that what waits is killed, and a pod that is not restarted has failed."""
_NO_POWERS: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Role(StrEnum):
    """What a pod is to be made ready for."""

    NOTEBOOK = "notebook"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Injection:
    """What is added.

    Attributes:
        image: in which `nls` is, for the init container.
        socket_directory: of the daemon, on the node and in the pod.
        timeout_s: for how long a start is held at most.
        user: of the init container; `None`: whom the cluster gives it.
        all_gpus: whether a notebook's container is shown all GPUs of the node by a volume mount.
        runtime_class: for a notebook that names none; `None`: nothing is added.
        tolerations: keys of taints that a notebook tolerates.
    """

    image: str
    socket_directory: str = "/run/nls"
    timeout_s: float = 60.0
    user: int | None = UNPRIVILEGED
    all_gpus: bool = True
    runtime_class: str | None = None
    tolerations: tuple[str, ...] = ()


class Unpatchable(ValueError):  # noqa: N818 - says what the pod is
    """A pod that stays as it is; the message is a sentence for whoever made it."""


def patch_for(pod: Mapping[str, Any], injection: Injection, default: Role | None = None) -> list[dict[str, Any]]:
    """The operations that make `pod` ready; none where nothing is to be done.

    Its label says for what; `default` holds for a pod without it, of a namespace that has it. Raises Unpatchable.
    """
    patch = _Patch(pod)
    role = _role(patch.pod, default)
    if role is Role.NOTEBOOK:
        _make_notebook(patch, injection)
    elif role is Role.OWNER:
        _make_wait(patch, injection)
    if patch.operations and MIRROR_ANNOTATION in texts(pod["metadata"].get("annotations")):
        raise Unpatchable("it is a static pod's, which its kubelet runs as its file says")
    return patch.operations


class _Patch:
    """The operations so far, and the pod with them."""

    def __init__(self, pod: Mapping[str, Any]) -> None:
        self.pod = deepcopy(dict(pod))
        self.operations: list[dict[str, Any]] = []
        for part in ("metadata", "spec"):
            if not isinstance(self.pod.get(part), dict):
                raise Unpatchable(f"it has no {part}")
        for name in ("labels", "annotations"):
            if not isinstance(self.pod["metadata"].get(name) or {}, dict):
                raise Unpatchable(f"its {name} are no object")
        for name in ("containers", "initContainers", "volumes", "tolerations"):
            _check_list(self.spec, name)
        for container in (*self.containers, *self.init_containers):
            for name in ("env", "volumeMounts"):
                _check_list(container, name)
        if not self.containers:
            raise Unpatchable("it has no containers")

    @property
    def spec(self) -> dict[str, Any]:
        """Of the pod as it will be."""
        spec: dict[str, Any] = self.pod["spec"]
        return spec

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Those that stay."""
        return self.spec.get("containers") or []

    @property
    def init_containers(self) -> list[dict[str, Any]]:
        """Those that come first."""
        return self.spec.get("initContainers") or []

    def set(self, holder: dict[str, Any], path: str, name: str, value: Any) -> None:
        """Give an object a member that it does not have, or has as null."""
        holder[name] = deepcopy(value)
        self._add(f"{path}/{name.replace('~', '~0').replace('/', '~1')}", value)

    def annotate(self, name: str, value: str) -> None:
        """Give the pod an annotation, or one of its own more than it says."""
        metadata = self.pod["metadata"]
        if not metadata.get("annotations"):
            self.set(metadata, "/metadata", "annotations", {})
        self.set(metadata["annotations"], "/metadata/annotations", name, value)

    def append(self, holder: dict[str, Any], path: str, name: str, value: Any, *, first: bool = False) -> None:
        """Add to a list, which is made where there is none."""
        if not holder.get(name):
            self.set(holder, path, name, [value])
            return
        holder[name].insert(0 if first else len(holder[name]), deepcopy(value))
        self._add(f"{path}/{name}/{0 if first else '-'}", value)

    def _add(self, path: str, value: Any) -> None:
        self.operations.append({"op": "add", "path": path, "value": deepcopy(value)})


def _role(pod: Mapping[str, Any], default: Role | None) -> Role | None:
    labels = pod["metadata"].get("labels")
    said = labels.get(LABEL) if isinstance(labels, dict) else None
    if said is None:
        return default
    return Role(said) if said in tuple(Role) else None


def _make_notebook(patch: _Patch, injection: Injection) -> None:
    """The socket, where it is, and what else its container needs to see the node's GPUs."""
    number = _gpu_container(patch.pod, patch.containers)
    container, path = patch.containers[number], f"/spec/containers/{number}"
    mounted = _mounted_at(container, injection.socket_directory)
    if mounted is not None and not any(
        volume.get("name") == mounted and _is_of(volume, injection.socket_directory)
        for volume in patch.spec.get("volumes") or ()
    ):
        raise Unpatchable(f"it has something else mounted at {injection.socket_directory}")
    if mounted is None:
        patch.append(container, path, "volumeMounts", _socket_mount(patch, injection, "Directory"))
    if not _named(container.get("env"), SOCKET_VARIABLE):
        socket = f"{injection.socket_directory}/nls.sock"
        patch.append(container, path, "env", {"name": SOCKET_VARIABLE, "value": socket})
    if injection.all_gpus and _mounted_at(container, ALL_GPUS) is None:
        volume = _volume(patch, ALL_GPUS_VOLUME, {"path": "/dev/null"})
        patch.append(container, path, "volumeMounts", {"name": volume, "mountPath": ALL_GPUS})
    if injection.runtime_class is not None and not patch.spec.get("runtimeClassName"):
        patch.set(patch.spec, "/spec", "runtimeClassName", injection.runtime_class)
    tolerated = [toleration.get("key") for toleration in patch.spec.get("tolerations") or ()]
    for key in (key for key in injection.tolerations if key not in tolerated):
        patch.append(patch.spec, "/spec", "tolerations", {"key": key, "operator": "Exists"})


def _make_wait(patch: _Patch, injection: Injection) -> None:
    """An init container before all others, and the word that this is no notebook's pod."""
    record = _record(patch.pod, injection.socket_directory)
    if record is None or record.demand is None or record.managed or _named(patch.init_containers, WAITING):
        return
    if mapping(patch.spec, "os").get("name") == "windows":
        raise Unpatchable("it is of another operating system than the daemon's nodes")
    if _named(patch.containers, WAITING):
        raise Unpatchable(f"it has another container of the name {WAITING}")
    if not record.demand.whole and _named(patch.init_containers, record.demand.container):
        # The ConfigMaps that it mounts are called by the place of the container that has the part of a GPU.
        raise Unpatchable("KAI Scheduler counts its init containers, and gives a GPU to one of them")
    containers = (*patch.containers, *patch.init_containers)
    asks = next((each for each in containers if each.get("name") == record.demand.container), containers[0])
    resources = _resources(asks)
    memory = resources.get("limits", {}).get("memory")
    if memory is not None and _least(_LEAST_MEMORY, memory) != _LEAST_MEMORY:
        raise Unpatchable(f"its container has {memory} of memory, and what waits for its GPU needs {_LEAST_MEMORY}")
    user = {} if injection.user is None else {"runAsNonRoot": True, "runAsUser": injection.user}
    container: dict[str, Any] = {
        "name": WAITING,
        "image": injection.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nls", "wait-for-gpus", f"--timeout={injection.timeout_s:g}"],
        "env": [{"name": SOCKET_VARIABLE, "value": f"{injection.socket_directory}/nls.sock"}],
        **({"resources": resources} if resources else {}),
        "securityContext": {**_NO_POWERS, **user},
    }
    mount = _socket_mount(patch, injection, "DirectoryOrCreate")
    container["volumeMounts"] = [mount]
    patch.append(patch.spec, "/spec", "initContainers", container, first=True)
    annotations = texts(patch.pod["metadata"].get("annotations"))
    if MANAGED_ANNOTATION not in annotations:
        patch.annotate(MANAGED_ANNOTATION, "false")
    evictable = [each for each in annotations.get(EVICTABLE, "").split(",") if each]
    if mount["name"] == SOCKET_VOLUME and SOCKET_VOLUME not in evictable:
        patch.annotate(EVICTABLE, ",".join([*evictable, SOCKET_VOLUME]))


def _resources(asks: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What is enough for a wait, and nowhere more than the container that `asks` for the GPU has.

    So the pod counts as before, its quality of service stays, and no quota or limit of its namespace refuses it that
    would let this container be.
    """
    limits = texts(mapping(asks, "resources", "limits"))
    sides = {"requests": {**limits, **texts(mapping(asks, "resources", "requests"))}, "limits": limits}
    found = {
        side: {name: least for name, enough in _ENOUGH.items() if (least := _least(enough, has.get(name)))}
        for side, has in sides.items()
    }
    return {side: sizes for side, sizes in found.items() if sizes}


def _least(enough: str, has: str | None) -> str | None:
    """The smaller of two quantities; `None` where there is none, or it is nothing."""
    own, wanted = parse_quantity(has or ""), parse_quantity(enough)
    if not own or wanted is None:
        return None
    return enough if own >= wanted else has


def _socket_mount(patch: _Patch, injection: Injection, kind: str) -> dict[str, Any]:
    """Of the volume with the daemon's socket, which is added where there is none."""
    volume = _volume(patch, SOCKET_VOLUME, {"path": injection.socket_directory, "type": kind}, any_name=True)
    return {"name": volume, "mountPath": injection.socket_directory, "readOnly": True}


def _volume(patch: _Patch, name: str, host_path: dict[str, str], *, any_name: bool = False) -> str:
    """The name of a volume of that path: one that is there (`any_name`: whatever it is called), or a new one."""
    for volume in patch.spec.get("volumes") or ():
        if _is_of(volume, host_path["path"]) and (any_name or volume.get("name") == name):
            return str(volume.get("name"))
        if volume.get("name") == name:
            raise Unpatchable(f"it has another volume of the name {name}")
    patch.append(patch.spec, "/spec", "volumes", {"name": name, "hostPath": host_path})
    return name


def _is_of(volume: Mapping[str, Any], path: str) -> bool:
    """Whether it is that path of the node."""
    there = volume.get("hostPath")
    return isinstance(there, dict) and str(there.get("path")).rstrip("/") == path.rstrip("/")


def _record(pod: Mapping[str, Any], socket_directory: str = "") -> PodRecord | None:
    """The record of a pod that is about to be made, and has no name, UID or namespace of its own yet."""
    identity = {"uid": "new", "name": "new", "namespace": pod["metadata"].get("namespace") or "new"}
    return pod_record({**pod, "metadata": {**pod["metadata"], **identity}}, socket_directory)


def _gpu_container(pod: Mapping[str, Any], containers: list[dict[str, Any]]) -> int:
    """Which container gets the GPU: the one that the pod names, else that which asks for one, else the first."""
    record = _record(pod)
    named = None if record is None or record.demand is None else record.demand.container
    return next((n for n, container in enumerate(containers) if container.get("name") == named), 0)


def _mounted_at(container: Mapping[str, Any], path: str) -> str | None:
    """The name of the volume that a container has at `path`."""
    mounts = container.get("volumeMounts") or ()
    there = (mount for mount in mounts if str(mount.get("mountPath")).rstrip("/") == path.rstrip("/"))
    return next((str(mount.get("name")) for mount in there), None)


def _named(items: Iterable[Mapping[str, Any]] | None, name: str | None) -> bool:
    return any(item.get("name") == name for item in items or ())


def _check_list(holder: Mapping[str, Any], name: str) -> None:
    value = holder.get(name)
    if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise Unpatchable(f"its {name} are no list of objects")
