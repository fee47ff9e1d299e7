"""Who may use which queue, with which priority, and what an admitted workload may become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.requests.queue_access import Who, check_growth, check_limits
from nls_scheduler.requests.submission import Defaults, respecification, submission
from nls_scheduler.wire.errors import Problem

GPUS = [Gpu(GpuUuid("a"), 0, "Test", 16 * GIB)]
POLICY = Policy(
    queues=(
        Queue("research"),
        Queue("physics", parent="research", uids=(1000,), max_priority=50),
        Queue("biology", parent="research", gids=(7,)),
        Queue("open"),
    )
)


def submit(who: Who, policy: Policy = POLICY, **body: Any) -> WorkloadSpec:
    return submission({"kind": "command", **body}, who.uid, GPUS, Defaults(), (), policy, who)


def test_who_names_no_queue_is_in_the_first_one_that_names_them() -> None:
    assert submit(Who(1000)).queue == "physics"
    assert submit(Who(2, frozenset({7}))).queue == "biology"
    assert submit(Who(2)).queue == "default"
    assert submit(Who(2), queue="open").queue == "open"
    assert submit(Who(1000), Policy()).queue == "default"


def test_what_the_limits_of_a_queue_can_never_hold_is_refused_with_the_most_that_it_may_have() -> None:
    above, below = Queue("above", limit={"default": 2.0}), Queue("below", parent="above", limit={"default": 3.0})
    node = SimulatedNode.of(4, policy=Policy(queues=(above, below)))
    spec = WorkloadSpec("w", Kind.COMMAND, 1000, 16 * GIB, 16 * GIB, queue="below")
    for fits in ({"gpu_count": 2}, {"gpu_count": 1, "gpu_count_max": 4}, {"gpu_count": 4, "queue": "default"}):
        check_limits(node.state, replace(spec, **fits))
    with pytest.raises(Problem, match="It takes 3 GPUs of pool 'default' at once, and queue 'above' may have 2 at"):
        check_limits(node.state, replace(spec, gpu_count=3))
    member = replace(spec, gang="red", gang_size=3, request_bytes=8 * GIB)
    check_limits(node.state, member)
    node.submit(kind=Kind.COMMAND, gang="red", gang_size=3, queue="below")
    check_limits(node.state, member)
    with pytest.raises(Problem, match=r"Gang red takes 2\.5 GPUs"):
        check_limits(node.state, replace(member, gpu_count=3))


def test_one_that_is_not_preemptible_is_refused_where_the_quota_can_never_hold_it() -> None:
    node = SimulatedNode.of(4, policy=Policy(queues=(Queue("a", quota={"default": 1.0}, limit={"default": 3.0}),)))
    spec = WorkloadSpec("w", Kind.COMMAND, 1000, 16 * GIB, 16 * GIB, queue="a", priority=100)
    check_limits(node.state, spec)
    check_limits(node.state, replace(spec, gpu_count=2, priority=99))
    with pytest.raises(Problem, match="With priority 100 it is not preemptible, which only a quota allows: queue 'a'"):
        check_limits(node.state, replace(spec, gpu_count=2))


def test_a_gang_counts_by_what_the_limits_of_all_its_pools_can_hold() -> None:
    queues = (Queue("a", limit={"x": 1.0, "y": 0.5}), Queue("b"))
    policy = Policy(pools=(Pool("x", ("0", "1")), Pool("y", ("2", "3"))), queues=queues)
    node = SimulatedNode.of(4, policy=policy)
    spec = WorkloadSpec("w", Kind.COMMAND, 0, 8 * GIB, 8 * GIB, queue="a", pools=("x", "y"), gang="red", gang_size=3)
    check_limits(node.state, spec)
    with pytest.raises(Problem, match=r"Gang red takes 2 GPUs of pool 'x' .*; gang red takes 2 GPUs of pool 'y'"):
        check_limits(node.state, replace(spec, gang_size=4))
    whole = {"kind": Kind.COMMAND, "owner": 0, "request_bytes": 16 * GIB, "pools": spec.pools}
    node.submit(**whole, queue="a", gang="mixed", gang_size=2)
    check_limits(node.state, replace(spec, gang="mixed", gang_size=2))


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"queue": "biology"}, 403, "'biology' is for other users"),
        ({"queue": "research"}, 422, "'research' has queues in it: choose from physics, biology, open, default"),
        ({"queue": "nobody"}, 422, "'nobody' is not on this node: choose from "),
        ({"queue": 3}, 400, "the name of a queue"),
        ({"priority": "build"}, 403, "at most 50 (train), not 100"),
        ({"priority": "urgent"}, 400, "or one of train, build, inference"),
        ({"priority": True}, 400, "'priority' is a whole number"),
    ],
)
def test_a_refusal_says_what_there_is_instead(body: dict[str, Any], status: int, says: str) -> None:
    with pytest.raises(Problem) as caught:
        submit(Who(1000), **body)
    assert caught.value.status == status
    assert says in caught.value.detail


def test_an_administrator_may_use_every_queue_and_every_priority() -> None:
    boss = Who(0, administrator=True)
    assert submit(boss, queue="physics", priority="inference").priority == 125
    spec = submit(Who(1000))
    assert respecification({"priority": 100}, spec, GPUS, POLICY, boss).priority == 100
    with pytest.raises(Problem, match="at most 50"):
        respecification({"priority": 100}, spec, GPUS, POLICY, Who(1000))
    assert respecification({"name": "other"}, replace(spec, priority=100), GPUS, POLICY, Who(1000)).priority == 100


@pytest.mark.parametrize(
    "change", [{"request_bytes": 16 * GIB, "limit_bytes": 16 * GIB}, {"priority": 100}, {"queue": "b"}]
)
def test_an_admitted_workload_cannot_grow_past_what_its_queue_would_admit(change: dict[str, Any]) -> None:
    queues = (Queue("a", quota={"default": 0.25}, limit={"default": 0.5}), Queue("b", limit={"default": 0.25}))
    node = SimulatedNode.of(1, 16 * GIB, Policy(queues=queues))
    node.submit(kind=Kind.COMMAND, request_bytes=8 * GIB, limit_bytes=8 * GIB, queue="a")
    node.submit(kind=Kind.COMMAND, request_bytes=8 * GIB, limit_bytes=8 * GIB, queue="a")
    admitted, waiting = node.state.workloads.values()
    assert (bool(admitted.home), bool(waiting.home)) == (True, False)
    with pytest.raises(Problem, match="The change is refused and nothing is changed: "):
        check_growth(node.state, admitted, replace(admitted.spec, **change))
    check_growth(node.state, waiting, replace(waiting.spec, **change))
    check_growth(node.state, admitted, replace(admitted.spec, name="other", priority=50))
