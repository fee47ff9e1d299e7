"""A daemon that has lost its journal: who runs, and tells of itself within the settling time, keeps its home."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode

wanted = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(Kind),
        "request_bytes": st.integers(1, 16).map(GIB.__mul__),
        "limit_bytes": st.just(16 * GIB),
        "priority": st.sampled_from([50, 75, 100]),
        "queue": st.sampled_from(["default", "a"]),
        "members": st.sampled_from([1, 1, 1, 2]),
    }
)
policies = st.sampled_from([Policy(), Policy(queues=(Queue("a", quota={"default": 1.0}), Queue("default")))])


def submit(node, fields):
    """One, or a gang of commands."""
    members = fields["members"]
    asked = {key: value for key, value in fields.items() if key != "members"}
    if members > 1:
        asked |= {"kind": Kind.COMMAND, "gang": f"gang-{len(node.workloads)}", "gang_size": members}
    for _ in range(members):
        node.submit(**asked)


@settings(max_examples=examples(150))
@given(
    gpus=st.integers(1, 3),
    policy=policies,
    before=st.lists(wanted, min_size=1, max_size=6),
    bursts=st.lists(st.integers(1, 16), max_size=6),
    meanwhile=st.lists(st.one_of(wanted, st.just("time"), st.just("sample")), max_size=4),
    data=st.data(),
)
def test_who_runs_and_tells_of_itself_in_time_keeps_its_home(gpus, policy, before, bursts, meanwhile, data):
    node = SimulatedNode.of(gpus, policy=policy)
    for fields in before:
        submit(node, fields)
    node.settle()
    for workload, size in zip(list(node.workloads), bursts, strict=False):
        if node.workloads[workload].process is not None:
            node.hold(workload, min(size * GIB, node.state.plan[workload].allowance_bytes))
    node.settle()
    runs = {key: w.process for key, w in node.workloads.items() if w.process is not None}
    node.go_down()
    node.come_back_forgetful()
    ends_at = node.state.quiet_until
    for happens in data.draw(st.permutations([*runs, *meanwhile])):
        if happens == "sample":
            node.sample()
        elif happens == "time":
            node.now += (ends_at - node.now) / 2
        elif isinstance(happens, dict):
            submit(node, happens)
        else:
            assert node.bring_back(happens), f"{happens} has lost its home to a newcomer"
    for workload, process in runs.items():
        known = node.state.workloads[workload]
        assert known.home
        assert (known.current, known.process, known.phase) == (process.gpus, process.id, Phase.RUNNING)
    node.advance(ends_at - node.now)
    assert not any(entry.reason.kind is Reason.JOURNAL_LOST for entry in node.state.plan.values())
