"""One node of a Kubernetes cluster: follows the API server and the kubelet, and tells the daemon what they come to.

Nothing of KAI's or of the kubelet's is ever written; the only objects that this creates are Events.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.queues import Tree
from nls_scheduler.kubernetes_driver import bind_requests, identity, policy, resource_slices
from nls_scheduler.kubernetes_driver.by_name import ByName
from nls_scheduler.kubernetes_driver.dynamic_resources import DynamicResources
from nls_scheduler.kubernetes_driver.events_out import EventWriter
from nls_scheduler.kubernetes_driver.first_list import held_back, remembered
from nls_scheduler.kubernetes_driver.heartbeat import Heartbeat
from nls_scheduler.kubernetes_driver.held_starts import HeldStarts
from nls_scheduler.kubernetes_driver.kubelet import Kubelet
from nls_scheduler.kubernetes_driver.lasting_allocations import LastingAllocations
from nls_scheduler.kubernetes_driver.nodes import CORDONED, IDLE_LEAVE, node_record
from nls_scheduler.kubernetes_driver.operator_topology import OperatorTopology, topology
from nls_scheduler.kubernetes_driver.overfull_homes import OverfullHomes
from nls_scheduler.kubernetes_driver.own_node import OwnNode
from nls_scheduler.kubernetes_driver.pace import Pace, Rounds
from nls_scheduler.kubernetes_driver.passing import Passing
from nls_scheduler.kubernetes_driver.podresources import DEFAULT_SOCKET
from nls_scheduler.kubernetes_driver.pods import RESERVATION_NAMESPACES, PodRecord, pod_record, pod_uid
from nls_scheduler.kubernetes_driver.policy_in_use import PolicyInUse
from nls_scheduler.kubernetes_driver.quantities import MIB
from nls_scheduler.kubernetes_driver.reflector import Api, Reflector, uid_of
from nls_scheduler.kubernetes_driver.tenancy import allotment
from nls_scheduler.kubernetes_driver.vacating import ClusterMetrics, Vacating
from nls_scheduler.kubernetes_driver.view import Sources, View, look
from nls_scheduler.units.clock import awake_s
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.gpu import Claims
    from nls_scheduler.core.model.ids import GpuUuid, ProcessId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.daemon.cluster import Host
    from nls_scheduler.daemon.peers import Peer
    from nls_scheduler.kubernetes_driver.bind_requests import BindRequest

_PODS: Final = "/api/v1/pods"
_PODS_UNKNOWN: Final = "This node's pods are not known yet."
_NO_GPU: Final = (
    "The daemon sees no GPU on this node: NVIDIA's driver, or the RuntimeClass that shows GPUs to its pod, is missing. "
    "`nls doctor` in the daemon's pod says which."
)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What the driver is told at its start.

    Attributes:
        node: this node's name.
        socket_directory: of the daemon's socket, as the node names it: a pod that mounts it is looked after by us.
        kubelet_socket: the kubelet's podresources.
        config_map: `namespace/name` of the policy; `None`: none.
        pace: see `Pace`.
        whole_node: all of the node's Gpus are this daemon's: a device that is none of them is one by another name.
        topology: `namespace/name` of fake-gpu-operator's ConfigMap for this node; `None`: the Gpus are not its.
        reservation_namespace: where KAI has its reservation pods, and nobody else makes any; `None`: the usual.
    """

    node: str
    socket_directory: str
    kubelet_socket: Path = Path(DEFAULT_SOCKET)
    config_map: str | None = None
    pace: Pace = field(default_factory=Pace)
    whole_node: bool = True
    topology: str | None = None
    reservation_namespace: str | None = None


