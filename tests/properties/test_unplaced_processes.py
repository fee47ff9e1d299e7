"""A process that nobody placed drives nobody out before a second sample has shown it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nls_scheduler.core.model.commands import Command, InterruptCell, StopProcess, SuspendProcess, TrimMemory
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode
from properties.test_rules import bursters, cheap, filled
from stage import TOTAL

HARMFUL = (InterruptCell, StopProcess, SuspendProcess, TrimMemory)
some_gpus = st.dictionaries(st.integers(0, 2), st.integers(1, 16), min_size=1)


def sampled_twice(demands, strangers, *, seen: bool) -> list[tuple[Command, ...]]:
    """The orders that two samples lead to, of which the first shows the strangers where they are `seen`."""
    node = SimulatedNode.of(3, TOTAL, Policy(oversubscribe=1.0))
    filled(node, demands)
    node.submit(kind=Kind.COMMAND, request_bytes=6 * GIB, limit_bytes=6 * GIB)
    node.now += 100.0
    before = len(node.history)
    node.strangers = {GpuUuid(f"GPU-{gpu}"): size * GIB for gpu, size in strangers.items()} if seen else {}
    node.sample()
    node.strangers = {}
    node.sample()
    return [commands for _, commands in node.history[before:]]


def harm(orders: list[tuple[Command, ...]]) -> set[tuple[type, str]]:
    """What of `orders` somebody suffers from."""
    return {(type(c), c.workload) for given in orders for c in given if isinstance(c, HARMFUL)}


@cheap(60)
@given(bursters, some_gpus)
def test_one_sample_with_a_stranger_orders_nothing_harmful_that_would_not_be_ordered_without_it(demands, strangers):
    without, harmed = (harm(sampled_twice(demands, strangers, seen=seen)) for seen in (False, True))
    assert harmed <= without


@cheap(60)
@given(bursters, some_gpus, st.integers(1, 16))
def test_what_one_sample_has_shown_of_a_stranger_is_never_handed_out(demands, strangers, request):
    node = SimulatedNode.of(3)
    filled(node, demands)
    node.strangers = {GpuUuid(f"GPU-{gpu}"): size * GIB for gpu, size in strangers.items()}
    node.sample()
    newcomer = node.submit(request_bytes=request * GIB, limit_bytes=16 * GIB)
    for uuid in node.of_workload(newcomer).current:
        others = [w for w in node.state.workloads.values() if uuid in w.current and w.id != newcomer]
        held = sum(max(w.spec.request_bytes, node.workloads[w.id].held_bytes) for w in others)
        assert request * GIB + held + node.strangers.get(uuid, 0) <= TOTAL
