"""What DRA gives to the pods of this node: its ResourceSlices are followed, and each pod's claims asked for by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nls_scheduler.kubernetes_driver import resource_claims, resource_slices
from nls_scheduler.kubernetes_driver.by_name import ByName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.kubernetes_driver.bind_requests import BindRequest
    from nls_scheduler.kubernetes_driver.pods import PodRecord
    from nls_scheduler.kubernetes_driver.reflector import Api, Reflector
    from nls_scheduler.kubernetes_driver.resource_slices import Device, ResourceSlice


class DynamicResources:
    """Lives in the daemon's loop."""

    def __init__(
        self, api: Api, slices: Reflector[ResourceSlice], changed: Callable[[], None], *, again_s: float
    ) -> None:
        """`again_s`: between two readings of a claim that does not say what its pod has."""
        self._slices = slices
        self._known: dict[str, Device] = {}
        self._claims = ByName(api, resource_claims.PATH, resource_claims.resource_claim, changed, again_s=again_s)

    @property
    def trouble(self) -> str | None:
        """Why claims cannot be read, where somebody has to grant it."""
        return self._claims.trouble

    @property
    def _devices(self) -> Mapping[str, Device]:
        """What was said last of each: the slices of a driver that is away for half a minute are deleted."""
        self._known |= resource_slices.devices_of(self._slices.records.values())
        return self._known

    def ask(self, pods: Collection[PodRecord]) -> None:
        """For the claims of `pods`, once the slices are known: a device's name alone says nothing."""
        if self._slices.settled:
            named = {key for pod in pods if pod.demand is not None for key in resource_claims.keys(pod)}
            known = self._claims.records
            unclear = (pod for pod in pods if resource_claims.claims_of(pod, known) is None)
            self._claims.want(named, named.intersection(key for pod in unclear for key in resource_claims.keys(pod)))

    def allocations(
        self, told: Mapping[str, tuple[str, ...]] | None, pods: Collection[PodRecord], gpus: Collection[str]
    ) -> dict[str, tuple[str, ...]] | None:
        """What the kubelet has `told`, with UUIDs, and without what somebody only looks at."""
        owned = resource_claims.without_onlookers(told, pods, self._claims.records, self._claims.asked_for)
        return resource_slices.resolved(owned, self._devices, gpus)

    def is_asking(self, pod: PodRecord) -> bool:
        """Whether a claim of `pod` is being read for the first time, so that nothing is told of its devices yet."""
        return not self._claims.asked_for.isdisjoint(resource_claims.keys(pod))

    def could_be(self, gpus: Mapping[GpuUuid, Gpu]) -> dict[str, frozenset[GpuUuid]]:
        """Devices without a UUID, and the Gpus that each could be."""
        return resource_slices.slices_of_parents(self._devices, {uuid: gpu.parent or "" for uuid, gpu in gpus.items()})

    def given(self, pod: PodRecord, gpus: Collection[str]) -> PodRecord:
        """`pod` with what its claims give it, if all of them say that."""
        claims = resource_claims.claims_of(pod, self._claims.records) if pod.claims else None
        return pod if claims is None else resource_claims.with_claims(pod, claims, self._devices, gpus)

    def decided(self, request: BindRequest, gpus: Collection[str]) -> BindRequest:
        """`request` with what its claims are about to get of each Gpu."""
        sizes = resource_claims.sizes_on(request.claimed, self._devices, gpus) if request.claimed else {}
        return replace(request, claimed_bytes=sizes) if sizes else request

    async def close(self) -> None:
        """Ask no more."""
        await self._claims.close()
