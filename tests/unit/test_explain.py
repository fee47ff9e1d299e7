"""What `nls explain` says, of nodes that the real `step` made."""

from __future__ import annotations

from typing import Any

from connections import sliced
from nls_scheduler.cli.explain import render
from nls_scheduler.core.model.events import FreezeTested, GpusClaimed
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.views.explain import explain
from nls_scheduler.views.veil import Viewer
from stage import TOTAL, Stage


def told(stage: Stage, name: str) -> dict[str, Any]:
    return explain(stage.node.state, stage.workload(name).id, stage.node.now)


def test_who_waits_reads_why_not_on_each_gpu_who_is_in_front_and_what_would_fit() -> None:
    stage = Stage(2)
    stage.command("half", 0.5)
    stage.command("whole", 1.0)
    stage.command("first", 1.0)
    stage.after(5)
    stage.command("second", 0.75)
    waiting = told(stage, "second")
    assert [gpu["why_not_home"] for gpu in waiting["gpus"]] == [
        "8 GiB are free on paper, and it asks for 12 GiB",
        "0 B are free on paper, and it asks for 12 GiB",
    ]
    assert [gpu["why_not_now"] for gpu in waiting["gpus"]] == [
        "8 GiB are free in fact, and it needs 12 GiB",
        "0 B are free in fact, and it needs 12 GiB",
    ]
    assert [other["name"] for other in waiting["ahead"]] == ["first"]
    assert waiting["advice"] == ["There is room for a request of 8 GiB now."]
    assert waiting["reason"] in waiting["steps"][-1]
    text = render(waiting)
    assert "In front of it: first." in text
    assert "12 GiB guaranteed" in text


def test_a_gpu_of_another_pool_or_of_one_that_is_off_is_named_as_such() -> None:
    stage = Stage(3, pools=(Pool("other", ("1",)), Pool("off", ("2",), enabled=False)))
    stage.command("train", pools=("default", "off"))
    assert [gpu["why_not_home"] for gpu in told(stage, "train")["gpus"]] == [
        None,
        "it is in the pool 'other', which it does not ask for",
        "the pool 'off' is off",
    ]


def test_who_needs_several_gpus_reads_that_it_has_no_slice() -> None:
    stage = Stage(4, sliced(2, 3))
    stage.command("train", gpu_count=2)
    slices = [gpu["why_not_home"] for gpu in told(stage, "train")["gpus"]][2:]
    assert slices == ["it is a slice, and who needs several GPUs has whole ones only"] * 2


def test_who_may_not_burst_reads_that_it_cannot_be_anywhere_but_at_home() -> None:
    stage = Stage(2)
    stage.notebook("fixed", 0.5, 0.5)
    assert [gpu["why_not_place"] for gpu in told(stage, "fixed")["gpus"]] == [
        None,
        "it is not its home, and only one that may burst and move can borrow",
    ]


def test_who_runs_is_not_in_its_own_way() -> None:
    stage = Stage(1)
    stage.command("train")
    (gpu,) = told(stage, "train")["gpus"]
    assert (gpu["why_not_home"], gpu["why_not_place"], gpu["why_not_now"]) == (None, None, None)


def test_no_room_is_told_of_a_gpu_that_is_out_of_service() -> None:
    stage = Stage(2)
    stage.command("train")
    for index in (0, 1):
        stage.health(index, healthy=False)
    assert [gpu["why_not_now"] for gpu in told(stage, "train")["gpus"]] == ["it is unhealthy"] * 2


def test_who_waits_for_a_pool_that_takes_nobody_reads_what_helps() -> None:
    stage = Stage(1)
    stage.changes(pools=(Pool("empty", ("7",)), Pool("off", ("0",), enabled=False)))
    for pool, helps in (("empty", "have it name one that is in service"), ("off", "turn it on")):
        stage.command(pool, pools=(pool,))
        assert told(stage, pool)["advice"] == [f"Ask for another pool, or have the administrator {helps}."]


