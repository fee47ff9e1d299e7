"""A configuration is taken or refused as a whole, with one sentence, whatever is written in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.daemon.config import ConfigError, load
from nls_scheduler.requests.pool_config import complaint as pool_complaint
from nls_scheduler.requests.queue_config import complaint

if TYPE_CHECKING:
    from nls_scheduler.core.model.policy import Policy

anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 200), st.floats(), st.sampled_from(["a", "b", "*", "x\ny", ""])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "*"]), inner)),
    max_leaves=4,
)
amounts = st.one_of(
    st.floats(0, 4), st.none(), st.dictionaries(st.sampled_from(["default", "p", "*"]), st.floats(0, 4))
)
mostly = st.sampled_from([True, True, True, False])


@st.composite
def rules(draw, **fields):
    """Some of the fields, mostly with values that can be."""
    chosen = draw(st.sets(st.sampled_from([*fields, "nonsense"])))
    return {name: draw(fields[name] if name in fields and draw(mostly) else anything) for name in chosen}


queue_rules = rules(
    parent=st.sampled_from(["a", "b", "c", "default", None]),
    quota=amounts,
    limit=amounts,
    over_quota_weight=st.floats(0, 2),
    priority=st.integers(0, 3),
    max_priority=st.sampled_from([50, "train", None]),
    users=st.just([0]),
)
pool_rules = rules(
    gpus=st.lists(st.sampled_from(["0", "1", "Sim*"]), min_size=1),
    enabled=st.booleans(),
    placement=st.sampled_from(["spread", "binpack"]),
    max_workloads_per_gpu=st.one_of(st.none(), st.integers(0, 5)),
    idle_suspend_s=st.one_of(st.none(), st.floats(0, 100)),
    oversubscribe=st.floats(0.5, 3),
)
written = st.fixed_dictionaries(
    {},
    optional={
        "queues": st.one_of(anything, st.dictionaries(st.sampled_from("abc"), queue_rules, max_size=3)),
        "pools": st.one_of(anything, st.dictionaries(st.sampled_from(["p", "q", "default"]), pool_rules, max_size=2)),
        "oversubscribe": st.one_of(anything, st.floats(0.5, 3)),
        "placement": st.one_of(anything, st.sampled_from(["spread", "binpack"])),
        "starvation_s": st.one_of(anything, st.floats(-1, 1000)),
    },
)


def read(values: dict[str, object]) -> tuple[Policy | None, str]:
    """The policy, or why there is none."""
    try:
        return load([], [], cluster=values).policy, ""
    except ConfigError as error:
        return None, str(error).strip()


@settings(max_examples=examples(200), deadline=None)
@given(written)
def test_what_is_written_is_taken_as_a_whole_or_refused_with_one_sentence(values: dict[str, object]) -> None:
    policy, refused = read(values)
    if policy is None:
        assert refused
        assert "\n" not in refused
        return
    gpus = [Gpu(GpuUuid(f"GPU-{n}"), n, "Simulated GPU", 16 * GIB) for n in range(2)]
    for told in (complaint(policy, gpus), pool_complaint(policy.pools, gpus)):
        assert told is None or (told.endswith(".") and "\n" not in told)
    # What is taken can be planned with.
    node = SimulatedNode.of(2, 16 * GIB, policy)
    node.submit(queue="a")
    node.submit(queue="c")
    node.settle()
    assert isinstance(node.state, NodeState)
