"""Fair shares: quotas as far as they are asked for, the rest by weight, for random trees of queues."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nls_scheduler.core.model.queues import Queue, Tree, fair_shares, wants_in_vain
from nls_scheduler.requests.queue_config import parse_queues

POOL = "default"
amounts = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
weights = st.sampled_from([0.0, 1.0, 1.0, 2.0])
NAMES = ("a", "b", "a1", "a2")


@st.composite
def queue_sets(draw):
    """`a` with `a1` and `a2` in it, and `b`: whatever `queue_config` lets through."""
    written = {}
    for name in NAMES:
        quota = draw(st.one_of(amounts, st.none()))
        limit = draw(st.one_of(st.none(), amounts))
        written[name] = {
            "quota": {"*": quota},
            "limit": {"*": limit},
            "over_quota_weight": draw(weights),
            "priority": draw(st.integers(0, 1)),
        }
        if name in ("a1", "a2"):
            written[name]["parent"] = "a"
    kept = [name for name in NAMES if name == "a" or draw(st.booleans())]
    try:
        return parse_queues({name: written[name] for name in kept}, (), int, int)
    except ValueError:
        assume(False)


demands = st.dictionaries(st.sampled_from(NAMES[1:]), st.floats(0, 6), max_size=3)
capacities = st.sampled_from([0.0, 1.0, 4.0, 8.0])


def shares_of(queues, demand, capacity):
    tree = Tree(queues)
    demand = {name: amount for name, amount in demand.items() if tree.is_leaf(name)}
    return tree, demand, fair_shares(tree, POOL, demand, capacity)


def wanted(tree, queue, demand):
    below = tree.children.get(queue.name)
    amount = demand.get(queue.name, 0.0) if below is None else sum(wanted(tree, child, demand) for child in below)
    limit = queue.limit_in(POOL)
    return amount if limit is None else min(amount, limit)


@given(queue_sets(), demands, capacities)
def test_a_queue_is_owed_its_quota_as_far_as_it_asks_and_never_more_than_it_asks_or_may_have(
    queues, demand, capacity
) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    for queue in tree.queues.values():
        quota, most = queue.quota_in(POOL), wanted(tree, queue, demand)
        assert shares[queue.name] <= most + 1e-6
        if queue.parent is None:
            assert shares[queue.name] >= min(most, most if quota is None else quota) - 1e-6


@given(queue_sets(), demands, capacities)
def test_shares_are_no_more_than_there_is_unless_quotas_are(queues, demand, capacity) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    top = tree.children[None]
    owed = sum(min(wanted(tree, q, demand), m if (m := q.quota_in(POOL)) is not None else float("inf")) for q in top)
    assert sum(shares[queue.name] for queue in top) <= max(capacity, owed) + 1e-6


@given(queue_sets(), demands, capacities)
def test_nothing_is_left_over_while_a_queue_with_a_weight_wants_it(queues, demand, capacity) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    top = tree.children[None]
    if sum(shares[queue.name] for queue in top) < capacity - 1e-6:
        for queue in top:
            if queue.weight_in(POOL) > 0:
                assert shares[queue.name] >= wanted(tree, queue, demand) - 1e-6


@given(queue_sets(), demands, capacities, st.dictionaries(st.sampled_from(NAMES[1:]), st.floats(0, 100)))
def test_queues_that_want_more_in_vain_change_no_share_by_wanting_still_more(queues, demand, capacity, more) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    leaves = [name for name in tree.queues if tree.is_leaf(name)]
    vain = {name for name in leaves if wants_in_vain(tree, name, POOL, demand, shares)}
    still_more = {name: demand.get(name, 0.0) + (more.get(name, 0.0) if name in vain else 0.0) for name in leaves}
    assert fair_shares(tree, POOL, still_more, capacity) == shares


@given(queue_sets(), demands, capacities, st.randoms())
def test_the_order_in_the_configuration_changes_no_share(queues, demand, capacity, chance) -> None:
    mixed = list(queues)
    chance.shuffle(mixed)
    one, other = shares_of(queues, demand, capacity)[2], shares_of(tuple(mixed), demand, capacity)[2]
    assert one == pytest.approx(other, abs=1e-6)


@given(st.floats(0.5, 4), st.floats(0.5, 4))
def test_what_is_over_quota_is_divided_by_weight(first, second) -> None:
    queues = tuple(Queue(name, over_quota_weight={POOL: w}) for name, w in (("b", first), ("c", second)))
    shares = fair_shares(Tree(queues), POOL, {"b": 100.0, "c": 100.0}, 8.0)
    assert shares["b"] / shares["c"] == pytest.approx(first / second)
    assert shares["b"] + shares["c"] == pytest.approx(8.0)
