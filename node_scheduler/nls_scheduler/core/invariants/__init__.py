"""Sentences that hold after every step, each a function whose first line is the sentence.

They are written from `docs/policy.md` and `docs/architecture.md` and read nothing but fields of the model: what checks
the planner shares no arithmetic with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.core.invariants import (
    allowances,
    commands,
    deadlines,
    freezing,
    gangs,
    phases,
    plans,
    queues,
    requests,
    rungs,
    starts,
    waits,
)
from nls_scheduler.core.invariants.definitions import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.state import NodeState

SENTENCES = (
    *requests.SENTENCES,
    *phases.SENTENCES,
    *waits.SENTENCES,
    *plans.SENTENCES,
    *queues.SENTENCES,
    *deadlines.SENTENCES,
    *starts.SENTENCES,
    *commands.SENTENCES,
    *gangs.SENTENCES,
    *allowances.SENTENCES,
    *rungs.SENTENCES,
    *freezing.SENTENCES,
)


class InvariantError(AssertionError):
    """A sentence that must hold does not."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A sentence that does not hold.

    Attributes:
        sentence: its name, the same whoever breaks it.
        instead: what is the case, with names and numbers.
    """

    sentence: str
    instead: str


def broken(before: NodeState, state: NodeState, commands: tuple[Command, ...]) -> Iterator[Broken]:
    """Every sentence that `state`, reached from `before` with `commands`, breaks."""
    step = Step(before, state, commands)
    for sentence in SENTENCES:
        for instead in sentence(step):
            yield Broken(sentence.__name__, instead)


def check(before: NodeState, state: NodeState, commands: tuple[Command, ...]) -> None:
    """Hold `state`, reached from `before` with `commands`, against every sentence. Raises InvariantError."""
    found = [each.instead for each in broken(before, state, commands)]
    if found:
        raise InvariantError("; ".join(found))
