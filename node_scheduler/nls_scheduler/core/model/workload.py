"""All that is known of a notebook or command, as a frozen value. Pure: no clock, no IO.

Times are seconds of the clock of decisions, carried in by events. Memory is in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import NOTHING, Mention
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.values import computed_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.allocations import MemoryAnswer, Wanted
    from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.spec import WorkloadSpec


class Phase(StrEnum):
    """Where a workload is in its life; `transitions.TABLE` says what leads where."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    FAILED = "failed"


class Order(StrEnum):
    """Which command a workload is carrying out: END is the daemon's own way where a STOP was not obeyed."""

    TRIM = "trim"
    INTERRUPT = "interrupt"
    START = "start"
    SUSPEND = "suspend"
    FREEZE = "freeze"
    THAW = "thaw"
    STOP = "stop"
    END = "end"


@dataclass(frozen=True, slots=True)
class Pending:
    """A command that was sent and has not been answered.

    Attributes:
        order: which one.
        command_id: the answer names it.
        issued_at: when it was sent.
        deadline_at: when the next rung of the ladder follows.
        reason: why it was sent, for people.
        cause: who made it necessary, who may have ended since.
        owed: whether a guarantee waits for what it takes away.
    """

    order: Order
    command_id: CommandId
    issued_at: float
    deadline_at: float
    reason: Why
    cause: Mention | None = None
    owed: bool = False

    @property
    def allowed_s(self) -> float:
        """How long it was given, to the millisecond: the rules may be others by now."""
        return round(self.deadline_at - self.issued_at, 3)


@dataclass(frozen=True, slots=True)
class Move:
    """Where a workload is being sent, until it is there: what was chosen is carried out, whatever happens between.

    Attributes:
        to: its Gpus then.
        for_whom: who needs the place that it leaves; `None`: it is for the burst of all.
    """

    to: tuple[GpuUuid, ...]
    for_whom: WorkloadId | None


@dataclass(frozen=True, slots=True)
class Frozen:
    """A GPU process that stands still in the middle of its cell: it lives, and its Gpu memory is in host memory.

    Attributes:
        gpus: where it was, and where alone it can go on: the driver restores in place.
        bytes: what of it is in host memory, its CUDA context included.
        since: when that was so.
        why: why it was frozen.
        failed_at: when thawing it failed last; it is tried again after a while.
    """

    gpus: tuple[GpuUuid, ...]
    bytes: int
    since: float
    why: Why
    failed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Departure:
    """How a workload left its Gpus with its state saved, until it is on some again.

    Attributes:
        gpus: which it left.
        order: the suspend that it obeyed.
        at: when it had left.
        bytes: what was saved.
    """

    gpus: tuple[GpuUuid, ...]
    order: Pending
    at: float
    bytes: int