def test_the_queue_that_keeps_a_workload_out_is_named_with_its_figures() -> None:
    stage = Stage(2, queues=(Queue("a", quota={"default": 1.0}), Queue("b", parent="c"), Queue("c")))
    stage.command("firm", queue="a", priority=125)
    stage.command("too much", queue="a", priority=125)
    waiting = told(stage, "too much")
    assert waiting["queue"]["chain"][0] | {"over_quota_weight": 1.0} == {
        "name": "a",
        "pool": "default",
        "quota": 1.0,
        "limit": None,
        "over_quota_weight": 1.0,
        "fair_share": 2.0,
        "used": 1.0,
        "requested": 2.0,
    }
    assert all("which only a quota allows" in gpu["why_not_home"] for gpu in waiting["gpus"])
    assert "A priority below 100 may go over quota." in waiting["advice"][0]
    text = render(waiting)
    assert "priority 125 (inference), not preemptible" in text
    assert "FAIR SHARE" in text
    stage.command("nested", queue="b")
    assert [level["name"] for level in told(stage, "nested")["queue"]["chain"]] == ["b", "c"]


def test_who_must_leave_reads_until_when() -> None:
    stage = Stage(1, queues=(Queue("a"), Queue("b", quota={"default": 1.0})))
    stage.command("training", queue="a")
    stage.command("owner", queue="b")
    stage.after(8)
    leaving = told(stage, "training")
    assert "A guarantee waits for it to leave: it is stopped in 20 s at the latest." in leaving["steps"]
    assert "It has to leave GPU 0." in leaving["steps"]
    assert told(stage, "owner")["advice"] == ["Its place is free in 22 s at the latest."]
    later = explain(stage.node.state, stage.workload("owner").id, stage.node.now + 5)
    assert later["advice"] == ["Its place is free in 17 s at the latest."]


def test_a_place_is_free_when_the_last_has_left_who_has_to() -> None:
    stage = Stage(1, reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0)
    for name in ("alice", "bob"):
        stage.notebook(name, 0.125)
        stage.cell_starts(name)
    stage.node.deaf = True
    stage.holds("alice", 0.6)
    stage.holds("bob", 0.25)
    stage.command("owner", 0.7)
    stage.after(22)
    stage.allocates("bob", 0.375)
    assert [stage.plan(name).deadline_at for name in ("alice", "bob")] == [28.0, 32.0]
    assert stage.cause("owner") == "alice"
    assert told(stage, "owner")["advice"] == ["Its place is free in 12 s at the latest."]


def test_other_users_names_stay_hidden() -> None:
    stage = Stage(1)
    stage.command("their-secret", owner=1001)
    stage.command("also-secret", owner=1001)
    stage.command("mine", owner=1000)
    seen = explain(stage.node.state, stage.workload("mine").id, stage.node.now, Viewer(1000))
    assert "secret" not in str(seen)
    assert seen["name"] == "mine"
    assert seen["ahead"][0]["name"] == "another user's command"


def test_who_can_never_be_held_by_its_queue_is_not_told_to_wait_for_others() -> None:
    stage = Stage(4, queues=(Queue("a", limit={"default": 2.0}),))
    stage.command("large", queue="a", gpu_count=3)
    assert told(stage, "large")["advice"] == ["Ask for less, or name another queue."]


def a_cell_that_has_to_leave() -> Stage:
    """bob's cell, within his request on GPU 1, for a command at home there."""
    stage = Stage(
        2, freeze_cells=True, reclaim_deadline_s=30.0, stop_grace_s=2.0, interrupt_grace_s=10.0, freeze_timeout_s=8.0
    )
    stage.node.freezes = True
    for name in ("alice", "bob"):
        stage.notebook(name)
        stage.cell_starts(name)
        stage.allocates(name, 0.4)
    stage.command("training")
    return stage


def test_who_has_to_leave_reads_when_its_cell_is_made_to_stand_still_or_why_it_cannot_be() -> None:
    stage = a_cell_that_has_to_leave()
    assert "Its cell is made to stand still in 10 s, and goes on later where it is." in told(stage, "bob")["steps"]
    stage.node.tell(FreezeTested(stage.node.now, stage.workload("bob").id, "its GPU is shared by MPS"))
    assert "Its cell cannot be made to stand still: its GPU is shared by MPS." in told(stage, "bob")["steps"]


def test_whose_cell_stands_still_reads_where_alone_it_goes_on() -> None:
    stage = a_cell_that_has_to_leave()
    stage.after(11)
    bob = told(stage, "bob")
    assert bob["steps"][-1].startswith(
        "So: its running cell stands still for training, in host memory, until GPU 1 takes it back: "
    )
    assert bob["gpus"][0]["why_not_place"] == "its cell stands still, and can go on only where it was"
    assert bob["advice"] == ["Its cell goes on when GPU 1 has room: nowhere else can it."]
    stage.ends("bob")
    ends = "Its process stands still: it goes on when GPU 1 has room for it, and is ended then."
    assert told(stage, "bob")["steps"][-1] == ends


