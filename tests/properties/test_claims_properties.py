"""Random claims, homes and cells: the sentences of `invariants` hold after each step, and the node settles."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.simulator import GIB, SimulatedNode

GPUS = tuple(GpuUuid(f"GPU-{n}") for n in range(3))
GPU = st.sampled_from(GPUS)
OWNER = st.builds(
    Owner,
    st.sampled_from("xyz"),
    st.just("owner"),
    st.lists(GPU, max_size=2, unique=True).map(tuple),
    st.one_of(st.none(), st.integers(1, 16).map(lambda n: n * GIB)),
    st.integers(0, 2),
)
CLAIMS = st.builds(
    Claims,
    st.lists(OWNER, max_size=3, unique_by=lambda owner: owner.id).map(tuple),
    st.frozensets(GPU, max_size=2),
    st.sampled_from([False, False, True]),
)
ACTION = st.one_of(
    st.tuples(st.just("claim"), CLAIMS),
    st.tuples(st.just("submit"), st.tuples(st.lists(GPU, max_size=1).map(tuple), st.integers(1, 16))),
    st.tuples(st.just("home"), st.tuples(st.integers(0, 5), st.lists(GPU, max_size=1).map(tuple))),
    st.tuples(st.just("cell"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTION, min_size=3, max_size=14))
def test_whatever_a_cluster_says_nothing_is_broken_and_the_node_settles(actions: list[tuple[str, object]]) -> None:
    node = SimulatedNode.of(3, policy=Policy(reclaim_deadline_s=3.0, stop_grace_s=0.5, cool_down_s=5.0))
    for kind, value in actions:
        _act(node, kind, value)
        node.settle()
    node.advance(60)
    count = len(node.history)
    node.settle()
    assert all(not commands for _, commands in node.history[count:])


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTION, min_size=3, max_size=14), CLAIMS)
def test_no_borrower_outstays_the_deadline_on_a_gpu_that_somebody_owns(
    actions: list[tuple[str, object]], claims: Claims
) -> None:
    node = SimulatedNode.of(3, policy=Policy(reclaim_deadline_s=3.0, stop_grace_s=0.5))
    for kind, value in actions:
        _act(node, kind, value)
        node.settle()
    node.tell(ev.GpusClaimed(node.now, claims))
    node.settle()
    node.advance(3.0)
    for workload in node.state.workloads.values():
        for uuid in workload.current:
            assert uuid in (workload.given_home or ()) or not node.state.gpus[uuid].owners, workload


def _act(node: SimulatedNode, kind: str, value: object) -> None:
    match kind, value:
        case "claim", Claims() as claims:
            node.tell(ev.GpusClaimed(node.now, claims))
        case "submit", (home, size):
            node.submit(given_home=home, request_bytes=size * GIB // 2, limit_bytes=size * GIB)
        case "wait", int(seconds):
            node.advance(seconds)
        case _:
            _about_one(node, kind, value)


def _about_one(node: SimulatedNode, kind: str, value: object) -> None:
    ids = sorted(node.state.workloads)
    number = value[0] if isinstance(value, tuple) else value
    if not isinstance(number, int) or number >= len(ids):
        return
    workload = ids[number]
    if kind == "home" and isinstance(value, tuple):
        node.tell(ev.HomeAssigned(node.now, workload, value[1]))
    elif kind == "end":
        node.release(workload)
    elif node.workloads[workload].executing:
        node.finish_cell(workload)
    else:
        node.start_cell(workload)