class KubernetesCluster:
    """Implements `cluster.Cluster`."""

    def __init__(self, settings: ClusterSettings, connect: Callable[[], Awaitable[Api]]) -> None:
        """`connect` is called in the daemon's loop, and may raise only what is to end the daemon."""
        self._settings = settings
        self._connect = connect
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = AsyncExitStack()
        self._passing = Passing()
        self._lasting = LastingAllocations()
        self._look_soon: asyncio.Handle | None = None
        self._look_again: asyncio.TimerHandle | None = None
        self._looks = Rounds("A look at what the cluster says", settings.pace)
        self._steps = Rounds("What a decision means for the cluster", settings.pace)
        self._view: View | None = None
        self._capacities: Mapping[GpuUuid, int] = {}
        self._ever: set[GpuUuid] = set()
        self._started_at = 0.0
        self.vacating = Vacating()

    async def start(self, host: Host) -> None:
        """See `cluster.Cluster`. Raises what `connect` raises."""
        self._host, self._started_at = host, awake_s()
        self._kubelet = Kubelet(self._settings.kubelet_socket, self._changed, self._settings.pace)
        self._opened.push_async_callback(self._kubelet.close)
        # It is on this node and answers at once: an owner is known before the API server has said a word.
        self._api, _ = api, _ = await asyncio.gather(self._connect(), self._kubelet.begin())
        self._opened.push_async_callback(api.close)
        self._events = EventWriter(api, self._settings.node, self._settings.pace)
        self._overfull = OverfullHomes(self._events)
        self._policy = PolicyInUse(self._settings.config_map, host.use)
        self._elsewhere = ByName(api, _PODS, self._pod, self._changed)
        own = f"spec.nodeName={self._settings.node}"
        self._pods = self._follow(_PODS, own, self._pod, uid=pod_uid)
        self._nodes = self._follow("/api/v1/nodes", f"metadata.name={self._settings.node}", node_record)
        self._node = OwnNode(self._settings.node, self._nodes)
        ours = bind_requests.selector(self._settings.node)
        self._bind_requests = self._follow(bind_requests.PATH, "", self._bind_request, labels=ours, of_all_nodes=True)
        slices = self._follow(resource_slices.PATH, own, resource_slices.resource_slice, optional=True)
        self._dynamic = DynamicResources(api, slices, self._changed, again_s=self._settings.pace.most_s)
        self._maps = self._follow_map(self._settings.config_map, policy.config_data)
        given = self._follow_map(self._settings.topology, topology)
        self._topology = OperatorTopology(given)
        asked = (self._pods, self._nodes, self._bind_requests, slices, self._maps, given)
        self._reflectors = reflectors = [each for each in asked if each is not None]
        metrics = ClusterMetrics(
            lambda: host.state, lambda: self._pods.records, self._ages_s, self.vacating, self._events
        )
        host.metrics.register(metrics)
        self._held_starts = HeldStarts(self._events)
        host.metrics.register(self._held_starts)
        self._heartbeat = Heartbeat(api, _PODS, own, reflectors, self._settings.pace)
        for asking in (self._elsewhere, self._dynamic):
            self._opened.push_async_callback(asking.close)
        others = (self._heartbeat.run(), self._events.run(), self._kubelet.run())
        for work in (*(r.run() for r in reflectors), *others):
            self._spawn(work)

    async def close(self) -> None:
        """See `cluster.Cluster`."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._look_soon is not None:
            self._look_soon.cancel()
        self._look_again_in(None)
        await self._opened.aclose()

    # What the daemon asks ----------------------------------------------------------------------------------------

    @property
    def not_ready(self) -> str | None:
        """See `cluster.Cluster`."""
        if not self._host.state.gpus:
            return _NO_GPU
        why = self._unknown or self._looks.trouble
        if why is not None or self._bind_requests.settled:
            return why
        within = f"they are asked for within {self._settings.pace.spread_s:.0f} s of the start"
        why = self._bind_requests.trouble or f"BindRequests of the cluster are not known yet: {within}."
        return f"{why} No further GPU is lent until then."

    @property
    def _unknown(self) -> str | None:
        """Why nobody can be placed yet, as a sentence; `None` once this node's pods are known."""
        missing = [r for r in (self._pods, self._nodes) if not (r.synced or (r is self._nodes and r.refused))]
        if missing:
            why = missing[0].trouble or "This node's pods are not known yet: the API server has not answered so far."
            return f"{why} {self._what_stays()}"
        return None

    def _what_stays(self) -> str:
        """How old that is by which the node is run until the API server answers."""
        heard_at = self._host.recovered_at
        if heard_at is None:
            return f"This daemon has waited for it for {awake_s() - self._started_at:.0f} s."
        age_s = max(0.0, awake_s() - heard_at)
        return f"What the daemon before this one knew {age_s:.0f} s ago stays, and no further GPU is lent."

    @property
    def trouble(self) -> str | None:
        """See `cluster.Cluster`."""
        followed = (self._policy, *self._reflectors, self._dynamic, self._topology, self._kubelet, self._view)
        work = (self._looks, self._steps, *followed, self._heartbeat, self._events)
        told = (part.trouble for part in work if part is not None)
        return self._node.trouble or next((why for why in told if why is not None), self._cordoned)

    @property
    def _cordoned(self) -> str | None:
        if not self._node.cordoned:
            return None
        return CORDONED if self._host.state.policy.cordoned_idle_s is None else f"{CORDONED} {IDLE_LEAVE}"

    def identified(self, peer: Peer) -> Peer:
        """See `cluster.Cluster`."""
        return identity.identified(peer, self._knows, self._unknown)

    def _knows(self, uid: str) -> bool:
        """Whoever has a workload here stays known while the API server is away, and when its pod has vanished."""
        return uid in self._pods.records or any(w.spec.tenant == uid for w in self._host.state.workloads.values())

    def allot(
        self, body: Mapping[str, Any], peer: Peer, instead_of: WorkloadSpec | None
    ) -> tuple[dict[str, Any], tuple[GpuUuid, ...]]:
        """See `cluster.Cluster`."""
        if (why := self._unknown) is not None or self._view is None:
            raise Problem(503, "Not ready", why or _PODS_UNKNOWN, "node")
        # An administrator acts on a pod's workload as the pod itself might.
        tenant = instead_of.tenant if instead_of is not None and not peer.tenant else peer.tenant
        pod = self._pods.records.get(tenant)
        if pod is None:
            detail = "On Kubernetes the GPUs are for pods: run this in a pod that asks for one."
            raise Problem(403, "Not in a pod", detail)
        specs = [w.spec for w in self._host.state.workloads.values() if w.spec.tenant == tenant]
        others = [spec for spec in specs if spec is not instead_of]
        home = self._view.homes.get(tenant, ())
        state = self._host.state
        tree = Tree(state.policy.queues)
        leaves = [name for name in tree.queues if tree.is_leaf(name)]
        return allotment(
            body, self._as_given(pod), home, state.gpus, self._node.counted_bytes, others, instead_of, leaves
        )

    def may_start(self, peer: Peer, *, gives_up: bool) -> dict[str, Any]:
        """See `cluster.Cluster`."""
        if (why := self._unknown) is not None or self._view is None:
            raise Problem(503, "Not ready", why or _PODS_UNKNOWN, "node")
        pod = self._pods.records.get(peer.tenant)
        if pod is None:
            raise Problem(403, "Not in a pod", "Only a pod of this node has a start that could be held.")
        heard_at, at = self._kubelet.heard_at, awake_s()
        self._kubelet.ask_soon()
        if self._look_soon is not None:
            self._look_soon.cancel()
            self._look_now()
        somewhere = pod.key in self._view.somewhere or self._dynamic.is_asking(pod)
        asks, pods = self._as_given(pod), self._pods.records
        return self._held_starts.asked(
            asks, self._host.state, pods, at, heard_at, gives_up=gives_up, somewhere=somewhere
        )

    def localised(self, event: Event, peer: Peer) -> Event:
        """See `cluster.Cluster`."""
        return identity.localised(event, peer, self._host.state)

    def local_process(self, process: ProcessId, peer: Peer) -> ProcessId:
        """See `cluster.Cluster`. One that has just ended keeps its foreign number, under which nothing is found."""
        return identity.local_process(process, peer)

    def tenant_of(self, pid: int) -> str:
        """See `cluster.Cluster`."""
        return identity.pod_uid_of(pid) or ""

    def told(self, entry: Mapping[str, Any], tenant: str) -> None:
        """See `cluster.Cluster`."""
        pod = self._pods.records.get(tenant)
        if pod is not None:
            self._events.entry(pod, entry)

    def stepped(self) -> None:
        """See `cluster.Cluster`. The step is done, whatever goes wrong here."""
        self._steps.once(self._follow_step)

    def _follow_step(self) -> None:
        state = self._host.state
        if self._view is not None:
            self.vacating.observe(state, self._view.signals, self._pods.records)
        # A Gpu that has just been found has a size, and with it what its owners count with.
        if {uuid: gpu.memory_total_bytes for uuid, gpu in state.gpus.items()} != self._capacities:
            self._capacities = {uuid: gpu.memory_total_bytes for uuid, gpu in state.gpus.items()}
            self._ever |= state.gpus.keys()
            self._changed()
        elif not self._all_is_known and self._claims() != state.claims:
            self._changed()
        if self._view is not None:  # until then everybody may wait, and not for that
            self._overfull.tell(state, self._pods.records)

    # What the cluster says ---------------------------------------------------------------------------------------

    def _follow(
        self,
        path: str,
        selector: str,
        convert: Callable[..., Any],
        *,
        labels: str = "",
        of_all_nodes: bool = False,
        optional: bool = False,
        uid: Callable[[Mapping[str, Any]], str] = uid_of,
    ) -> Reflector[Any]:
        """What is found by an index is asked for at once; what is searched `of_all_nodes`, by one after another."""
        params = {name: by for name, by in (("fieldSelector", selector), ("labelSelector", labels)) if by}
        pace = self._settings.pace if of_all_nodes else replace(self._settings.pace, spread_s=0.0)
        optional = optional or of_all_nodes
        return Reflector(self._api, path, params, convert, self._changed, pace=pace, optional=optional, uid=uid)

    def _follow_map(self, named: str | None, convert: Callable[..., Any]) -> Reflector[Any] | None:
        """The ConfigMap `namespace/name`, if one is named."""
        if named is None:
            return None
        namespace, _, name = named.partition("/")
        return self._follow(f"/api/v1/namespaces/{namespace}/configmaps", f"metadata.name={name}", convert)

    def _pod(self, written: Mapping[str, Any]) -> PodRecord | None:
        named = self._settings.reservation_namespace
        reservations = RESERVATION_NAMESPACES if named is None else (named,)
        return pod_record(written, self._settings.socket_directory, reservations)

    def _bind_request(self, written: Mapping[str, Any]) -> BindRequest | None:
        """Only those of this node are kept, whatever their labels say."""
        request = bind_requests.bind_request(written)
        return request if request is not None and request.node == self._settings.node else None

    def _changed(self) -> None:
        """Something of what is known has changed: all that has in this turn of the loop is looked at once."""
        if self._look_soon is None:
            self._look_soon = asyncio.get_running_loop().call_soon(self._look_now)

    def _look_now(self) -> None:
        """Look again, and once more where a look fails."""
        self._look_soon = None
        if (pause_s := self._looks.once(self._look)) is not None:
            self._look_again_in(pause_s)

    def _look(self) -> None:
        """Put together what is known, and tell the daemon what is new."""
        if self._unknown is not None:
            self._tell_claims()
            return
        self._use_policy()
        self._see_what_passes()
        self._ask_for_unbound()
        self._dynamic.ask(self._living)
        first, self._view = self._view is None, look(self._sources())
        view = self._view
        self._tell_claims(even_if_the_same=first)
        for workload in tuple(self._host.state.workloads.values()):
            # One that is not known at the moment is still what it was.
            if (home := view.homes.get(workload.spec.tenant)) and workload.given_home is not None:
                home = home[: workload.spec.gpu_count]
                if home != workload.given_home:
                    self._host.apply_or_tell(ev.HomeAssigned(awake_s(), workload.id, home))
        for uid, troubles in view.troubles.items():
            for trouble in troubles:
                self._events.once(self._pods.records[uid], trouble.code, trouble.sentence)
        self._kubelet.expect(
            devices=any(owner.devices_to_come for owner in view.claims.owners), homes=() in view.homes.values()
        )

    @property
    def _all_is_known(self) -> bool:
        """Without the right to read them there are no labels and no early signals; the pods say the rest."""
        return self._unknown is None and self._bind_requests.settled

    def _claims(self) -> Claims:
        state, view = self._host.state, self._view
        if view is None:
            return held_back(remembered(state, self._allocations), state)
        homes = {uuid for home in view.homes.values() for uuid in home}
        claims = view.claims if self._all_is_known else held_back(view.claims, state, homes)
        return replace(claims, cordoned=self._cordoned is not None)

    def _tell_claims(self, *, even_if_the_same: bool = False) -> None:
        claims = self._claims()
        if even_if_the_same or claims != self._host.state.claims:
            self._host.apply_or_tell(ev.GpusClaimed(awake_s(), claims))

    def _sources(self) -> Sources:
        requests, gpus = self._passing.requests.values(), self._host.state.gpus
        return Sources(
            node=self._settings.node,
            pods={uid: self._as_given(pod) for uid, pod in self._pods.records.items()},
            elsewhere={key: self._as_given(pod) for key, pod in self._elsewhere.records.items()},
            bind_requests=tuple(self._dynamic.decided(request, gpus) for request in requests),
            allocations=self._allocations,
            whole_node=self._settings.whole_node,
            capacities={uuid: gpu.memory_total_bytes for uuid, gpu in self._host.state.gpus.items()},
            vanished=frozenset(self._ever - self._host.state.gpus.keys()),
            counted_bytes=self._node.counted_bytes,
            spent=self._passing.spent(self._pods.records.values()),
            departed=self._passing.reservations,
            asked_for=self._elsewhere.asked_for,
            could_be=self._dynamic.could_be(gpus),
        )

    def _see_what_passes(self) -> None:
        """What has gone a moment ago; it is looked at again when that moment is over."""
        at = awake_s()
        pods, requests = self._pods.records.values(), self._bind_requests.records
        self._passing = self._passing.after(at, pods, requests, self._allocations)
        again_at = self._passing.again_at()
        self._look_again_in(None if again_at is None else again_at - at)

    def _look_again_in(self, seconds: float | None) -> None:
        """And not before, unless something changes; `None`: only then."""
        if self._look_again is not None:
            self._look_again.cancel()
        loop = asyncio.get_running_loop()
        self._look_again = None if seconds is None else loop.call_later(seconds, self._changed)

    def _ask_for_unbound(self) -> None:
        """Whether a pod that KAI is about to bind here is ours is in the pod, which no watch of this node shows yet.

        Nobody moves for one of ours: the answer takes milliseconds, and without one it is a stranger's.
        """
        bound = {pod.key for pod in self._pods.records.values()}
        self._elsewhere.want({request.pod for request in self._passing.requests.values()} - bound)

    @property
    def _living(self) -> list[PodRecord]:
        return [pod for pod in self._pods.records.values() if not pod.ended]

    @property
    def _allocations(self) -> Mapping[str, tuple[str, ...]] | None:
        """The kubelet's, as far as they are somebody's, with the UUIDs of what it names otherwise."""
        told = self._kubelet.allocations
        if not hasattr(self, "_dynamic"):
            return told
        gpus, living = self._host.state.gpus, self._living
        lasting = self._lasting.allocations(told, self._kubelet.heard_at, living, awake_s())
        self._kubelet.tells_next = self._lasting.wants_word
        return self._topology.allocations(self._dynamic.allocations(lasting, living, gpus), living, gpus)

    def _use_policy(self) -> None:
        if self._maps is not None and self._maps.synced:
            self._policy.apply(next(iter(self._maps.records.values()), None), self._node.labels)

    def _as_given(self, pod: PodRecord) -> PodRecord:
        """`pod` with what its claims and the kubelet give it, and its memory as the cluster's scheduler means it."""
        pod = self._dynamic.given(pod.in_turns(self._lasting.of(pod)), self._host.state.gpus)
        if pod.demand is None or self._policy.unit_bytes == MIB:
            return pod
        return replace(pod, demand=pod.demand.in_units_of(self._policy.unit_bytes))

    def _ages_s(self) -> Mapping[str, float | None]:
        named = {"pods": self._pods, "nodes": self._nodes, "bindrequests": self._bind_requests}
        return {**{name: r.unheard_s for name, r in named.items()}, "podresources": self._kubelet.unheard_s}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
