"""What a notebook or command asks for, as a frozen value. Pure. Memory is in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nls_scheduler.core.model.pools import DEFAULT as DEFAULT_POOL
from nls_scheduler.core.model.queues import DEFAULT as DEFAULT_QUEUE
from nls_scheduler.core.model.queues import FIRM_FROM
from nls_scheduler.core.model.values import computed_once


class Kind(StrEnum):
    """What asks for the GPU."""

    NOTEBOOK = "notebook"
    COMMAND = "command"


@dataclass(frozen=True)
class WorkloadSpec:
    """What a workload asks for.

    Attributes:
        name: shown to people; unique names are not required.
        kind: a notebook's saved state lets it move; a command has none.
        owner: user id of who asks, known from the socket.
        request_bytes: guaranteed on each of its Gpus, CUDA context included.
        limit_bytes: hard cap on each of its Gpus, at least the request.
        gpu_count: how many Gpus it spans; of an elastic one, the fewest.
        gpu_count_max: an elastic command takes up to so many Gpus; `None`: as many as `gpu_count`, always.
        gang: its owner's (its tenant's) name for commands that start together or not at all; `None`: it is in no gang.
        gang_size: how many commands that gang has.
        priority: higher goes first.
        requeue: a command that may be stopped and started again from the beginning.
        pools: names of the pools whose Gpus it may use, the most wanted first.
        queue: in which it counts; see `queues`.
        tenant: what tells users with one user id apart, such as the UID of their pod; empty where ids do.
    """

    name: str
    kind: Kind
    owner: int
    request_bytes: int
    limit_bytes: int
    gpu_count: int = 1
    gpu_count_max: int | None = None
    gang: str | None = None
    gang_size: int = 1
    priority: int = 0
    requeue: bool = False
    pools: tuple[str, ...] = (DEFAULT_POOL,)
    queue: str = DEFAULT_QUEUE
    tenant: str = ""

    def __post_init__(self) -> None:
        """Refuse what no Gpu could ever honour."""
        if not 0 < self.request_bytes <= self.limit_bytes:
            raise ValueError("A request must be above zero and at most the limit.")
        if self.gpu_count < 1:
            raise ValueError("A workload needs at least one Gpu.")
        if self.gpu_count_max is not None and self.gpu_count_max < self.gpu_count:
            raise ValueError("The most Gpus of an elastic workload are fewer than its fewest.")
        if self.gang_size < 1:
            raise ValueError("A gang has at least one member.")
        if not self.pools:
            raise ValueError("A workload needs at least one pool.")

    @computed_once
    def demand(self) -> tuple[object, ...]:
        """What it asks for, whoever asks: while nothing changes, of two alike neither gets what the other does not."""
        sizes = (self.request_bytes, self.limit_bytes, self.gpu_count, self.gpu_count_max)
        gang = () if self.gang is None else (self.gang, self.gang_size, self.owner, self.tenant)
        return (*sizes, self.kind, self.priority, self.requeue, self.pools, self.queue, gang)

    @computed_once
    def burstable(self) -> bool:
        """Whether it may use more than its request for a while."""
        return self.limit_bytes > self.request_bytes

    @computed_once
    def burst_bytes(self) -> int:
        """How far above its request it may go, on each of its Gpus."""
        return self.limit_bytes - self.request_bytes

    @computed_once
    def preemptible(self) -> bool:
        """Whether it may have to make room for another queue's share or for a higher priority in its own."""
        return self.priority < FIRM_FROM

    @computed_once
    def starts_again(self) -> bool:
        """Whether a command that was stopped comes back from the beginning: alone if it may, in a gang always."""
        return self.requeue or self.gang is not None

    @computed_once
    def movable(self) -> bool:
        """Whether its GPU process may be taken away and brought back: never one of several Gpus or of a gang."""
        single = self.gpu_count == 1 and not self.elastic and self.gang is None
        return single and (self.kind is Kind.NOTEBOOK or self.requeue)

    @computed_once
    def elastic(self) -> bool:
        """Whether it takes more Gpus where there are more."""
        return self.gpu_count_max is not None and self.gpu_count_max > self.gpu_count

    @computed_once
    def gpu_counts(self) -> range:
        """The numbers of Gpus that it can start with, the most wanted first."""
        most = self.gpu_count if self.gpu_count_max is None else self.gpu_count_max
        return range(most, self.gpu_count - 1, -1)

    def spare(self, gpus: int) -> int:
        """How many of so many Gpus it can be told to give back."""
        return max(0, gpus - self.gpu_count) if self.resizable else 0

    @computed_once
    def resizable(self) -> bool:
        """Whether it is started again to have more Gpus or fewer; an elastic one that is not keeps what it got."""
        return self.elastic and self.requeue

    @computed_once
    def can_take_turns(self) -> bool:
        """Whether others may have its Gpu while it waits, where more is promised than there is."""
        return self.kind is Kind.NOTEBOOK and self.movable

    @computed_once
    def may_borrow(self) -> bool:
        """Whether it may run on a Gpu other than its home."""
        return self.burstable and self.movable
