"""The phases of a workload and what leads from one to the next. The picture in the docs is drawn from TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.commands import (
    EndProcess,
    FreezeProcess,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
)
from nls_scheduler.core.model.events import (
    FreezeFailed,
    ProcessExited,
    ProcessFrozen,
    ProcessReady,
    ProcessSuspended,
    ProcessThawed,
    ResumeRequested,
    StartFailed,
    SuspendFailed,
    ThawFailed,
    WorkloadReported,
)
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.workload import Workload

_AFTER_EXIT = frozenset({Phase.QUEUED, Phase.SUSPENDED, Phase.FAILED})
_BY_REPORT = frozenset({Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING})

TABLE: Final[Mapping[tuple[Phase, type], frozenset[Phase]]] = {
    (Phase.QUEUED, StartProcess): frozenset({Phase.STARTING}),
    # The last death of a gang's bounded number ends those of it that wait, too.
    (Phase.QUEUED, ProcessExited): frozenset({Phase.FAILED}),
    (Phase.SUSPENDED, StartProcess): frozenset({Phase.STARTING}),
    # A frozen process is suspended with its process, in mid-cell: it is thawed, never started.
    (Phase.SUSPENDED, ThawProcess): frozenset({Phase.STARTING}),
    (Phase.SUSPENDED, ProcessExited): _AFTER_EXIT,
    (Phase.STARTING, ProcessThawed): frozenset({Phase.RUNNING}),
    (Phase.STARTING, ThawFailed): frozenset({Phase.SUSPENDED}),
    (Phase.STARTING, ProcessReady): frozenset({Phase.RUNNING}),
    (Phase.STARTING, StartFailed): _AFTER_EXIT,
    (Phase.STARTING, ProcessExited): _AFTER_EXIT,
    (Phase.STARTING, StopProcess): frozenset({Phase.SUSPENDING}),
    (Phase.RUNNING, SuspendProcess): frozenset({Phase.SUSPENDING}),
    (Phase.RUNNING, StopProcess): frozenset({Phase.SUSPENDING}),
    (Phase.RUNNING, FreezeProcess): frozenset({Phase.SUSPENDING}),
    (Phase.RUNNING, ProcessExited): _AFTER_EXIT,
    # What was saved after the suspend had been given up.
    (Phase.RUNNING, ProcessSuspended): frozenset({Phase.SUSPENDED}),
    (Phase.SUSPENDING, SuspendFailed): frozenset({Phase.RUNNING}),
    (Phase.SUSPENDING, FreezeFailed): frozenset({Phase.RUNNING}),
    (Phase.SUSPENDING, ProcessFrozen): frozenset({Phase.SUSPENDED}),
    (Phase.SUSPENDING, StopProcess): frozenset({Phase.SUSPENDING}),
    (Phase.SUSPENDING, EndProcess): frozenset({Phase.SUSPENDING}),
    (Phase.SUSPENDING, ProcessSuspended): frozenset({Phase.SUSPENDED}),
    (Phase.SUSPENDING, StartFailed): _AFTER_EXIT,
    (Phase.SUSPENDING, ProcessExited): _AFTER_EXIT,
    # What a journal that lost its end does not know, and a supervisor reports.
    **dict.fromkeys(((phase, WorkloadReported) for phase in Phase), _BY_REPORT),
    (Phase.RUNNING, ProcessFrozen): frozenset({Phase.SUSPENDED}),
    (Phase.SUSPENDED, ProcessThawed): frozenset({Phase.RUNNING}),
    (Phase.FAILED, ResumeRequested): frozenset({Phase.QUEUED, Phase.SUSPENDED}),
}


class IllegalTransitionError(Exception):
    """The state machine was about to do what TABLE forbids: a defect of the daemon, told with the whole record."""


def transition(workload: Workload, trigger: type, to: Phase, **changes: Any) -> Workload:
    """`workload` in phase `to`, with `changes`. Raises IllegalTransitionError where TABLE has no such arrow."""
    if to not in TABLE.get((workload.phase, trigger), frozenset()):
        raise IllegalTransitionError(f"{trigger.__name__} cannot lead from {workload.phase} to {to}: {workload!r}")
    return replace(workload, phase=to, **changes)
