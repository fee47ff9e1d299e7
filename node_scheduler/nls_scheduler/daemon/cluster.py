"""What the daemon needs of a cluster that places pods on its node: the port that `kubernetes_driver` implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import GpuUuid, ProcessId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.daemon.peers import Peer
    from nls_scheduler.views.metrics import Metrics


class Host(Protocol):
    """What a cluster needs of the daemon.

    Attributes:
        recovered_at: when the daemon before this one was heard of last, by `awake_s`; `None`: it left nothing.
    """

    state: NodeState
    metrics: Metrics
    refused_configuration: str | None
    recovered_at: float | None

    def apply_or_tell(self, event: Event) -> None:
        """One event; what goes wrong is in the log and the status."""

    def use(self, values: Mapping[str, Any]) -> None:
        """Settings of the cluster's from now on, above all others. Raises ValueError or Problem: the old ones stay."""


class Cluster(Protocol):
    """Where homes, owners and identities come from. All methods but `tenant_of` run in the daemon's loop."""

    @property
    def not_ready(self) -> str | None:
        """Why nothing may be placed yet, as a sentence; `None` once the node's pods are known."""

    @property
    def trouble(self) -> str | None:
        """What does not work at the moment, as a sentence for the status; `None` when all is well."""

    async def start(self, host: Host) -> None:
        """Begin to follow the cluster; returns at once."""

    async def close(self) -> None:
        """End that. Nothing of the cluster's is touched."""

    def identified(self, peer: Peer) -> Peer:
        """`peer` with its tenant. Raises Problem for one that cannot be seen from here."""

    def allot(
        self, body: Mapping[str, Any], peer: Peer, instead_of: WorkloadSpec | None
    ) -> tuple[dict[str, Any], tuple[GpuUuid, ...]]:
        """What `peer` may have of what it asks for, as a submission's fields, and its home.

        `instead_of`: it asks for this in exchange for what it has. Raises Problem.
        """

    def may_start(self, peer: Peer, *, gives_up: bool) -> dict[str, Any]:
        """Whether the Gpus of `peer`'s pod are vacated, so that it may start, as `Start` in `openapi.json`.

        `gives_up`: it will not wait any longer. Raises Problem.
        """

    def localised(self, event: Event, peer: Peer) -> Event:
        """`event` with its process as this daemon numbers it; `peer` reported it. Raises Problem."""

    def local_process(self, process: ProcessId, peer: Peer) -> ProcessId:
        """The same for one process."""

    def tenant_of(self, pid: int) -> str:
        """Whose process this is; empty: nobody's pod. Called from the poller's thread."""

    def told(self, entry: Mapping[str, Any], tenant: str) -> None:
        """An entry of the history about a workload of `tenant`."""

    def stepped(self) -> None:
        """The state has changed."""