@dataclass(frozen=True)
class Workload:
    """One workload as known now.

    Attributes:
        home: where its request is counted; empty while it is not admitted.
        given_home: where the cluster's scheduler counts it, a fact for us; empty: it has not said yet; `None`: the home
            is ours to choose.
        home_since: since when it has been admitted.
        told_since: since when the plan has told it to leave for a guarantee; `None`: it does not.
        move: where it is being sent as one of several that were chosen together, or after its home.
        current: where its GPU process is or is about to be; empty without one.
        process: `None` until the GPU process exists.
        measured: whether a sample has been taken since its process was ready.
        memory_used: bytes per Gpu as last sampled; a missing Gpu means not seen there.
        needed_bytes: the most that a command was seen to use which starts again; that, only where there is so much.
        context_bytes: what its CUDA context takes, about.
        saved_bytes: what its saved state takes on a Gpu, without the context; `None`: nothing saved.
        unsaved: a cell has run since it was saved.
        cell_since: a cell runs, or waits for the GPU, since then.
        wants_gpu: whether it should be on a Gpu now.
        woken_by_cell: only the cell that waits wants the Gpu: without the cell it stays suspended.
        waiting_since: since when it wants a Gpu and has none.
        resident_since: since when its process is ready on `current`.
        idle_since: end of its last cell (or when it became ready).
        sent_off_early: whether it was sent away last before it had been there for `min_residency_s`.
        last_move_s: what its last way off and onto a Gpu took, seconds.
        moved_at: when it last moved for burst alone; a cool-down follows.
        burst_moves: when it did so within the last hour, oldest first.
        suspend_failed_at: when a suspend last failed; none is tried for a burst for a while after.
        suspend_trouble: why it failed, as long as its process goes on.
        over_limit_polls: samples that have shown it above its limit, less what those within have taken back.
        trim: the trim that was ordered, for that or because memory is short, until it is answered.
        trimmed: whether it has been told to give its caches back for its limit since those began to add up.
        trimmed_at: when caches were last given back, for whatever cause.
        trim_shows_by: what that freed is to be sampled yet, and waited for until then; `None`: it was.
        wanted: an allocation of its that has failed and is not answered yet.
        answer: the last answer to one.
        wished_bytes: what it was refused last, with all that it held: it moves where it may use that much.
        interrupt: the interrupt that was ordered for the running cell; one per cell.
        freezable: whether its supervisor has found that the driver can freeze its process.
        freeze_trouble: why it cannot, or why freezing the cell that runs has failed.
        frozen: its process stands still, while it is suspended.
        perhaps_locked: the driver was told to freeze or thaw its process and nobody has said how that ended: killing
            that process could hang the driver.
        failures: starts and processes that ended by themselves since the last finished cell.
        gang_trouble: why its gang had to stop last, for people.
        gang_done: how many others of its gang have ended well; what has begun to end cannot start again whole.
        wish: the Gpu to which its user wants it moved.
        release_reason: set once it is to end.
        suspend_reason: set while its user, not the planner, wants it off the Gpu.
        keep_until: its user holds it until then: idle, it is treated as if a cell ran.
        last_reason: why its last command was sent.
        departure: how it was suspended last, as long as it has not come back.
        refused: which promise the order would break that its plan leads to: it is not given while that is so.
    """

    id: WorkloadId
    spec: WorkloadSpec
    submitted_at: float
    phase: Phase = Phase.QUEUED
    home: tuple[GpuUuid, ...] = ()
    given_home: tuple[GpuUuid, ...] | None = None
    home_since: float | None = None
    told_since: float | None = None
    move: Move | None = None
    current: tuple[GpuUuid, ...] = ()
    process: ProcessId | None = None
    measured: bool = False
    memory_used: Mapping[GpuUuid, int] = field(default_factory=dict)
    needed_bytes: int = 0
    context_bytes: int = 0
    saved_bytes: int | None = None
    unsaved: bool = False
    cell_since: float | None = None
    wants_gpu: bool = True
    woken_by_cell: bool = False
    waiting_since: float | None = None
    resident_since: float | None = None
    idle_since: float | None = None
    sent_off_early: bool = False
    last_move_s: float = 0.0
    moved_at: float | None = None
    suspend_failed_at: float | None = None
    suspend_trouble: Why | None = None
    over_limit_polls: float = 0.0
    trim: Pending | None = None
    trimmed: bool = False
    trimmed_at: float | None = None
    trim_shows_by: float | None = None
    wanted: Wanted | None = None
    answer: MemoryAnswer | None = None
    wished_bytes: int = 0
    burst_moves: tuple[float, ...] = ()
    interrupt: Pending | None = None
    freezable: bool = False
    freeze_trouble: Why | None = None
    frozen: Frozen | None = None
    perhaps_locked: bool = False
    failures: int = 0
    pending: Pending | None = None
    gang_trouble: Why | None = None
    gang_done: int = 0
    wish: GpuUuid | None = None
    release_reason: Why | None = None
    suspend_reason: Why | None = None
    keep_until: float | None = None
    last_reason: Why = NOTHING
    departure: Departure | None = None
    refused: str | None = None

    @computed_once
    def mention(self) -> Mention:
        """As a reason names it."""
        return Mention(self.id, self.spec.name, self.spec.kind.value, self.spec.owner, self.spec.tenant)

    @computed_once
    def precedence(self) -> tuple[int, float, str]:
        """Priority first, then arrival, then id: the smaller is admitted first."""
        return (-self.spec.priority, self.submitted_at, self.id)

    @computed_once
    def home_facts(self) -> tuple[object, ...]:
        """All of it that homes always follow from: where one is that has a home and can move says nothing.

        Of one that cannot move only where it is does.
        """
        always = (self.id, self.spec, self.submitted_at, self.home, self.given_home, self.takes_part, self.stands_on)
        if len(self.home) == 1 and self.wish is None and self.move is None:
            if self.spec.movable:
                return always
            if not self.spec.resizable and self.spec.gang is None:
                return (*always, self.current)
        since, brings = (self.waiting_since, self.resident_since), None if self.current else self.return_bytes
        gang = (self.gang_done, self.gang_trouble)
        return (*always, self.phase, self.current, self.wish, self.move, *since, brings, *gang)

    @computed_once
    def place_facts(self) -> tuple[object, ...]:
        """Where it is, and what it holds there."""
        return (self.phase, self.current, self.size_bytes)

    @computed_once
    def cost_facts(self) -> tuple[object, ...]:
        """What moving it, or taking its place, would cost."""
        held = (self.return_bytes, self.moved_bytes)
        return (*held, self.executing, self.keep_until, self.idle_since, self.waiting_since)

    @computed_once
    def takes_part(self) -> bool:
        """Whether it is neither released nor failed: all others only have their records still, or their processes."""
        return self.release_reason is None and self.phase is not Phase.FAILED

    @computed_once
    def stays(self) -> bool:
        """Whether it is on its Gpus, or about to be, and not on its way out."""
        return self.phase in (Phase.STARTING, Phase.RUNNING)

    @computed_once
    def present(self) -> bool:
        """Whether it takes room on `current` now."""
        return bool(self.current)

    @computed_once
    def is_bound(self) -> bool:
        """Whether its process keeps it where it is."""
        return self.present and not (self.spec.movable or self.spec.resizable)

    @computed_once
    def fewest_gpus(self) -> int:
        """On how many Gpus its home is at least: who is bound has one on all that it is on."""
        return len(self.current) if self.is_bound else self.spec.gpu_count

    @computed_once
    def stands_on(self) -> tuple[GpuUuid, ...] | None:
        """Where alone its process can be, which is frozen or about to be; `None`: it may be moved, or has none."""
        if self.frozen is not None:
            return self.frozen.gpus
        freezes = self.pending is not None and self.pending.order in (Order.FREEZE, Order.THAW)
        return self.current if freezes else None

    @computed_once
    def pinned_to(self) -> tuple[GpuUuid, ...] | None:
        """Where its home can only be: one that runs and cannot move stays; what stands still goes on only there."""
        if self.is_bound:
            return self.current
        return None if self.spec.may_borrow else self.stands_on

    @computed_once
    def stands_at_home(self) -> bool:
        """Whether its home has to stay where it is, as its process can go on only there."""
        return self.stands_on is not None and self.stands_on == self.home

    @property
    def waits_away(self) -> bool:
        """Whether its process can go on only where it has no home: there it is owed nothing."""
        return self.stands_on is not None and self.stands_on != self.home

    @computed_once
    def executing(self) -> bool:
        """Whether a cell runs in its GPU process. A command executes from start to end."""
        return self.phase is Phase.RUNNING and (self.cell_since is not None or self.spec.kind is Kind.COMMAND)

    @property
    def active(self) -> bool:
        """Whether somebody is waiting for results: a cell runs or waits, or a command wants to run."""
        return self.cell_since is not None or self.spec.kind is Kind.COMMAND

    @property
    def cell_waits(self) -> bool:
        """Whether a notebook's cell waits for the GPU process, or for the GPU."""
        return self.cell_since is not None and self.phase is not Phase.RUNNING

    @property
    def in_line_since(self) -> float:
        """Since when it wants a Gpu and has none; after everybody else, who does not wait."""
        return inf if self.waiting_since is None else self.waiting_since

    @computed_once
    def place_in_line(self) -> tuple[int, float, str]:
        """Priority first, then how long it waits, then id: the smaller is before the others who wait."""
        return (-self.spec.priority, self.in_line_since, self.id)

    def kept(self, at: float) -> bool:
        """Whether its user holds it at `at`: then only a guarantee takes it off its Gpu."""
        return self.keep_until is not None and at < self.keep_until

    @property
    def borrowed(self) -> bool:
        """Whether it is on a Gpu that is not its home."""
        return self.present and self.current != self.home

    def used_bytes(self, gpu: GpuUuid) -> int:
        """Memory sampled on `gpu`; 0 where it was not seen."""
        return self.memory_used.get(gpu, 0)

    @computed_once
    def takes_bytes(self) -> Mapping[GpuUuid, int]:
        """What it takes in fact of each of its Gpus: `size_bytes`, or what was sampled there if that is more."""
        return {gpu: max(self.size_bytes, self.used_bytes(gpu)) for gpu in self.current}

    @computed_once
    def held_bytes(self) -> int:
        """The most that was sampled on one of its Gpus: what a process has left on another is on its way back there."""
        most = 0
        for gpu, used in self.memory_used.items():
            if used > most and gpu in self.current:
                most = used
        return most

    @computed_once
    def return_bytes(self) -> int:
        """The room it needs on a Gpu to come back: its request, or its saved state, or what it needs, where more."""
        if self.spec.kind is not Kind.NOTEBOOK:
            # It may never use more than its limit again, which may have been another one.
            return max(self.spec.request_bytes, min(self.needed_bytes, self.spec.limit_bytes))
        # What a cell has changed since is not saved yet: what it uses is the best that is known.
        unsaved = self.held_bytes if self.phase is Phase.RUNNING and self.unsaved else 0
        saved = 0
        if self.saved_bytes is not None:
            # Its libraries keep to the limit with whatever its context takes, and so does what comes back.
            saved = max(self.saved_bytes, min(self.saved_bytes + self.context_bytes, self.spec.limit_bytes))
        frozen = 0 if self.frozen is None else self.frozen.bytes
        return max(self.spec.request_bytes, saved, unsaved, frozen)

    @computed_once
    def within_request(self) -> bool:
        """Whether its request covers all that it brings, where it brings it: if not, its coming back is burst."""
        return self.return_bytes <= self.spec.request_bytes and not self.waits_away

    @computed_once
    def moved_bytes(self) -> int:
        """What a move carries, about: what is saved of what it holds on a Gpu, or all of that as long as nothing is."""
        if self.saved_bytes is not None and not self.unsaved:
            return self.saved_bytes
        return self.held_bytes or self.saved_bytes or 0

    @computed_once
    def size_bytes(self) -> int:
        """The room it takes on each of its Gpus: its request, or what it holds there where that is more.

        Until it is measured there, what it brings. On its way out it takes no more than before.
        """
        if self.phase in (Phase.RUNNING, Phase.SUSPENDING) and self.measured:
            return max(self.spec.request_bytes, self.held_bytes)
        return self.return_bytes

    @computed_once
    def over_request_bytes(self) -> int:
        """How far above its request it is."""
        return self.size_bytes - self.spec.request_bytes
