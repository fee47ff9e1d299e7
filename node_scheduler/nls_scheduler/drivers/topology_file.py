"""Simulated Gpus as run-ai's fake-gpu-operator describes a node: the text under `topology.yml` of its ConfigMaps.

It gives UUIDs, the product and the memory of the whole, which are read once, and in `status` which pod has each Gpu,
which changes with the cluster.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.drivers.simulated_memory import SimulatedGpuSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MIB: Final = 2**20
MOST_GPUS: Final = 64
_MOST_MEMORY_MIB: Final = 2**24
_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,64}")
_SIZE_LIMIT: Final = 2**20


@dataclass(frozen=True, slots=True)
class GivenTo:
    """The pod that has a Gpu, as the operator's status updater counts it.

    Attributes:
        pod: `namespace/name`.
        uids: of the pods that use it, as far as they are told; of a reservation none is.
    """

    pod: str
    uids: frozenset[str] = frozenset()


def read_topology(path: Path) -> tuple[SimulatedGpuSpec, ...]:
    """The Gpus of the file, in its order. Raises ValueError with one sentence for the administrator."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_SIZE_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"The topology {path} cannot be read: {error}.") from error
    try:
        return parse_topology(text)
    except ValueError as error:
        raise ValueError(f"The topology {path} cannot be used: {error}") from error


def parse_topology(text: str) -> tuple[SimulatedGpuSpec, ...]:
    """The Gpus of a node's topology: JSON or YAML, keys as `gpuMemory` (since 2023) or `gpu-memory` (before).

    `gpuMemory` is in MiB. Raises ValueError.
    """
    written = _of_a_node(text)
    memory_mib = _key(written, "gpuMemory")
    if type(memory_mib) is not int or not 0 < memory_mib <= _MOST_MEMORY_MIB:
        raise ValueError(f"gpuMemory = {memory_mib!r} is no number of MiB.")
    product = _key(written, "gpuProduct")
    name = product if isinstance(product, str) and product else "Simulated GPU"
    uuids = _uuids(written.get("gpus"))
    return tuple(SimulatedGpuSpec(uuid, name, memory_mib * MIB) for uuid in uuids)


def parse_given(text: str) -> dict[GpuUuid, GivenTo]:
    """Who has which Gpu of a node's topology; one that nobody has is missing. Raises ValueError."""
    gpus = _of_a_node(text).get("gpus")
    told = {uuid: _given(gpu.get("status")) for uuid, gpu in zip(_uuids(gpus), gpus or (), strict=True)}
    return {uuid: given for uuid, given in told.items() if given is not None}


def _given(status: object) -> GivenTo | None:
    """Of one Gpu: the operator clears `status` when its pod has gone, and leaves the names empty until there is one."""
    told = status if isinstance(status, dict) else {}
    by, users = _key(told, "allocatedBy"), _key(told, "podGpuUsageStatus")
    if not isinstance(by, dict):
        return None
    namespace, pod = by.get("namespace"), by.get("pod")
    if not (isinstance(namespace, str) and isinstance(pod, str) and namespace and pod):
        return None
    return GivenTo(f"{namespace}/{pod}", frozenset(map(str, users)) if isinstance(users, dict) else frozenset())


def _of_a_node(text: str) -> dict[str, Any]:
    written = _parsed(text)
    if not isinstance(written, dict):
        raise ValueError("it is no mapping with gpuMemory, gpuProduct and gpus.")  # noqa: TRY004 - of a text
    if "nodePools" in written or "node-pools" in written:
        raise ValueError("it describes the cluster; the ConfigMap of one node is called topology-NODE.")
    return written


def _uuids(gpus: object) -> list[GpuUuid]:
    if not isinstance(gpus, list) or not 1 <= len(gpus) <= MOST_GPUS:
        raise ValueError(f"gpus must be a list of 1 to {MOST_GPUS}.")
    uuids = [gpu.get("id") if isinstance(gpu, dict) else None for gpu in gpus]
    for uuid in uuids:
        if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
            raise ValueError(f"the id {uuid!r} of a GPU is none: it must look like GPU-6b1f….")
    if len(set(uuids)) < len(uuids):
        raise ValueError("two of its GPUs have the same id.")
    return [GpuUuid(str(uuid)) for uuid in uuids]


def _key(written: Mapping[str, Any], name: str) -> object:
    """Of the two ways in which the operator has written it."""
    hyphened = re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", name)
    return written.get(name, written.get(hyphened))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        pass  # then it is YAML, of which JSON is a part
    try:
        import yaml
    except ImportError as error:
        raise ValueError("it is YAML, which takes: pip install 'nls-jupyter[kubernetes]'.") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is neither JSON nor YAML: {' '.join(str(error).split())}.") from error
