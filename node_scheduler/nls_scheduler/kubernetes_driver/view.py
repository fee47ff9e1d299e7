"""What all that the cluster says about this node comes to: who owns which Gpu, and where our pods are at home. Pure.

Three sources, the earliest word first: BindRequests, pods (with KAI's reservation pods and what their ResourceClaims
give them), the kubelet's allocations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.kubernetes_driver.quantities import Trouble, as_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.kubernetes_driver.bind_requests import BindRequest
    from nls_scheduler.kubernetes_driver.pods import PodRecord

SOMEWHERE: Final = "somewhere"
"""The owner of every Gpu that a device of an unknown name could be."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that is known.

    Attributes:
        node: this node's name.
        pods: this node's, by UID.
        elsewhere: pods that a BindRequest names and that are not bound yet, by `namespace/name`.
        bind_requests: those of other nodes are passed by.
        allocations: UUIDs of the devices that the kubelet gave, by `namespace/name`; `None`: the kubelet does not say.
        whole_node: no Gpu of this node is another daemon's.
        capacities: bytes of each Gpu of this daemon.
        vanished: Gpus that it had before.
        counted_bytes: what the cluster's scheduler believes each Gpu has; `None`: it has not said.
        spent: KAI's groups whose last member has gone.
        departed: reservation pods that are known to have been here, by `namespace/name`.
        asked_for: pods, by the same, of which it is being asked at this moment whether they are ours.
        could_be: of devices by names of no Gpu, which Gpus they could be; one that is missing could be any.
    """

    node: str
    pods: Mapping[str, PodRecord]
    elsewhere: Mapping[str, PodRecord] = field(default_factory=dict)
    bind_requests: tuple[BindRequest, ...] = ()
    allocations: Mapping[str, tuple[str, ...]] | None = None
    whole_node: bool = True
    capacities: Mapping[GpuUuid, int] = field(default_factory=dict)
    vanished: frozenset[GpuUuid] = frozenset()
    counted_bytes: int | None = None
    spent: frozenset[str] = frozenset()
    departed: frozenset[str] = frozenset()
    asked_for: frozenset[str] = frozenset()
    could_be: Mapping[str, frozenset[GpuUuid]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """The result.

    Attributes:
        claims: for the core.
        homes: Gpus of each managed pod by its UID; empty: not known yet.
        signals: by what each owner or managed pod became known: `bind_request`, `binding` or `allocation`.
        troubles: what cannot be used as it is written, by the pod's UID.
        somewhere: devices of which nobody knows which Gpu they are, by `namespace/name` of the pod that has them.
    """

    claims: Claims
    homes: Mapping[str, tuple[GpuUuid, ...]]
    signals: Mapping[str, str]
    troubles: Mapping[str, tuple[Trouble, ...]]
    somewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def trouble(self) -> str | None:
        """What is `somewhere`, as a sentence."""
        if not self.somewhere:
            return None
        (pod, ids), *more = sorted(self.somewhere.items())
        others = f" (and {len(more)} pods more)" if more else ""
        return (
            f"The kubelet has given {pod}{others} {', '.join(ids)}, which is none of this node's GPUs by that name: "
            "no GPU that it could be is lent."
        )


def look(sources: Sources) -> View:
    """The view of `sources`."""
    return _Look(sources).view()


class _Look:
    """One look; collects while it goes through the sources."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._mine = mine = sources.capacities.keys() | sources.vanished
        self._living = {uid: pod for uid, pod in sorted(sources.pods.items()) if not pod.ended}
        self._by_key = {pod.key: pod for pod in self._living.values()}
        given = dict(sources.allocations or {})
        for pod in (pod for pod in self._living.values() if pod.claimed):
            given[pod.key] = tuple(dict.fromkeys((*pod.claimed, *given.get(pod.key, ()))))
        here = (r for r in sources.bind_requests if r.node == sources.node and not r.over)
        self._requests = [r for r in here if r.pod not in sources.asked_for]
        for request in (r for r in self._requests if r.claimed_bytes and r.pod not in self._by_key):
            given[request.pod] = tuple(dict.fromkeys((*request.claimed_bytes, *given.get(request.pod, ()))))
        strange = {key: tuple(u for u in uuids if u not in mine) for key, uuids in given.items() if mine}
        self._strange = {key: uuids for key, uuids in strange.items() if uuids} if sources.whole_node else {}
        self._allocations = {
            key: tuple(u for u in uuids if u not in self._strange.get(key, ())) for key, uuids in given.items()
        }
        self._owners: dict[str, Owner] = {}
        self._allocated: set[GpuUuid] = set()
        self._homes: dict[str, tuple[GpuUuid, ...]] = {}
        self._signals: dict[str, str] = {}
        self._troubles: dict[str, tuple[Trouble, ...]] = {}
        self._coming: dict[str, str] = {}
        self._ended = {pod.key for pod in sources.pods.values() if pod.ended} - self._by_key.keys()
        self._device_of = self._groups()

    def view(self) -> View:
        """Everything in the order in which the sources may be believed."""
        for pod in self._living.values():
            if pod.troubles:
                self._trouble(pod, *pod.troubles)
            if pod.reserves is None and pod.demand is not None:
                self._pod(pod)
        for request in self._requests:
            self._bind_request(request)
        self._reservations()
        self._unclaimed_allocations()
        for group, name in sorted(self._coming.items()):
            self._owners[f"group:{group}"] = Owner(f"group:{group}", name, devices_to_come=1)
            self._signals.setdefault(f"group:{group}", "binding")
        somewhere = self._somewhere()
        claims = Claims(tuple(self._owners[key] for key in sorted(self._owners)), frozenset(self._allocated))
        return View(claims, self._homes, self._signals, self._troubles, somewhere)

    def _groups(self) -> dict[str, GpuUuid]:
        """The device of each of KAI's groups; where two reservation pods claim one group, the first by UID has it."""
        found: dict[str, GpuUuid] = {}
        reserving = [pod for pod in self._living.values() if pod.reserves is not None]
        for pod in sorted(reserving, key=lambda pod: pod.dying):
            device = self._reserved(pod)
            if device is not None:
                self._allocated.add(device)
                self._hold_against(pod, device)
            for group in pod.groups:
                if device is None:
                    continue
                if found.setdefault(group, device) != device and not pod.dying:
                    what = (
                        f"Two reservation pods of different GPUs have the group {group}: this one's GPU is left alone."
                    )
                    self._trouble(pod, Trouble("GpuGroupDuplicate", what))
                    self._owners[pod.uid] = Owner(pod.uid, pod.key, (device,))
        return found

    def _hold_against(self, pod: PodRecord, device: GpuUuid) -> None:
        """The device of a reservation pod against what it says."""
        said = _said(pod)
        if said not in (None, device):
            what = f"This reservation pod names {said}, and the kubelet gave it {device}, which holds."
            self._trouble(pod, Trouble("GpuReservationWrong", what))

    def _reserved(self, pod: PodRecord) -> GpuUuid | None:
        """The device of a reservation pod: as the kubelet says where that is one of ours, else as the pod says."""
        said = _said(pod)
        given = next((GpuUuid(uuid) for uuid in self._allocations.get(pod.key, ())), None)
        return given if said is None or given in self._mine else said

    def _pod(self, pod: PodRecord) -> None:
        demand = pod.demand
        if demand is None:
            return
        if pod.given_none:
            what = f"A part of a GPU needs KAI Scheduler or Run:ai; {pod.scheduler or 'nobody'} gives this pod none."
            self._trouble(pod, Trouble("GpuShareUnscheduled", what))
            return
        known, told = self._devices_of(pod), self._told(pod)
        self._allocated.update(known)
        self._hold_devices_against(pod, told)
        self._signals[pod.uid] = "binding" if told or pod.claimed or not known else "allocation"
        if pod.managed:
            # How many its claims give is not known while they cannot be read.
            self._homes[pod.uid] = known if len(known) == (demand.devices or len(known)) else ()
            return
        if self._has_left(pod):
            return
        coming = 0
        if demand.whole:
            coming = self._to_come(pod.key, demand.devices + demand.initial_devices, known)
        elif not known:
            self._come(pod.groups or (pod.uid,), pod.key)
        size = self._request_bytes(pod, known)
        differs_on = {uuid: of for uuid in known if (of := self._claimed_bytes(pod, uuid, size)) != size}
        self._owners[pod.uid] = Owner(pod.uid, pod.key, known, size, coming, differs_on)

    def _has_left(self, pod: PodRecord) -> bool:
        """Whether a pod that leaves has no device any more."""
        return pod.leaves and self._sources.allocations is not None and not self._devices_of(pod)

    def _devices_of(self, pod: PodRecord) -> tuple[GpuUuid, ...]:
        """As its claims and the kubelet gave them, or as KAI says: that comes first only for parts, which it gives."""
        given, told = self._given(pod), self._told(pod)
        return told or given if pod.shares else given or told

    def _given(self, pod: PodRecord) -> tuple[GpuUuid, ...]:
        return tuple(GpuUuid(uuid) for uuid in self._allocations.get(pod.key, ()))

    def _told(self, pod: PodRecord) -> tuple[GpuUuid, ...]:
        """As KAI wrote them on the pod, or as its groups' reservations say."""
        shared = tuple(self._device_of[group] for group in pod.groups if group in self._device_of)
        return tuple(GpuUuid(uuid) for uuid in pod.devices) or shared

    def _hold_devices_against(self, pod: PodRecord, told: tuple[GpuUuid, ...]) -> None:
        """What KAI says of a pod's devices against what its claims and the kubelet gave it."""
        given = self._given(pod)
        if told and not set(given) <= set(told):
            holds = "both count" if pod.shares else "the latter holds"
            what = f"Its annotation or label names {', '.join(told)}, and it was given {', '.join(given)}: {holds}."
            self._trouble(pod, Trouble("GpuDevicesWrong", what))

    def _request_bytes(self, pod: PodRecord, known: tuple[GpuUuid, ...]) -> int | None:
        """On each Gpu; `None`: all of it. A Gpu that is not ours is not counted."""
        demand = pod.demand
        if demand is None or demand.whole:
            return None
        sizes = [self._sources.capacities[uuid] for uuid in known if uuid in self._sources.capacities]
        capacity = max(sizes, default=0)
        return min(capacity, as_bytes(demand.request, capacity, self._sources.counted_bytes)) if capacity else None

    def _claimed_bytes(self, pod: PodRecord, gpu: GpuUuid, otherwise: int | None) -> int | None:
        """What its claims give it of one Gpu; `None`: all of it. `otherwise`: they say nothing of it."""
        return self._at_most(gpu, pod.claimed_bytes.get(gpu, otherwise))

    def _at_most(self, gpu: GpuUuid, size: int | None) -> int | None:
        return size if size is None else min(size, self._sources.capacities.get(gpu, size))

    def _bind_request(self, request: BindRequest) -> None:
        """A decision that the pod itself does not show yet."""
        bound = self._by_key.get(request.pod)
        if bound is not None and bound.uid in self._signals:
            known = self._devices_of(bound) if bound.demand is not None else ()
            if known or bound.managed or self._has_left(bound):
                return
            self._owners.pop(bound.uid, None)
        pod = bound or self._sources.elsewhere.get(request.pod)
        shared = tuple(self._device_of[group] for group in request.groups if group in self._device_of)
        self._allocated.update(shared)
        if pod is not None and pod.managed:
            return
        key = f"bind:{request.uid}" if pod is None else pod.uid
        self._signals[key] = "bind_request"
        if not request.shared:
            given = tuple(GpuUuid(uuid) for uuid in self._allocations.get(request.pod, ()))
            coming = self._to_come(request.pod, request.count, given)
            parts = {uuid: self._at_most(uuid, request.claimed_bytes.get(uuid)) for uuid in given}
            differs_on = {uuid: size for uuid, size in parts.items() if size is not None}
            self._owners[key] = Owner(key, request.pod, given, None, coming, differs_on)
            return
        unknown = [group for group in request.groups if group not in self._device_of]
        self._come(unknown or ([] if shared else [f"{key}-{n}" for n in range(request.count)]), request.pod)
        for group in unknown:
            self._signals[f"group:{group}"] = "bind_request"
        if shared:
            self._owners[key] = Owner(key, request.pod, shared, self._decided_bytes(request, pod, shared))

    def _decided_bytes(self, request: BindRequest, pod: PodRecord | None, shared: tuple[GpuUuid, ...]) -> int | None:
        """As the pod asks for it, where that is known: KAI rounds a portion to hundredths, for an amount upwards."""
        if pod is not None and pod.shares:
            return self._request_bytes(pod, shared)
        return int(request.portion * max((self._sources.capacities.get(uuid, 0) for uuid in shared), default=0))

    def _to_come(self, key: str, count: int, known: tuple[GpuUuid, ...]) -> int:
        """Devices that the kubelet has still to give; one that it has given and nobody knows is `_somewhere`."""
        return max(0, count - len(known) - len(self._strange.get(key, ())))

    def _come(self, groups: Iterable[str], name: str) -> None:
        for group in groups:
            self._coming.setdefault(group, name)

    def _reservations(self) -> None:
        """A reservation whose pods are not there yet owns its device; one without a device is a device to come.

        One that is about to end, as its pods have, is nobody.
        """
        groups = {g for pod in self._living.values() if pod.reserves is None for g in pod.groups}
        groups |= {group for request in self._sources.bind_requests if not request.over for group in request.groups}
        for pod in self._living.values():
            if pod.reserves is None or pod.dying or set(pod.groups) & self._sources.spent:
                continue
            device = self._reserved(pod)
            lonely = not set(pod.groups) & groups
            if device is not None and lonely:
                self._owners[pod.uid] = Owner(pod.uid, pod.key, (device,))
                self._signals[pod.uid] = "allocation"
            elif device is None:
                if pod.started_at is not None:
                    what = "This reservation pod runs and does not say which GPU it has: one GPU is kept free for it."
                    self._trouble(pod, Trouble("GpuReservationSilent", what))
                if lonely:
                    self._come(pod.groups or (pod.uid,), pod.key)

    def _unclaimed_allocations(self) -> None:
        """What the kubelet gave and nobody has so far: it is never nobody's, whatever is known of its pod.

        The API server has not told of the pod yet, or does not tell at all; or the pod asks in words of which nothing
        is known here.
        """
        requested = {request.pod for request in self._requests} - self._by_key.keys()
        passed_by = self._ended | requested | self._sources.departed
        had = {(owner.name, uuid) for owner in self._owners.values() for uuid in owner.gpus}
        had |= {(self._living[uid].key, uuid) for uid, home in self._homes.items() for uuid in home}
        for key, uuids in sorted(self._allocations.items()):
            pod = self._by_key.get(key)
            gpus = tuple(GpuUuid(uuid) for uuid in uuids if (key, uuid) not in had)
            if not gpus or key in passed_by or (pod is not None and pod.reserves is not None):
                continue
            self._allocated.update(gpus)
            owner = f"allocated:{key}" if pod is None or pod.managed or pod.uid in self._owners else pod.uid
            self._owners[owner] = Owner(owner, key, gpus)
            self._signals[owner] = "allocation"

    def _somewhere(self) -> dict[str, tuple[str, ...]]:
        """Devices by names that no Gpu has: each is a Gpu of which nothing is known, so that all of these are owned."""
        somewhere = {key: uuids for key, uuids in sorted(self._strange.items()) if not self._has_gone_or_told(key)}
        taken = self._allocated | {uuid for owner in self._owners.values() for uuid in owner.gpus}
        every, could_be = self._sources.capacities.keys(), self._sources.could_be
        possible = {gpu for ids in somewhere.values() for each in ids for gpu in could_be.get(each, every)}
        free = tuple(sorted(possible & every - taken))
        if somewhere and free:
            self._owners[SOMEWHERE] = Owner(SOMEWHERE, ", ".join(somewhere), free)
            self._signals[SOMEWHERE] = "allocation"
        return somewhere

    def _has_gone_or_told(self, key: str) -> bool:
        """Whether the pod holds nothing any more, or has said itself which Gpu it is."""
        if key in self._ended or key in self._sources.departed:
            return True
        pod = self._by_key.get(key)
        if pod is None:
            return False
        told = {self._reserved(pod)} if pod.reserves is not None else set(self._devices_of(pod))
        return bool(told & self._sources.capacities.keys())

    def _trouble(self, pod: PodRecord, *troubles: Trouble) -> None:
        self._troubles[pod.uid] = (*self._troubles.get(pod.uid, ()), *troubles)


def _said(pod: PodRecord) -> GpuUuid | None:
    """The device that a reservation pod names."""
    return GpuUuid(pod.reserves) if pod.reserves and pod.reserves.startswith(("GPU-", "MIG-")) else None
