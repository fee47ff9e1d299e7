"""Which simulated Gpu a pod has, as run-ai's fake-gpu-operator says in its ConfigMap `topology-NODE`. Never written.

Its device plugin hands out UUIDs that it makes up at each start (`createDevices` in its internal/deviceplugin), so that
the kubelet's word names no Gpu. Its status updater counts each pod on one Gpu, which stands in the topology
(`status.allocatedBy`) as soon as it has seen the pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.drivers.topology_file import parse_given
from nls_scheduler.kubernetes_driver.written import mapping, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.drivers.topology_file import GivenTo
    from nls_scheduler.kubernetes_driver.pods import PodRecord
    from nls_scheduler.kubernetes_driver.reflector import Reflector

KEY: Final = "topology.yml"


@dataclass(frozen=True, slots=True)
class Topology:
    """Of this node.

    Attributes:
        given: who has which Gpu; one that nobody has is missing.
        trouble: why it cannot be used, as a sentence.
    """

    given: Mapping[GpuUuid, GivenTo]
    trouble: str | None = None


def topology(written: Mapping[str, Any]) -> Topology:
    """The record of a ConfigMap."""
    try:
        return Topology(parse_given(text(mapping(written, "data").get(KEY))))
    except ValueError as error:
        name = text(mapping(written, "metadata").get("name"))
        return Topology({}, f"Which pod has which simulated GPU is not known: {KEY} of {name} cannot be used: {error}")


def resolved(
    allocations: Mapping[str, tuple[str, ...]],
    given: Mapping[GpuUuid, GivenTo],
    pods: Iterable[PodRecord],
    gpus: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """`allocations` with the Gpus that the topology gives to those of `pods` that have devices by names of none.

    A pod for which it does not give one Gpu for each such device keeps the names: it counts everywhere, as before. So
    does one that has its name of another pod, of which the topology still tells.
    """
    found = dict(allocations)
    for pod in pods:
        ids = found.get(pod.key, ())
        strange = [each for each in ids if each not in gpus]
        counted = [gpu for gpu, to in given.items() if to.pod == pod.key and (not to.uids or pod.uid in to.uids)]
        if strange and len(counted) == len(strange):
            found[pod.key] = (*(each for each in ids if each in gpus), *counted)
    return found


class OperatorTopology:
    """Lives in the daemon's loop."""

    def __init__(self, maps: Reflector[Topology] | None) -> None:
        """`maps`: at most the one ConfigMap; `None`: the Gpus are not the operator's."""
        self._maps = maps

    @property
    def _known(self) -> Topology:
        known = self._maps.records.values() if self._maps is not None else ()
        return next(iter(known), Topology({}))

    @property
    def trouble(self) -> str | None:
        """See `Topology`."""
        return self._known.trouble

    def allocations(
        self, told: Mapping[str, tuple[str, ...]] | None, pods: Iterable[PodRecord], gpus: Collection[str]
    ) -> dict[str, tuple[str, ...]] | None:
        """What the kubelet has `told`, with the Gpus of the topology for devices by made-up names."""
        return None if told is None else resolved(told, self._known.given, pods, gpus)
