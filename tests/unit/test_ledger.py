"""Who is admitted, whose turn it is and who has to give: the ledger of one round, on its own and in the whole."""

from __future__ import annotations

from dataclasses import replace

from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.core.planning.homes.queue_ledger import Ledger
from stage import TOTAL, Stage

POOL = "default"
HOME = (GpuUuid("GPU-0"),)
PLAIN = WorkloadSpec("w", Kind.COMMAND, 1000, TOTAL, TOTAL, requeue=True)


def queue(name: str, quota: float = 0.0, **rules: object) -> Queue:
    return Queue(name, quota={POOL: quota}, **rules)  # type: ignore[arg-type]


def node(*queues: Queue, gpus: int = 4, broken: int = 0, pools: tuple[Pool, ...] = ()) -> NodeState:
    there = [Gpu(GpuUuid(f"GPU-{n}"), n, "Gpu", TOTAL, healthy=n >= broken) for n in range(gpus)]
    return NodeState(policy=Policy(queues=queues, pools=pools), gpus={gpu.uuid: gpu for gpu in there})


def workload(name: str, **wanted: object) -> Workload:
    """A command of a whole Gpu in the queue of its first letter."""
    return Workload(WorkloadId(name), replace(PLAIN, name=name, queue=name[0], **wanted), 0.0)  # type: ignore[arg-type]


def turns(state: NodeState, having: str, waiting: str) -> list[str]:
    """In which order those who wait are looked at; each word is a workload."""
    ledger = Ledger(state)
    have, wait = ([workload(name) for name in names.split()] for names in (having, waiting))
    ledger.ask([*have, *wait], {w.id: (GpuUuid("GPU-0"),) for w in have})
    for each in have:
        ledger.count(each, HOME)
    return [w.id for w in ledger.in_turn(wait)]


def test_a_queue_above_its_fair_share_comes_after_all_others_whatever_its_priority() -> None:
    state = node(queue("a", priority=1), queue("b"), queue("c"))
    # All that is over quota is owed to a, for its priority: b has had some of it.
    assert turns(node(queue("a"), queue("b", priority=1)), "a1 a2 b1", "b2 b3 a3")[:2] == ["b2", "b3"]
    assert turns(state, "b1", "b2 a1 a2 a3 a4")[:4] == ["a1", "a2", "a3", "a4"]
    without_weight = node(queue("a", 1.0, priority=1, over_quota_weight={POOL: 0.0}), queue("b"))
    assert turns(without_weight, "a1 a2", "a3 b1 b2") == ["b1", "b2", "a3"]


def test_a_queue_within_its_quota_comes_before_one_beyond_whatever_its_priority() -> None:
    assert turns(node(queue("a", 2.0), queue("b", 1.0, priority=1)), "b1 a1", "b2 a2")[0] == "a2"


def test_of_two_queues_alike_the_one_of_higher_priority_comes_first() -> None:
    assert turns(node(queue("a", 2.0), queue("b", 2.0, priority=1)), "b1", "a1 b2")[0] == "b2"


def test_whoever_has_the_smaller_part_of_its_share_comes_first() -> None:
    assert turns(node(queue("a", 2.0), queue("b", 2.0)), "a1", "a2 b1 b2")[0] == "b1"
    assert turns(node(queue("a", 3.0), queue("b", 1.0), gpus=8), "a1", "b1 a2 a3")[0] == "a2"


def test_inside_a_queue_the_order_that_was_given_stands() -> None:
    assert turns(node(queue("a")), "", "a1 a2 a3") == ["a1", "a2", "a3"]


def test_who_has_a_home_asks_for_it_in_its_pool_only_and_who_waits_in_each_of_its_pools() -> None:
    state = node(queue("a"), pools=(Pool("second", ("3",)),))
    ledger = Ledger(state)
    both = {"pools": (POOL, "second")}
    ledger.ask([workload("a1", **both), workload("a2", **both)], {WorkloadId("a1"): (GpuUuid("GPU-0"),)})
    assert (ledger.asked("a", POOL), ledger.asked("a", "second")) == (2.0, 1.0)


def test_a_gpu_out_of_service_is_not_shared_out_and_several_gpus_count_as_many() -> None:
    ledger = Ledger(node(queue("a"), broken=1))
    assert ledger.capacity == {POOL: 3.0}
    assert ledger.demand(replace(PLAIN, gpu_count=2, request_bytes=TOTAL // 4), POOL) == 0.5


def test_only_what_is_not_preemptible_counts_against_the_quota_for_that() -> None:
    stage = Stage(2, queues=(queue("a", 1.0),))
    stage.command("soft", queue="a")
    stage.command("firm", queue="a", priority=100)
    assert stage.runs("soft", "firm")


def test_three_tenths_are_no_more_than_three_tenths() -> None:
    state = node(queue("a", limit={POOL: 0.3}), gpus=1)
    ten = {uuid: replace(gpu, memory_total_bytes=10) for uuid, gpu in state.gpus.items()}
    ledger = Ledger(replace(state, gpus=ten))
    tenths = [workload(f"a{n}", request_bytes=1, limit_bytes=1) for n in range(4)]
    for each in tenths[:2]:
        ledger.count(each, HOME)
    assert ledger.obstacle(tenths[2], POOL) is None
    ledger.count(tenths[2], HOME)
    assert ledger.obstacle(tenths[3], POOL) is not None


def test_a_limit_above_holds_for_all_below_together() -> None:
    stage = Stage(3, queues=(Queue("p", limit={POOL: 1.0}), Queue("a", "p"), Queue("b", "p")))
    stage.command("a0", queue="a")
    stage.command("b0", queue="b")
    assert stage.runs("a0")
    assert stage.phase("b0") == "queued"
    limit = Why(Reason.QUEUE_LIMIT, numbers=(1, 1), names=("p", POOL))
    assert stage.reason("b0") == Why(Reason.HELD_BACK, because=(limit,))


def test_who_would_be_above_its_share_takes_nothing_back() -> None:
    ledger = Ledger(node(queue("a"), queue("b")))
    having, newcomer = [workload(name) for name in ("a1", "a2", "a3", "b1", "b2")], workload("b3")
    ledger.ask([*having, newcomer], {w.id: (GpuUuid("GPU-0"),) for w in having})
    for each in having:
        ledger.count(each, HOME)
    assert (ledger.fair("a", POOL), ledger.fair("b", POOL)) == (2.0, 2.0)
    assert not ledger.may_displace(newcomer, having[0], POOL, 1.0)
    ledger.count(having[-1], HOME, -1)
    assert ledger.may_displace(newcomer, having[0], POOL, 1.0)


def test_who_is_within_its_share_gives_nothing_although_it_would_be_harmed_less() -> None:
    weightless = {POOL: 0.0}
    stage = Stage(4, queues=(queue("a", 2.0), queue("b", 2.0), queue("c", over_quota_weight=weightless)))
    for name, priority in (("a0", 0), ("a1", 0), ("b0", 0), ("c0", 50)):
        stage.command(name, queue=name[0], priority=priority, requeue=True)
    stage.command("b1", queue="b", requeue=True)
    assert stage.runs("a0", "a1", "b0", "b1")
    assert stage.phase("c0") == "queued"
