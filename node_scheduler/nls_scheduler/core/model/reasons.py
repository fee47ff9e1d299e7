"""Why something is decided, as values. Nothing here is a sentence: `views.sentences` tells one to whoever reads. Pure.

Two values are equal when the reasons are. They name Gpus by UUID and workloads by `Mention`, so that who reads decides
what these are called, also after a workload has ended and after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.model.ids import GpuUuid

NOBODY: Final = -1
"""The user id of whom nobody here looks after: none of the users who ask."""


class Reason(StrEnum):
    """The kinds. Their values are stable: journals, programs and pages for people refer to them."""

    SAID = "said"
    """What somebody outside of the core said, as its text."""

    # Where it is, and where it goes
    AT_HOME = "at-home"
    AT_HOME_WITH_BURST = "at-home-with-burst"
    BORROWS = "borrows"
    HOME = "home"
    MORE_ROOM = "more-room-to-burst"
    GOES_HOME = "goes-home"
    WISHED = "wished-by-user"
    GROWS = "grows"
    STAYS = "stays-while-it-runs"
    STAYS_AS_GUEST = "stays-while-nobody-needs-it"

    # Who makes it leave
    NEEDED = "gpu-needed"
    NEEDED_WHILE_IDLE = "gpu-needed-while-idle"
    LEFT_TO = "left-to"
    OFF = "off-until-next-cell"
    BURST_NEEDED = "burst-needed"
    BURST_NEEDED_BY_REQUESTS = "burst-needed-by-requests"
    YIELDS = "yields-at-cell-end"
    IDLE = "idle"
    CORDONED = "node-cordoned"
    ABOVE_LIMIT = "above-limit"
    MEMORY_SHORT = "memory-short"

    # What it waits for
    WAITS = "waits-for-gpu"
    NO_ROOM = "no-room"
    HELD = "gpu-held"
    BEING_FREED = "gpu-being-freed"
    WOULD_LEAVE = "would-leave-again"
    RESTARTED = "daemon-restarted"
    RESERVED = "room-reserved"
    SAVED_ABOVE_REQUEST = "saved-state-above-request"
    USED_ABOVE_REQUEST = "use-above-request"
    ON_DEMAND = "on-demand-only"
    COMES_BACK = "comes-back-with-room-or-cell"
    NOBODY_YIELDS = "nobody-can-yield"
    KEPT_FOR = "gpu-kept-for-longer-wait"
    TURN_OF = "turn-of-others"
    MOVES_TOO_MANY = "would-move-too-many"
    NO_HOME = "no-home-on-paper"
    NO_HOME_YET = "home-not-told"
    JOURNAL_LOST = "journal-lost"
    HOME_ELSEWHERE = "home-elsewhere"
    HOME_OVERFULL = "home-overfull"
    WOULD_EXCEED = "requests-would-exceed"
    WOULD_COST = "guarantee-would-be-lost"

    STANDS_STILL = "stands-still"
    GOES_ON = "goes-on"
    CELL_FIRST = "leaves-after-its-cell"
    SUSPEND_FAILED = "suspend-failed"
    NOT_SAVED = "not-saved-in-time"
    NOT_READY = "not-ready-in-time"
    FAILED_UNHEARD = "failed-unheard"

    # What its queue says
    HELD_BACK = "held-back-by-queue"
    QUEUE_LIMIT = "queue-limit"
    QUEUE_TOO_SMALL = "queue-limit-too-small"
    QUEUE_QUOTA = "queue-quota"
    QUEUE_SHARE = "queue-share"

    # What its gang says
    GANG_INCOMPLETE = "gang-incomplete"
    GANG_CANNOT_RESTART = "gang-cannot-restart"
    GANG_STARTS_AGAIN = "gang-starts-again"
    GANG_WITHOUT_ROOM = "gang-without-room"
    GANG_MEMBER_WITHOUT_PLACE = "gang-member-without-place"
    GANG_MEMBER_ENDED = "gang-member-ended"

    # How it ended
    GAVE_UP = "gave-up"
    ENDED_UNHEARD = "ended-unheard"
    ENDED_UNSEEN = "ended-unseen"
    ENDED_BY_DAEMON = "ended-by-daemon"

    ADOPTED = "brought-back"

    # Gpus
    OUT_OF_SERVICE = "gpu-out-of-service"
    USE_UNTOLD = "gpu-use-untold"
    NO_GPU = "no-gpu-in-service"
    NO_POOL = "pool-not-configured"
    POOL_OFF = "pool-off"
    POOL_CLOSED = "gpu-in-other-pool"
    UNHEALTHY = "gpu-unhealthy"
    VANISHED = "gpu-vanished"
    LEFT_OUT = "gpu-left-out"
    STUCK = "memory-stuck"
    BACK_IN_SERVICE = "gpu-back-in-service"

    # Answers to allocations that failed
    NOT_THERE = "not-on-that-gpu"
    BEYOND_LIMIT = "allocation-beyond-limit"
    BEYOND_ANY_GPU = "allocation-beyond-any-gpu"
    BEYOND_ALLOWANCE = "allocation-beyond-allowance"
    ROOMIER_ELSEWHERE = "allocation-fits-elsewhere"
    TOO_LITTLE_FREE = "too-little-free"
    FREE = "free"
    HOLDS = "holds"
    STRANGERS_HOLD = "unplaced-processes-hold"
    NOBODY_SEEN = "nobody-seen"


@dataclass(frozen=True, slots=True)
class Mention:
    """A workload or a pod in a reason.

    Attributes:
        id: as long as it is known.
        name: as its user calls it.
        kind: `notebook`, `command` or `pod`; `workload`: it is not known any more.
        owner: its user id; see `NOBODY`.
        tenant: see `WorkloadSpec.tenant`.
    """

    id: str
    name: str
    kind: str
    owner: int = NOBODY
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """One reason. What the numbers, names and inner reasons of a kind are is seen in its sentence.

    Attributes:
        gpus: which it is about.
        who: which workloads and pods; of what was said: whom the text may name.
        bytes: sizes.
        numbers: counts, amounts of Gpus, seconds.
        names: of a queue and its pool, or of a gang.
        because: the reasons behind it.
        text: what was said; all other kinds have none.
    """

    kind: Reason
    gpus: tuple[GpuUuid, ...] = ()
    who: tuple[Mention, ...] = ()
    bytes: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    names: tuple[str, ...] = ()
    because: tuple[Why, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        """Refuse sentences where a value is meant."""
        if self.text and self.kind is not Reason.SAID:
            raise ValueError("Only what was said has a text.")

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return self.kind is not Reason.SAID or bool(self.text)


NOTHING: Final = Why(Reason.SAID)
"""There was no reason to tell yet."""
_SOMEBODY: Final = Mention("", "somebody", "workload")


def gpus_of(why: Why) -> Iterator[GpuUuid]:
    """Those that it is about, and the reasons behind it."""
    yield from why.gpus
    for inner in why.because:
        yield from gpus_of(inner)


def said(reason: str | Why) -> Why:
    """What somebody outside said; what is a value already stays one."""
    return reason if isinstance(reason, Why) else Why(Reason.SAID, text=reason)


def said_before(text: str) -> Why:
    """A sentence that an earlier version made: it may name anybody."""
    return Why(Reason.SAID, who=(_SOMEBODY,), text=text) if text else NOTHING