def test_where_nothing_is_free_a_request_within_its_queues_share_is_named() -> None:
    stage = Stage(2, queues=(Queue("ours", quota={"default": 1.0}), Queue("theirs", quota={"default": 1.0})))
    for name in ("one", "two", "three", "four"):
        stage.notebook(name, 0.5, 0.5, queue="theirs")
    stage.command("first", 0.5, queue="ours")
    stage.command("second", 1.0, queue="ours")
    assert told(stage, "second")["advice"] == [
        "Its queue is owed 8 GiB more: a request of that much gets it from others."
    ]
    stage.command("third", 1.0, queue="theirs")
    assert told(stage, "third")["advice"] == ["Nothing is free on paper: something has to end first."]


def test_who_has_more_than_the_share_of_its_queue_reads_that_it_may_be_taken_back() -> None:
    stage = Stage(
        2, queues=(Queue("ours", quota={"default": 1.0}), Queue("theirs", over_quota_weight={"default": 0.0}))
    )
    stage.command("lent", 1.0, queue="theirs", requeue=True)
    stage.command("owed", 1.0, queue="ours")
    lent = "Its queue 'theirs' has 1, and a fair share of 0 GPUs: others may take back what is above."
    assert told(stage, "lent")["steps"][2] == lent
    assert not [step for step in told(stage, "owed")["steps"] if "fair share" in step]


def test_room_that_is_kept_for_another_is_not_offered_for_a_smaller_request() -> None:
    stage = Stage(2, starvation_s=60.0)
    for name in ("first", "second"):
        stage.command(name, 0.75)
    stage.command("whole", gpu_count=2)
    stage.after(10)
    stage.command("small", 0.5)
    assert told(stage, "small")["advice"] == ["There is room for a request of 4 GiB now."]
    stage.after(60)
    assert told(stage, "small")["advice"] == []


def test_a_larger_request_is_named_where_the_queue_lets_it_have_that_and_no_gpu_is_too_small() -> None:
    for quota, limit, firm, helps in ((1.0, None, True, True), (0.25, None, True, False), (0.25, 0.25, False, False)):
        queue = Queue("lab", quota={"default": quota}, limit={} if limit is None else {"default": limit})
        stage = Stage(1, queues=(queue,))
        stage.notebook("alice", 0.25, queue="lab", priority=100 if firm else 0)
        stage.holds("alice", 0.6)
        stage.user_suspends("alice")
        stage.command("bob", 0.7)
        stage.cell_starts("alice")
        assert not stage.runs("alice")
        larger = "With a request of 9.6 GiB, once there is room for that, it need not wait for others' burst."
        assert told(stage, "alice")["advice"] == ([larger] if helps else [])


def test_where_more_is_promised_than_there_is_the_numbers_say_why_there_is_no_room_on_paper() -> None:
    stage = Stage(1, oversubscribe=2.0)
    stage.notebook("alice", 0.75)
    stage.command("small", 0.125)
    stage.command("late", 0.5)
    stage.notebook("bob", 1.0)
    why = {name: told(stage, name)["gpus"][0]["why_not_home"] for name in ("late", "bob")}
    assert why == {
        "late": "those who cannot take turns and the largest of the others would not fit there together",
        "bob": "those who cannot take turns and the largest of the others would not fit there together",
    }
    stage.notebook("carol", 0.5)
    assert told(stage, "late")["gpus"][0]["why_not_home"] == (
        "8 GiB are free on paper, and it asks for 8 GiB, which counts as 16 GiB there"
    )


def test_a_gpu_beside_a_process_that_nobody_placed_and_one_of_a_pod_read_so() -> None:
    stage = Stage(2)
    stage.notebook("alice")
    stage.user_suspends("alice")
    stage.node.strangers[stage.uuid(1)] = TOTAL // 16
    stage.node.sample()
    assert told(stage, "alice")["gpus"][1]["why_not_now"] == "processes that nobody placed use it"
    owner = Owner("pod", "pod", gpus=(stage.uuid(1),), request_bytes=TOTAL // 4)
    stage.node.tell(GpusClaimed(stage.node.now, Claims((owner,))))
    assert told(stage, "alice")["gpus"][1]["why_not_place"] == "a pod of the cluster's has a right to it"
