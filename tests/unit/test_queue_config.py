from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.daemon.config import load
from nls_scheduler.requests.queue_config import NOBODY_S_ID, complaint, parse_queues

if TYPE_CHECKING:
    from nls_scheduler.core.model.queues import Queue

POOLS = (Pool("v100", ("Tesla V100*",)),)


def parse(**written: Any) -> tuple[Queue, ...]:
    return parse_queues(written, POOLS, int, int)


def test_amounts_are_by_pool_and_a_number_alone_is_for_the_pool_default() -> None:
    plain, by_pool, free = parse(
        plain={"quota": 2, "limit": 3},
        by_pool={"quota": {"v100": 10, "*": 1}, "limit": -1, "over_quota_weight": 2},
        free={"quota": None, "max_priority": "train"},
    )
    assert [plain.quota_in("default"), plain.quota_in("v100"), plain.limit_in("v100")] == [2.0, 0.0, None]
    assert [by_pool.quota_in("v100"), by_pool.quota_in("default"), by_pool.limit_in("v100")] == [10.0, 1.0, None]
    assert [by_pool.weight_in("v100"), plain.weight_in("v100")] == [2.0, 1.0]
    assert [free.quota_in("default"), free.quota_in("v100"), free.max_priority] == [None, None, 50]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"a": {"parent": "b"}, "b": {"parent": "a"}}, "in a circle: 'a' in 'b' in 'a'"),
        ({"a": {"parent": "a"}}, "in a circle: 'a' in 'a'"),
        ({"a": {"parent": "nobody"}}, "the parent 'nobody', which is not configured"),
        ({"a": {"parent": 3}}, "write the name of another queue"),
        ({"a": {"parent": "default"}}, "which is for the rest"),
        ({"a": {"quota": 3, "limit": 2}}, "a quota of 3 above its limit of 2 in the pool 'default'"),
        ({"a": {"quota": None, "limit": 2}}, "a quota of unlimited above its limit of 2"),
        ({"a": {"quota": -2}}, "GPUs from 0 on"),
        ({"a": {"quota": "many"}}, "GPUs from 0 on"),
        ({"a": {"quota": float("nan")}}, "GPUs from 0 on"),
        ({"a": {"quota": True}}, "GPUs from 0 on"),
        ({"a": {"over_quota_weight": None}}, "a number of 0 or more"),
        ({"a": {"quota": {"h100": 1}}}, "for the pool 'h100': there are v100, default, *"),
        ({"a": {"quota": 1}, "b": {"parent": "a", "quota": 2}}, "raise it, or lower theirs"),
        ({"a": {"quota": 1}, "b": {"parent": "a", "quota": None}}, "quotas of unlimited GPUs together"),
        ({"a": {"users": [1]}, "b": {"parent": "a"}}, "give users and groups to those"),
        ({"a": {"users": "me"}}, "write a list"),
        ({"a": {"priority": "highest"}}, "or one of train, build, inference"),
        ({"a": {"share": 1}}, "no rule 'share': there are parent"),
        ({"a": 2}, "needs its rules as a dictionary"),
        ({"": {}}, "A queue's name"),
    ],
)
def test_what_cannot_be_used_is_refused_with_one_sentence(written: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r"^The |^A ") as caught:
        parse_queues(written, POOLS, int, int)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_weight_of_zero_is_a_choice_and_quotas_beyond_the_node_are_told() -> None:
    queues = parse(a={"over_quota_weight": 0, "quota": 2}, b={"quota": 2})
    gpus = [Gpu(GpuUuid(str(n)), n, "Simulated GPU", 1) for n in range(3)]
    assert queues[0].weight_in("default") == 0.0
    told = complaint(Policy(queues=queues), gpus)
    assert told is not None
    assert "'default' are 4 GPUs together, and this node has 3" in told
    assert complaint(Policy(queues=queues), [*gpus, Gpu(GpuUuid("3"), 3, "Simulated GPU", 1)]) is None
    assert complaint(Policy(), gpus) is None


def test_users_and_groups_are_looked_up_and_unknown_ones_let_nobody_in_and_are_told() -> None:
    queues = load([f"queues={{'a': {{'users': ['root', {os.getuid()}], 'groups': ['root']}}}}"], []).policy.queues
    assert queues[0].uids == (0, os.getuid())
    assert queues[0].gids == (0,)
    for rule in ("users", "groups"):
        policy = load([f"queues={{'a': {{'{rule}': ['nobody-has-this-name']}}}}"], []).policy
        assert policy.queues[0].uids + policy.queues[0].gids == (NOBODY_S_ID,)
        told = complaint(policy, [])
        assert told == f"The queue 'a' names {rule} that this machine does not have: nobody is let in by them."
