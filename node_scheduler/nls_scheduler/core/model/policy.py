"""The numbers of the rules, and what follows from them alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.values import computed_once

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.queues import Queue
    from nls_scheduler.core.model.workload import Workload


@dataclass(frozen=True)
class Policy:
    """The rules' numbers; times in seconds.

    Attributes:
        reclaim_deadline_s: a guaranteed request is there after this long, whoever borrowed it.
        interrupt_grace_s: a cell that must yield is interrupted this long before the deadline, or half of it.
        freeze_timeout_s: a cell that must yield is frozen this long before it would be interrupted, or half of the time
            that there is until then: so long the driver may take.
        stop_grace_s: part of the deadline kept for stopping a process that does not yield.
        min_residency_s: a holder of burst keeps its Gpu at least this long.
        residency_per_move: and this many times what its last move took: turns cost at most a tenth.
        min_gain: a move for burst alone must raise the smallest share (or the sum of all) by this.
        cool_down_s: between two moves of one workload for burst alone.
        max_moves_per_hour: of one workload for burst alone; 0: never for burst alone.
        starvation_s: after this wait a larger request is no longer passed by.
        max_moved_for_one: so many others leave their Gpus at most for each Gpu that one asks for who has no home; as
            many as it takes once that has waited for `starvation_s`.
        max_workloads_per_gpu: of the default pool, as `placement`, `idle_suspend_s`, `oversubscribe` and
            `freeze_cells`; see `Pool`.
        placement: see above.
        idle_suspend_s: see above.
        oversubscribe: see above.
        cordoned_idle_s: on a cordoned node a notebook that has been idle for so long is suspended; `None`: none is.
        freeze_cells: see above.
        pools: the others, in the order in which they claim Gpus.
        queues: who may have how much; without any, priorities only order those who wait.
        start_timeout_s: a GPU process must be ready after this long.
        suspend_timeout_s: a suspend that no guarantee waits for has failed after this long; its process goes on.
        stop_timeout_s: a stopped process must be gone after this long, its memory free after as long again.
        max_failures: starts or deaths in a row before a workload counts as failed.
        trim_timeout_s: allocators must have given back their caches after this long.
        allocation_wait_s: an allocation that has failed within its limit is answered after this long.
        reconnect_grace_s: after a restart supervisors have this long to report before anything is ordered.
    """

    reclaim_deadline_s: float = 30.0
    interrupt_grace_s: float = 10.0
    freeze_timeout_s: float = 10.0
    stop_grace_s: float = 2.0
    min_residency_s: float = 2.0
    residency_per_move: float = 10.0
    min_gain: float = 0.1
    cool_down_s: float = 30.0
    max_moves_per_hour: int = 12
    starvation_s: float = 300.0
    max_moved_for_one: int = 5
    max_workloads_per_gpu: int | None = 5
    placement: Placement = Placement.SPREAD
    idle_suspend_s: float | None = None
    oversubscribe: float = 1.0
    cordoned_idle_s: float | None = 30.0
    freeze_cells: bool = False
    pools: tuple[Pool, ...] = ()
    queues: tuple[Queue, ...] = ()
    start_timeout_s: float = 120.0
    suspend_timeout_s: float = 120.0
    stop_timeout_s: float = 10.0
    max_failures: int = 3
    trim_timeout_s: float = 5.0
    allocation_wait_s: float = 5.0
    reconnect_grace_s: float = 3.0

    def pool_of(self, gpu: Gpu) -> Pool:
        """The pool that `gpu` belongs to."""
        return next((pool for pool in self.pools if pool.names(gpu)), None) or self.default_pool

    @computed_once
    def all_pools(self) -> tuple[Pool, ...]:
        """That there are; one may have gone since it was asked for."""
        return (*self.pools, self.default_pool)

    @computed_once
    def default_pool(self) -> Pool:
        """The rules for Gpus that no pool names."""
        return Pool(
            placement=self.placement,
            max_workloads_per_gpu=self.max_workloads_per_gpu,
            idle_suspend_s=self.idle_suspend_s,
            oversubscribe=self.oversubscribe,
            freeze_cells=self.freeze_cells,
        )

    @property
    def ladder_s(self) -> float:
        """The least that a running cell has between the interrupt and the stop."""
        return min(self.interrupt_grace_s, self.reclaim_deadline_s / 2)

    def interrupt_at(self, deadline_at: float) -> float:
        """When a cell that has not ended by itself is interrupted: it may save what it needs, and end."""
        return deadline_at - self.ladder_s

    def freezes_in(self, pool: Pool) -> bool:
        """Whether running cells in `pool` may be frozen."""
        return self.freeze_cells if pool.freeze_cells is None else pool.freeze_cells

    def freeze_at(self, deadline_at: float, told_since: float) -> float:
        """When a cell that has not ended by itself is frozen, if that can be: it gets a part of the time before."""
        interrupt_at = self.interrupt_at(deadline_at)
        return interrupt_at - max(0.0, min(self.freeze_timeout_s, (interrupt_at - told_since) / 2))

    def deadline_at(self, since: float, told_since: float) -> float:
        """When a process that leaves for a guarantee is stopped.

        Args:
            since: since when the guarantee waits.
            told_since: since when the victim has known.
        """
        return max(since + self.reclaim_deadline_s - self.stop_grace_s, told_since + self.ladder_s)

    def residency_s(self, workload: Workload) -> float:
        """How long `workload` may keep its burst before it yields to a waiter."""
        return max(self.min_residency_s, self.residency_per_move * workload.last_move_s)
