"""How NVML says Gpus are connected, in our words. Asked once per discovery; what the driver refuses is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pynvml

from nls_scheduler.core.model.topology import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid

_NO_NUMA: Final = 0xFFFFFFFF
_OF_LEVEL: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Link.SWITCH,
    pynvml.NVML_TOPOLOGY_SINGLE: Link.SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Link.SWITCH,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Link.NUMA,
    pynvml.NVML_TOPOLOGY_NODE: Link.NUMA,
    pynvml.NVML_TOPOLOGY_SYSTEM: Link.SYSTEM,
}


def connections(gpus: Mapping[GpuUuid, Any], ask: Callable[..., Any]) -> dict[GpuUuid, dict[GpuUuid, Link]]:
    """The link of each pair of whole Gpus. `ask(function, *arguments)` answers `None` where the driver does not say."""
    found: dict[GpuUuid, dict[GpuUuid, Link]] = {uuid: {} for uuid in gpus}
    listed = list(gpus.items())
    for number, (one, handle) in enumerate(listed):
        for other, other_handle in listed[number + 1 :]:
            link = _link(handle, other_handle, ask)
            if link is not None:
                found[one][other] = found[other][one] = link
    return found


def numa_node(handle: Any, ask: Callable[..., Any]) -> int | None:
    """The NUMA node that a Gpu is next to: the first one whose memory is near, else what the driver counts it as."""
    near = ask(pynvml.nvmlDeviceGetMemoryAffinity, handle, 4, pynvml.NVML_AFFINITY_SCOPE_NODE)
    for word, mask in enumerate(near or ()):
        if mask:
            return word * 64 + (int(mask & -mask).bit_length() - 1)
    node = ask(pynvml.nvmlDeviceGetNumaNodeId, handle)
    return node if isinstance(node, int) and 0 <= node < _NO_NUMA else None


def _link(one: Any, other: Any, ask: Callable[..., Any]) -> Link | None:
    """NVLink, directly or through NVSwitches, is known from what the driver says of peers; the rest is PCIe's tree."""
    status = ask(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status == pynvml.NVML_P2P_STATUS_OK:
        return Link.NVLINK
    level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return _OF_LEVEL.get(level)
