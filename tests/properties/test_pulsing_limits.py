"""Limits are kept by samples: whoever is above in too many of them is trimmed and stopped, whoever is in fewer is not.

The sentences are about runs of samples that follow each other, however long: `too_many` says them without counting
anything from one sample to the next, as the code does.
"""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from nls_scheduler.core.model.commands import StopProcess, TrimMemory, WorkloadCommand
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode
from properties.test_rules import cheap

patterns = st.lists(st.booleans(), min_size=1, max_size=40)
"""Whether each sample shows more than the limit."""
REQUEST, LIMIT = 4 * GIB, 6 * GIB
TRIMMED_AT, STOPPED_AT = 2, 4


def too_many(samples: list[bool], level: int) -> bool:
    """Whether of some Y samples up to the last one at least (Y + 2 * `level`) / 3 are above the limit."""
    runs = (samples[begin:] for begin in range(len(samples)))
    return any(3 * sum(run) >= len(run) + 2 * level for run in runs)


def orders(kind: Kind, samples: list[bool]) -> dict[int, type]:
    """What is ordered with which sample, from 1. A trim is carried out at once, and helps nothing."""
    node = SimulatedNode.of()
    workload = node.submit(kind=kind, request_bytes=REQUEST, limit_bytes=LIMIT)
    node.settle()
    given: dict[int, type] = {}
    for number, above in zip(count(1), samples, strict=False):
        process = node.workloads[workload].process
        assert process is not None
        process.held_bytes = LIMIT + above
        node.sample()
        for command in [c for c in node.history[-1][1] if isinstance(c, WorkloadCommand)]:
            given[number] = type(command)
            if not isinstance(command, TrimMemory):
                return given
            node.complete(command)
    return given


@cheap(300)
@given(patterns)
def test_a_command_is_stopped_exactly_when_it_was_above_its_limit_in_too_many_of_any_samples(samples):
    due = next((n for n in range(1, len(samples) + 1) if too_many(samples[:n], TRIMMED_AT)), None)
    assert orders(Kind.COMMAND, samples) == ({} if due is None else {due: StopProcess})


@cheap(300)
@given(patterns)
def test_a_notebook_is_trimmed_first_and_stopped_exactly_when_as_many_samples_again_show_it_above(samples):
    given_orders = orders(Kind.NOTEBOOK, samples)
    trims = [n for n, order in given_orders.items() if order is TrimMemory]
    stops = [n for n, order in given_orders.items() if order is StopProcess]
    first = next((n for n in range(1, len(samples) + 1) if too_many(samples[:n], TRIMMED_AT)), None)
    last = next((n for n in range(1, len(samples) + 1) if too_many(samples[:n], STOPPED_AT)), None)
    assert trims[:1] == ([] if first is None else [first])
    assert stops == ([] if last is None else [last])


@cheap(20)
@given(st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_one_above_its_limit_in_more_than_a_third_of_all_samples_is_stopped_after_few_pulses(on, off, notebook):
    """However its pulses lie to the samples: `on` of them above, then `off` within."""
    pulses = 12
    given_orders = orders(Kind.NOTEBOOK if notebook else Kind.COMMAND, ([True] * on + [False] * off) * pulses)
    assert (StopProcess in given_orders.values()) == (2 * on > off or on >= (STOPPED_AT if notebook else TRIMMED_AT))
