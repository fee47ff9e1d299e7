"""Whatever a supervisor says, at any time: all that changes is what is known of its workload, and nothing breaks."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from effort import examples
from left_out import thinned
from mixed_histories import drawn, played
from nls_scheduler.core import simulator
from nls_scheduler.core.step import step
from nls_scheduler.wire import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.model.events import Event, WorkloadEvent
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

AT_ONCE = 3
# Everything is said after one of the first steps of a history, which is drawn, and then after each sixtieth.
FIRST_STEPS, EVERY = 20, 60
# Of all that one message can be, so much is said.
MOST = 20
FIRST = range(0, examples(60), AT_ONCE)
KINDS = {name: kind for fields in protocol._EVENT_FIELDS.values() for name, kind in fields.items()}


def values(name: str, workload: Workload, state: NodeState) -> tuple[Any, ...]:
    """What a field of a message may be: what is right, as far as anything is, and what is not."""
    process = workload.process
    orders = [order.command_id for order in (workload.pending, workload.trim) if order is not None]
    match name:
        case "command_id":
            return (0, *orders, 1 << 61)
        case "pid":
            return (4242, None) if process is None else (process.pid, 4242, None)
        case "start_time":
            return (7,) if process is None else (process.start_time,)
        case "gpus":
            return [], [*state.gpus][:1], ["GPU-of-another-node"]
        case "gpu":
            return (*[*state.gpus][:1], "GPU-of-another-node")
        case "doing":
            return "", "start_process", "suspend_process", "anything"
    return {int: (0, 1 << 30), bool: (False, True), str: ("a reason",), list: ([],)}[KINDS[name]]


def said(state: NodeState, workload: Workload, random: Random) -> Iterator[WorkloadEvent]:
    """Each kind of message, with all that its fields may be, or many of these."""
    for kind, fields in protocol._EVENT_FIELDS.items():
        every = list(product(*(values(name, workload, state) for name in fields)))
        for each in random.sample(every, min(MOST, len(every))):
            message = {"event": kind, **dict(zip(fields, each, strict=True))}
            try:
                yield protocol.parse_event(json.dumps(message), workload.id, state.at)
            except protocol.Problem:
                continue


@pytest.mark.parametrize("first", thinned(FIRST, 12, "histories in which supervisors say anything"))
def test_whatever_a_supervisor_says_breaks_nothing(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(first)
    left = heard = 0

    def steps(state: NodeState, event: Event) -> Any:
        nonlocal left, heard
        after = step(state, event)
        left -= 1
        if left < 0 and after[0].workloads:
            left = EVERY - 1
            for workload in after[0].workloads.values():
                for message in said(after[0], workload, random):
                    step(after[0], message)
                    heard += 1
        return after

    monkeypatch.setattr(simulator, "step", steps)
    for number in range(first, first + AT_ONCE):
        left = random.randrange(FIRST_STEPS)
        assert played(drawn(number)) is None
    assert heard > 0
