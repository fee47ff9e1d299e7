"""What a pod asks of a GPU, in every form in which Kubernetes, KAI Scheduler and Run:ai write it. Pure.

A value that cannot be used is a `Trouble`, never an exception: the pod stays as its scheduler wanted it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIB: Final = 2**20
FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
DEVICES: Final = "gpu-fraction-num-devices"
CONTAINER: Final = "gpu-fraction-container-name"
LIMIT_VARIABLE: Final = "RUNAI_GPU_MEMORY_LIMIT"
WHOLE: Final = "nvidia.com/gpu"
SHARED: Final = "nvidia.com/gpu.shared"
"""The same device where NVIDIA's device plugin gives it to several pods in turns (`renameByDefault`)."""
MIG_PREFIX: Final = "nvidia.com/mig-"
"""Of a slice's resource: `mig-1g.24gb`, with `.me`, `-me`, `.gfx`, `.all`, `.shared` behind it or what comes next."""
_CONTAINER_MEMORY: Final = re.compile(r"nvidia\.com/container\.([a-z0-9-]+)\.gpu-memory\.(request|limit)$")
_CONTAINER_MODE: Final = re.compile(r"nvidia\.com/container\.([a-z0-9-]+)\.gpu-compute\.mode$")
_MODES: Final = ("time-slicing", "sm-sharing")
_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?$")
_SUFFIXES: Final[dict[str, Decimal]] = {
    "": Decimal(1),
    **{s: Decimal(10) ** p for s, p in (("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9))},
    **{s: Decimal(10) ** p for s, p in (("T", 12), ("P", 15), ("E", 18))},
    **{s: Decimal(2) ** p for s, p in (("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60))},
}
MOST_DEVICES: Final = 64
_LEAST_BYTES: Final = MIB
_MOST_BYTES: Final = 4 * 2**40
LEAST_FRACTION: Final = _LEAST_BYTES / _MOST_BYTES
"""Less than that is not a MiB of the largest GPU."""
TOO_SMALL: Final = "GpuRequestTooSmall"
_TEXT_LIMIT: Final = 80


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something in a pod that cannot be used as it is written.

    Attributes:
        code: the reason of the Kubernetes Event, in CamelCase.
        sentence: for whoever wrote it: what is wrong and what holds instead.
    """

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for on each of its devices; a float is a fraction of the device, an int bytes.

    Attributes:
        request: what its scheduler guarantees it.
        limit: at least the request.
        devices: on how many.
        whole: whether it asks the device plugin for complete devices, which the kubelet chooses.
        container: which container gets them; `None`: the first.
        mig: the resource's name where slices are asked for.
        mode: how KAI lets it share the cores; `None`: not said.
        by_unit: whether the request is a number of units (`gpu-memory`), here taken for MiB.
        initial_devices: how many more the kubelet holds for init containers that end; it does not say which.
        troubles: what of it had to be left out.
    """

    request: float | int
    limit: float | int
    devices: int = 1
    whole: bool = False
    container: str | None = None
    mig: str | None = None
    mode: str | None = None
    by_unit: bool = False
    initial_devices: int = 0
    troubles: tuple[Trouble, ...] = ()

    @property
    def is_too_small(self) -> bool:
        """Whether it counts as a complete device because next to nothing was asked for."""
        shares = isinstance(self.request, float) and not self.whole
        return shares and any(trouble.code == TOO_SMALL for trouble in self.troubles)

    def in_units_of(self, unit_bytes: int) -> Demand:
        """The same where the cluster's scheduler means another unit than MiB by `gpu-memory`."""
        if not self.by_unit or not isinstance(self.request, int):
            return self
        request = self.request // MIB * unit_bytes
        limit = request if self.limit == self.request else self.limit
        return replace(self, request=request, limit=limit if isinstance(limit, float) else max(limit, request))


@dataclass(frozen=True, slots=True)
class Container:
    """The part of a container that says something about GPUs.

    Attributes:
        limits: `resources.limits` (extended resources have request == limit).
        environment: literal variables; one that comes from elsewhere has `None`.
        claims: names of the DRA claims that it uses.
        initial: it is an init container.
        sidecar: it is one that runs beside the others from then on (`restartPolicy: Always`).
    """

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    initial: bool = False
    sidecar: bool = False


def is_gpu_resource(name: str) -> bool:
    """Whether an extended resource is GPUs, or slices of them, of NVIDIA's device plugin."""
    return name in (WHOLE, SHARED) or name.startswith(MIG_PREFIX)


def parse_quantity(text: str) -> Decimal | None:
    """A Kubernetes quantity such as `8Gi`, `500m` or `1e9`; `None` for anything else."""
    match = _QUANTITY.match(text.strip()[:_TEXT_LIMIT])
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    try:
        if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
            return Decimal(number + suffix)
        return Decimal(number) * _SUFFIXES[suffix]
    except InvalidOperation:
        return None


def demand_of(annotations: Mapping[str, str], containers: Sequence[Container]) -> Demand | None:
    """What a pod asks for; `None`: no GPU. `containers`: its init containers last, in their order.

    A pod whose request cannot be read counts as one that owns a complete device: too much is safe, too little is not.
    """
    troubles: list[Trouble] = []
    wholes = [(c, name, count) for c in containers for name, count in _devices(c, troubles)]
    total = sum(count for c, _, count in wholes if c.sidecar or not c.initial)
    first = sum(_effective(wholes, name) for name in {name for _, name, _ in wholes}) - total
    devices = _device_count(annotations, troubles)
    request = _shared_request(annotations, containers, troubles)
    if request is None and not wholes and not any(c.claims for c in containers):
        return None
    container = _container(annotations, containers, troubles)
    mode = _mode(annotations, troubles)
    if request is None:
        if not wholes:
            return Demand(1.0, 1.0, 0, whole=True, container=None, mode=mode, troubles=tuple(troubles))
        mig = next((name for _, name, _ in wholes if name.startswith(MIG_PREFIX)), None)
        whole = Demand(1.0, 1.0, total, whole=True, container=wholes[0][0].name, mig=mig, mode=mode)
        return replace(whole, initial_devices=first, troubles=tuple(troubles))
    if wholes:
        troubles.append(
            Trouble("GpuRequestContradicts", f"It asks for {WHOLE} and for a part of a GPU: {WHOLE} holds.")
        )
        whole = Demand(1.0, 1.0, total, whole=True, container=wholes[0][0].name)
        return replace(whole, initial_devices=first, troubles=tuple(troubles))
    limit = _limit(annotations, containers, container, request, troubles)
    by_unit = MEMORY in annotations and isinstance(request, int) and request == _units(annotations[MEMORY]) * MIB
    return Demand(request, limit, devices, container=container, mode=mode, by_unit=by_unit, troubles=tuple(troubles))


def as_bytes(size: float, capacity_bytes: int, counted_bytes: int | None) -> int:
    """A demand's size on a Gpu of `capacity_bytes`, of which the cluster's scheduler believes it has `counted_bytes`.

    A scheduler that believes in more memory than a process can get (it knows nothing of what the driver keeps) hands
    out parts of what it believes in: the part is what counts.
    """
    if isinstance(size, float):
        return int(size * capacity_bytes)
    if counted_bytes is not None and counted_bytes > capacity_bytes:
        return size * capacity_bytes // counted_bytes
    return size


def counted_memory_bytes(label: str | None) -> int | None:
    """What KAI counts for each Gpu of a node with this `nvidia.com/gpu.memory`: MiB, floored to 100 of them.

    Old versions of GPU feature discovery write bytes: no GPU has 2**20 MiB.
    """
    if label is None or not label.isascii() or not label.isdecimal():
        return None
    size = int(label)
    return (size if size < MIB else size // MIB) // 100 * 100 * MIB or None


def _devices(container: Container, troubles: list[Trouble]) -> list[tuple[str, int]]:
    """Devices of the device plugin that a container asks for."""
    found = []
    for name, text in container.limits.items():
        if not is_gpu_resource(name):
            continue
        count = parse_quantity(text)
        if count is None or count != count.to_integral_value() or not 0 <= count <= MOST_DEVICES:
            what = f"{name} = {_shown(text)} of container {container.name} is no number of devices: it counts as 1."
            troubles.append(Trouble("GpuRequestInvalid", what))
            count = Decimal(1)
        if count > 0:
            found.append((name, int(count)))
    return found


def _effective(wholes: Sequence[tuple[Container, str, int]], resource: str) -> int:
    """How many devices of a resource Kubernetes counts for the pod: the most that it has at once.

    An init container has its own beside those of the sidecars before it; the containers have theirs after it.
    """
    asking = [(container, count) for container, name, count in wholes if name == resource]
    stay = most = 0
    for container, count in (each for each in asking if each[0].initial):
        most = max(most, stay + count)
        stay += count if container.sidecar else 0
    return max(most, stay + sum(count for container, count in asking if not container.initial))


def _shared_request(
    annotations: Mapping[str, str], containers: Sequence[Container], troubles: list[Trouble]
) -> float | int | None:
    """The request of a pod that shares; `None` where it does not. One that cannot be read is a complete device."""
    forms: list[tuple[str, float | int | None]] = []
    if FRACTION in annotations:
        forms.append((FRACTION, _fraction(FRACTION, annotations[FRACTION], troubles)))
    if MEMORY in annotations:
        forms.append((MEMORY, _mebibytes(annotations[MEMORY], troubles)))
    for name, (container, what) in _container_sizes(annotations).items():
        if what == "request" and container in {c.name for c in containers}:
            forms.append((name, _memory(name, annotations[name], troubles)))
    if not forms:
        return None
    if len(forms) > 1:
        names = " and ".join(name for name, _ in forms)
        troubles.append(
            Trouble("GpuRequestContradicts", f"It has {names}: one of them is enough, and {forms[0][0]} holds.")
        )
    value = next((value for _, value in forms if value is not None), None)
    return 1.0 if value is None else value


def _container_sizes(annotations: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    matches = ((name, _CONTAINER_MEMORY.match(name)) for name in sorted(annotations))
    return {name: (match[1], match[2]) for name, match in matches if match is not None}


def _limit(
    annotations: Mapping[str, str],
    containers: Sequence[Container],
    container: str | None,
    request: float,
    troubles: list[Trouble],
) -> float | int:
    """The limit of a pod that shares: an annotation of its container before the variable; without any, the request."""
    by_name = {c.name: c for c in containers}
    forms: list[tuple[str, float | int | None]] = []
    for name, (of, what) in _container_sizes(annotations).items():
        if of not in by_name:
            troubles.append(Trouble("GpuContainerUnknown", f"{name} names no container of this pod: it is ignored."))
        elif what == "limit" and container in (None, of):
            forms.append((name, _memory(name, annotations[name], troubles)))
    candidates = [by_name[container]] if container in by_name else list(containers)
    variables = [c.environment[LIMIT_VARIABLE] for c in candidates if LIMIT_VARIABLE in c.environment]
    forms += [(LIMIT_VARIABLE, _variable(text, troubles)) for text in variables]
    limit = next((value for _, value in forms if value is not None), request)
    if isinstance(limit, float) == isinstance(request, float) and limit < request:
        troubles.append(
            Trouble("GpuLimitBelowRequest", "Its GPU limit is below its request: the request counts as the limit too.")
        )
        return request
    return limit


def _variable(text: str | None, troubles: list[Trouble]) -> float | int | None:
    if text is None:
        why = f"{LIMIT_VARIABLE} comes from elsewhere and cannot be read from the pod: the request is the limit."
        troubles.append(Trouble("GpuLimitUnreadable", why))
        return None
    value = parse_quantity(text)
    if value is not None and LEAST_FRACTION <= value <= 1:
        return float(value)
    return _memory(LIMIT_VARIABLE, text, troubles)


def _fraction(name: str, text: str, troubles: list[Trouble]) -> float | None:
    value = parse_quantity(text) if text.strip()[-1:].isdigit() else None
    if value is None or not LEAST_FRACTION <= value <= 1:
        tiny = value is not None and 0 < value < 1
        why = "is less than a MiB of any GPU" if tiny else "is no fraction above 0 and up to 1"
        what = f"{name} = {_shown(text)} {why}: it counts as a complete GPU."
        troubles.append(Trouble(TOO_SMALL if tiny else "GpuRequestInvalid", what))
        return None
    return float(value)


def _mebibytes(text: str, troubles: list[Trouble]) -> int | None:
    """`gpu-memory`, a bare number of MiB; a value beyond every GPU was meant in another unit."""
    stripped = text.strip()[:_TEXT_LIMIT]
    size_bytes = _units(stripped) * MIB
    if not _LEAST_BYTES <= size_bytes <= _MOST_BYTES:
        hint = "its unit is MiB; " if size_bytes > _MOST_BYTES or parse_quantity(stripped) is not None else ""
        what = f"{MEMORY} = {_shown(text)} is no amount of GPU memory: {hint}it counts as a complete GPU."
        troubles.append(Trouble("GpuRequestInvalid", what))
        return None
    return size_bytes


def _units(text: str) -> int:
    stripped = text.strip()[:_TEXT_LIMIT]
    return int(stripped) if stripped.isascii() and stripped.isdecimal() else 0


def _memory(name: str, text: str, troubles: list[Trouble]) -> int | None:
    """A Kubernetes quantity of bytes. Less than one MiB was meant in another unit."""
    value = parse_quantity(text)
    if value is None or not _LEAST_BYTES <= value <= _MOST_BYTES:
        what = f"{name} = {_shown(text)} is no amount of GPU memory: write for example 8Gi; it is ignored."
        troubles.append(Trouble("GpuSizeInvalid", what))
        return None
    return int(value)


def _device_count(annotations: Mapping[str, str], troubles: list[Trouble]) -> int:
    text = annotations.get(DEVICES)
    if text is None:
        return 1
    stripped = text.strip()[:_TEXT_LIMIT]
    if stripped.isascii() and stripped.isdecimal() and 1 <= int(stripped) <= MOST_DEVICES:
        return int(stripped)
    troubles.append(
        Trouble("GpuRequestInvalid", f"{DEVICES} = {_shown(text)} is no number of devices: it counts as 1.")
    )
    return 1


def _container(annotations: Mapping[str, str], containers: Sequence[Container], troubles: list[Trouble]) -> str | None:
    name = annotations.get(CONTAINER)
    if name is None:
        named = {of for of, _ in _container_sizes(annotations).values()} & {c.name for c in containers}
        return min(named) if len(named) == 1 else (containers[0].name if containers else None)
    if name in {c.name for c in containers}:
        return name
    troubles.append(Trouble("GpuContainerUnknown", f"{CONTAINER} = {_shown(name)} names no container of this pod."))
    return containers[0].name if containers else None


def _mode(annotations: Mapping[str, str], troubles: list[Trouble]) -> str | None:
    for name in sorted(annotations):
        if _CONTAINER_MODE.match(name):
            if annotations[name] in _MODES:
                return annotations[name]
            what = f"{name} = {_shown(annotations[name])} is neither {' nor '.join(_MODES)}: it is ignored."
            troubles.append(Trouble("GpuModeInvalid", what))
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _TEXT_LIMIT else text[:_TEXT_LIMIT] + "…")
