"""Fair shares by example, and which queue a workload counts in."""

from __future__ import annotations

import pytest

from nls_scheduler.core.model.queues import FIRM_FROM, Queue, Tree, fair_shares

POOL = "default"


def queue(name: str, parent: str | None = None, **rules: object) -> Queue:
    amounts = {key: {POOL: value} for key, value in rules.items() if key != "priority"}
    return Queue(name, parent, priority=rules.get("priority", 0), **amounts)  # type: ignore[arg-type]


CASES = {
    "alike": ((queue("a"), queue("b")), {"a": 9, "b": 9}, 8, {"a": 4, "b": 4}),
    "who asks for less leaves the rest": (
        (queue("a"), queue("b"), queue("c")),
        {"a": 1, "b": 9, "c": 9},
        9,
        {"a": 1, "b": 4, "c": 4},
    ),
    "by weight": (
        (queue("a", over_quota_weight=3.0), queue("b")),
        {"a": 9, "b": 9},
        8,
        {"a": 6, "b": 2},
    ),
    "by weight, and no more than it asks for": (
        (queue("a", over_quota_weight=2.0), queue("b")),
        {"a": 3, "b": 9},
        6,
        {"a": 3, "b": 3},
    ),
    "without a weight no part": (
        (queue("a", over_quota_weight=0.0, quota=1.0), queue("b")),
        {"a": 9, "b": 3},
        8,
        {"a": 1, "b": 3},
    ),
    "the higher priority first": ((queue("a"), queue("b", priority=1)), {"a": 3, "b": 3}, 4, {"a": 1, "b": 3}),
    "quotas before all that": (
        (queue("a", quota=3.0), queue("b", priority=1)),
        {"a": 9, "b": 9},
        4,
        {"a": 3, "b": 1},
    ),
    "a quota as far as it is asked for": ((queue("a", quota=3.0), queue("b")), {"a": 1, "b": 9}, 4, {"a": 1, "b": 3}),
    "a quota without a bound": ((queue("a", quota=None), queue("b")), {"a": 3, "b": 9}, 4, {"a": 3, "b": 1}),
    "never beyond the limit": ((queue("a", limit=1.0), queue("b")), {"a": 9, "b": 9}, 8, {"a": 1, "b": 7}),
    "quotas also beyond what there is": (
        (queue("a", quota=3.0), queue("b", quota=3.0)),
        {"a": 9, "b": 9},
        4,
        {"a": 3, "b": 3},
    ),
    "a parent asks for all in it, and they share its part": (
        (queue("p"), queue("a", "p"), queue("b", "p", over_quota_weight=3.0), queue("q")),
        {"a": 4, "b": 4, "q": 9},
        8,
        {"p": 4, "a": 1, "b": 3, "q": 4},
    ),
    "a parent asks for what all in it ask for together": (
        (queue("p"), queue("a", "p"), queue("b", "p"), queue("q")),
        {"a": 2, "b": 2, "q": 9},
        8,
        {"p": 4, "a": 2, "b": 2, "q": 4},
    ),
    "a parent's limit bounds all in it": (
        (queue("p", limit=2.0), queue("a", "p"), queue("b", "p"), queue("q")),
        {"a": 4, "b": 4, "q": 9},
        8,
        {"p": 2, "a": 1, "b": 1, "q": 6},
    ),
}


@pytest.mark.parametrize(("queues", "demand", "capacity", "expected"), CASES.values(), ids=CASES)
def test_what_each_queue_is_owed(
    queues: tuple[Queue, ...], demand: dict[str, float], capacity: float, expected: dict[str, float]
) -> None:
    shares = fair_shares(Tree(queues), POOL, demand, capacity)
    assert {name: shares[name] for name in expected} == pytest.approx(expected)


def test_a_workload_counts_in_an_innermost_queue_else_in_the_default_one() -> None:
    tree = Tree((queue("p"), queue("a", "p")))
    assert [tree.leaf(name) for name in ("a", "p", "gone", "default")] == ["a", "default", "default", "default"]
    assert [q.name for q in tree.chain("a")] == ["a", "p"]


def test_two_queues_are_compared_below_what_they_share() -> None:
    tree = Tree((queue("p"), queue("a", "p"), queue("b", "p"), queue("c")))
    for one, other, mine, theirs in (("a", "b", ["a"], ["b"]), ("a", "c", ["a", "p"], ["c"])):
        assert [[q.name for q in chain] for chain in tree.split(one, other)] == [mine, theirs]


def test_amounts_are_by_pool_with_one_for_all_others() -> None:
    wide = Queue("a", quota={"*": 1.0, "h100": 2.0}, limit={"h100": None}, over_quota_weight={"h100": 3.0})
    assert [wide.quota_in(pool) for pool in ("h100", "other")] == [2.0, 1.0]
    assert [wide.weight_in(pool) for pool in ("h100", "other")] == [3.0, 1.0]
    assert (Queue("b").quota_in("h100"), Queue("b").limit_in("h100")) == (0.0, None)


def test_a_queue_that_names_nobody_is_open_to_all_and_else_to_those_whom_it_names() -> None:
    assert Queue("a").is_open_to(1000, [])
    named = Queue("a", uids=(1,), gids=(7,))
    assert [named.is_open_to(uid, gids) for uid, gids in ((1, []), (2, [7]), (2, [8]))] == [True, True, False]


def test_build_is_the_first_priority_that_is_not_preemptible() -> None:
    assert FIRM_FROM == 100
