"""Gangs: planned, admitted and started whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import gangs
from nls_scheduler.core.model.commands import StartProcess
from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step


def gangs_are_planned_whole(step: Step) -> Iterator[str]:
    """All of a gang is to have Gpus, or nobody of it; and only one that is whole."""
    targets = {workload.id: entry.target for workload, entry in step.planned}
    for gang in gangs(step.state):
        placed = [w for w in gang.members if targets.get(w.id)]
        if placed and not (gang.whole and len(placed) == len(gang.members)):
            yield f"the plan gives Gpus to some of gang {gang.name} only"


def gangs_are_admitted_whole(step: Step) -> Iterator[str]:
    """Where one of a gang that is not on a Gpu has a home, all of it has."""
    for gang in gangs(step.state):
        admitted_anew = any(w.home and not w.current for w in gang.members)
        if admitted_anew and not (gang.whole and all(w.home for w in gang.members)):
            yield f"a part of gang {gang.name} is admitted"


def gangs_are_started_whole(step: Step) -> Iterator[str]:
    """Where one of a gang starts, all of it starts."""
    started = {c.workload for c in step.commands if isinstance(c, StartProcess)}
    for gang in gangs(step.state):
        starts = any(w.id in started for w in gang.members)
        if starts and any(w.phase is not Phase.STARTING for w in gang.members):
            yield f"a part of gang {gang.name} is started"


SENTENCES = (gangs_are_planned_whole, gangs_are_admitted_whole, gangs_are_started_whole)
