"""Simulated Gpus as run-ai's fake-gpu-operator describes a node: the text under `topology.yml` of its ConfigMaps.

It gives UUIDs, the product and the memory of the whole; who was given what (`status`) is the cluster's to say.
"""

from __future__ import annotations

import json
import re
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
    written = _parsed(text)
    if not isinstance(written, dict):
        raise ValueError("it is no mapping with gpuMemory, gpuProduct and gpus.")  # noqa: TRY004 - of a text
    if "nodePools" in written or "node-pools" in written:
        raise ValueError("it describes the cluster; the ConfigMap of one node is called topology-NODE.")
    memory_mib = _key(written, "gpuMemory")
    if type(memory_mib) is not int or not 0 < memory_mib <= _MOST_MEMORY_MIB:
        raise ValueError(f"gpuMemory = {memory_mib!r} is no number of MiB.")
    product = _key(written, "gpuProduct")
    name = product if isinstance(product, str) and product else "Simulated GPU"
    uuids = _uuids(written.get("gpus"))
    return tuple(SimulatedGpuSpec(uuid, name, memory_mib * MIB) for uuid in uuids)


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
