from __future__ import annotations

from dataclasses import replace

import pytest

from connections import joined, pairs, sliced
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StopProcess
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.topology import Link
from nls_scheduler.core.simulator import GIB, SimulatedNode
from stage import TOTAL, Stage


def test_two_gpus_are_two_with_nvlink_although_others_are_fuller() -> None:
    stage = Stage(4, pairs((0, 1), (2, 3)))
    stage.command("small", 0.25)
    stage.command("double", 0.5, gpu_count=2)
    assert stage.gpu("small") == 0
    assert stage.gpus("double") == [0, 1]
    stage.command("next", gpu_count=2)
    assert stage.gpus("next") == [2, 3]


@pytest.mark.parametrize("link", [Link.NVLINK, Link.SWITCH, Link.NUMA])
def test_the_closer_pair_wins(link: Link) -> None:
    stage = Stage(4, joined((link, (1, 3))))
    stage.command("double", gpu_count=2)
    assert stage.gpus("double") == [1, 3]


def test_without_nvlink_a_numa_node_is_kept() -> None:
    stage = Stage(4, joined(numa=2))
    stage.command("single")
    stage.command("double", gpu_count=2)
    assert (stage.gpu("single"), stage.gpus("double")) == (0, [2, 3])


def test_an_elastic_command_starts_with_what_there_is() -> None:
    stage = Stage(4)
    stage.command("single")
    stage.command("elastic", gpu_count=2, gpu_count_max=8)
    assert stage.gpus("elastic") == [1, 2, 3]


def test_an_elastic_command_waits_for_its_fewest() -> None:
    stage = Stage(2)
    stage.command("single")
    stage.command("elastic", gpu_count=2, gpu_count_max=4)
    assert stage.phase("elastic") == "queued"
    stage.ends("single")
    assert stage.gpus("elastic") == [0, 1]


def test_an_elastic_command_shrinks_for_a_guarantee_by_a_restart() -> None:
    stage = Stage(4)
    stage.command("elastic", gpu_count=2, gpu_count_max=4, requeue=True)
    assert stage.gpus("elastic") == [0, 1, 2, 3]
    stage.command("single")
    assert stage.runs("elastic", "single")
    assert (stage.gpus("elastic"), stage.gpu("single")) == ([0, 1, 2], 3)
    assert stage.orders("elastic") == ["start", "stop", "start"]
    stop = next(c for _, given in stage.node.history for c in given if type(c).__name__ == "StopProcess")
    assert stop.reason == stage.why(Reason.NEEDED, "single", gpus=[3])


def test_an_elastic_command_never_gives_its_fewest() -> None:
    stage = Stage(3)
    stage.command("elastic", gpu_count=2, gpu_count_max=3, requeue=True)
    stage.command("one")
    stage.command("two")
    assert stage.runs("elastic", "one")
    assert len(stage.gpus("elastic")) == 2
    assert stage.phase("two") == "queued"


def test_an_elastic_command_that_cannot_start_again_keeps_what_it_got() -> None:
    stage = Stage(3)
    stage.command("elastic", gpu_count=1, gpu_count_max=3)
    stage.command("single")
    assert stage.gpus("elastic") == [0, 1, 2]
    assert stage.phase("single") == "queued"
    stage.after(600)
    assert stage.orders("elastic") == ["start"]


def test_an_elastic_command_grows_when_gpus_stay_free() -> None:
    stage = Stage(3, cool_down_s=30.0)
    stage.command("single")
    stage.command("elastic", gpu_count=1, gpu_count_max=3, requeue=True)
    assert stage.gpus("elastic") == [1, 2]
    stage.ends("single")
    stage.after(20)
    assert stage.orders("elastic") == ["start"]
    stage.after(20)
    assert stage.gpus("elastic") == [0, 1, 2]
    assert stage.orders("elastic") == ["start", "stop", "start"]
    stop = [c for _, given in stage.node.history for c in given if isinstance(c, StopProcess)][-1]
    assert stop.grace_s == stage.node.state.policy.reclaim_deadline_s, "nobody waits for it"
    stage.after(600)
    assert stage.orders("elastic") == ["start", "stop", "start"]


def test_a_gpu_that_was_free_for_a_moment_makes_nobody_start_again() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.command("one")
    stage.command("elastic", gpu_count=1, gpu_count_max=2, requeue=True)
    for number in range(3):
        stage.after(100)
        stage.ends("one" if number == 0 else f"one-{number}")
        stage.after(20)
        stage.command(f"one-{number + 1}")
    assert stage.orders("elastic") == ["start"]


def test_an_elastic_command_takes_what_there_is_although_a_larger_one_waits() -> None:
    stage = Stage(4)
    stage.command("single")
    stage.command("large", gpu_count=4)
    stage.command("elastic", gpu_count=1, gpu_count_max=3)
    assert stage.gpus("elastic") == [1, 2, 3]


def two_elastic(first_priority: int = 0, second_priority: int = 0) -> Stage:
    stage = Stage(4)
    for name, priority in (("first", first_priority), ("second", second_priority)):
        stage.after(50)
        stage.command(name, gpu_count=1, gpu_count_max=2, requeue=True, priority=priority)
    assert (stage.gpus("first"), stage.gpus("second")) == ([0, 1], [2, 3])
    return stage


def test_the_elastic_command_that_has_run_for_less_gives_first() -> None:
    stage = two_elastic()
    stage.command("single")
    assert stage.runs("single")
    assert (len(stage.gpus("first")), len(stage.gpus("second"))) == (2, 1)


def test_the_elastic_command_of_lower_priority_gives_first() -> None:
    stage = two_elastic(first_priority=0, second_priority=1)
    stage.command("single")
    assert stage.runs("single")
    assert (len(stage.gpus("first")), len(stage.gpus("second"))) == (1, 2)


def test_the_elastic_command_that_has_not_started_gives_before_one_that_runs() -> None:
    stage = Stage(4)
    stage.command("holder", gpu_count=2)
    stage.after(50)
    stage.command("runs", gpu_count=1, gpu_count_max=2, requeue=True)
    stage.lingers("holder")
    stage.ends("holder")
    stage.command("waits", gpu_count=1, gpu_count_max=2, requeue=True)
    assert (stage.phase("waits"), len(stage.home("waits"))) == ("queued", 2)
    stage.command("single")
    assert (len(stage.home("waits")), len(stage.gpus("runs"))) == (1, 2)
    assert stage.orders("runs") == ["start"]


def test_an_elastic_command_that_has_just_started_does_not_start_again_for_a_gpu_that_is_whole_again() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.health(1, healthy=False)
    stage.after(100)
    stage.command("elastic", gpu_count=1, gpu_count_max=2, requeue=True)
    stage.health(1, healthy=True)
    stage.after(29)
    assert stage.orders("elastic") == ["start"]
    stage.after(2)
    assert stage.gpus("elastic") == [0, 1]


def test_an_elastic_command_that_cannot_start_again_claims_nothing_more() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.command("single")
    stage.command("elastic", gpu_count=1, gpu_count_max=2)
    stage.ends("single")
    stage.after(600)
    assert stage.home("elastic") == [1]
    stage.command("next")
    assert stage.gpu("next") == 0


def test_an_elastic_command_grows_onto_the_gpu_that_is_closest() -> None:
    stage = Stage(4, pairs((2, 3)), cool_down_s=30.0)
    for number in range(4):
        stage.command(f"single-{number}")
    stage.ends("single-2")
    stage.command("elastic", gpu_count=1, gpu_count_max=2, requeue=True)
    assert stage.gpus("elastic") == [2]
    for number in (0, 3):
        stage.ends(f"single-{number}")
    stage.after(100)
    assert stage.gpus("elastic") == [2, 3]


def test_an_elastic_command_gives_back_before_anybody_is_given_another_home() -> None:
    stage = Stage(4)
    stage.notebook("alice", 0.5)
    stage.notebook("carol", 0.5)
    stage.notebook("bob", 0.5)
    stage.ends("carol")
    stage.command("elastic", gpu_count=1, gpu_count_max=2, requeue=True)
    assert (stage.home("alice"), stage.home("bob"), stage.home("elastic")) == ([0], [2], [1, 3])
    stage.command("single")
    assert stage.runs("elastic", "single")
    assert (stage.home("alice"), stage.home("bob")) == ([0], [2])
    assert (stage.home("elastic"), stage.home("single")) == ([1], [3])


def test_an_elastic_command_that_cannot_help_gives_nothing() -> None:
    """`small` would give first, as it has run for less, and 0.4 of a Gpu is not enough."""
    stage = Stage(4)
    for number in range(2):
        stage.command(f"fixed-{number}", 0.6)
    stage.command("whole", gpu_count=1, gpu_count_max=2, requeue=True)
    stage.after(50)
    stage.command("small", 0.4, gpu_count=1, gpu_count_max=2, requeue=True)
    stage.command("newcomer")
    assert stage.runs("newcomer")
    assert (stage.gpus("small"), stage.orders("small")) == ([0, 1], ["start"])
    assert stage.orders("whole") == ["start", "stop", "start"]
    stage.command("too much")
    assert stage.phase("too much") == "queued"
    assert (stage.home("small"), stage.orders("small")) == ([0, 1], ["start"])


def test_an_elastic_command_gives_the_gpu_that_is_of_use() -> None:
    stage = Stage(3)
    for name in ("zero", "one"):
        stage.command(name)
    stage.command("fixed", 0.6)
    for name in ("zero", "one"):
        stage.ends(name)
    stage.command("elastic", 0.4, gpu_count=2, gpu_count_max=3, requeue=True)
    assert (stage.gpu("fixed"), stage.gpus("elastic")) == (2, [0, 1, 2])
    stage.command("newcomer")
    assert (stage.gpu("newcomer"), stage.gpus("elastic")) == (1, [0, 2])


def test_the_elastic_command_that_came_first_grows_first_and_is_woken_for_it() -> None:
    stage = Stage(3, cool_down_s=30.0)
    stage.command("single")
    for name in ("first", "second"):
        stage.command(name, gpu_count=1, gpu_count_max=2, requeue=True)
        stage.after(100)
    stage.ends("single")
    assert stage.node.state.timer_at == stage.node.now + 30.0
    stage.after(31)
    assert (len(stage.gpus("first")), len(stage.gpus("second"))) == (2, 1)


def test_an_elastic_command_grows_onto_no_gpu_with_a_stranger() -> None:
    stage = Stage(2, cool_down_s=30.0)
    stage.command("single")
    stage.command("elastic", 0.5, gpu_count=1, gpu_count_max=2, requeue=True)
    stage.ends("single")
    stage.stranger_uses(0, 0.25)
    stage.after(600)
    assert stage.gpus("elastic") == [1]
    stage.stranger_uses(0, 0.0)
    stage.after(600)
    assert stage.gpus("elastic") == [0, 1]


@pytest.mark.parametrize("filled", [False, True])
def test_an_elastic_command_has_whole_gpus_or_one_slice(*, filled: bool) -> None:
    """GPU 1 and GPU 2 are slices."""

    stage = Stage(4, sliced(1, 2), cool_down_s=30.0)
    if filled:
        stage.command("zero")
        stage.command("three", 1.0)
        stage.command("elastic", 0.5, gpu_count=1, gpu_count_max=3, requeue=True)
        on_a_slice = stage.gpus("elastic")
        for name in ("zero", "three"):
            stage.ends(name)
        stage.after(600)
        assert (len(on_a_slice), stage.gpus("elastic")) == (1, on_a_slice)
    else:
        stage.command("elastic", 0.5, gpu_count=1, gpu_count_max=3, requeue=True)
        assert stage.gpus("elastic") == [0, 3]


def test_sixteen_halves_at_once_on_eight_gpus_are_two_on_each_without_a_move() -> None:
    for limit in (TOTAL, TOTAL // 2):
        for kind in (Kind.NOTEBOOK, Kind.COMMAND):
            node = SimulatedNode.of(8, TOTAL)
            for _ in range(16):
                node.submit(kind=kind, request_bytes=TOTAL // 2, limit_bytes=limit)
            node.settle()
            node.advance(120)
            per_gpu = [sum(uuid in w.current for w in node.state.workloads.values()) for uuid in node.state.gpus]
            assert per_gpu == [2] * 8
            assert len([c for _, given in node.history for c in given if type(c).__name__ != "SetTimer"]) == 16


def test_eight_halves_that_may_burst_have_a_gpu_each() -> None:
    node = SimulatedNode.of(8, TOTAL)
    for _ in range(8):
        node.submit(request_bytes=8 * GIB, limit_bytes=16 * GIB)
    node.settle()
    assert sorted(w.current for w in node.state.workloads.values()) == [(uuid,) for uuid in node.state.gpus]


def test_who_has_a_home_and_asks_for_another_number_of_gpus_gets_another_home() -> None:
    """A stuck process keeps the Gpu of its home, so that it has one and does not run."""
    stage = Stage(3)
    stage.command("first")
    process = stage.lingers("first")
    stage.ends("first")
    stage.command("double", 0.5, gpu_count=3)
    assert (stage.home("double"), stage.phase("double")) == ([0, 1, 2], "queued")
    double = stage.workload("double")
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, double.id, replace(double.spec, gpu_count=2)))
    stage.node.settle()
    assert len(stage.home("double")) == 2
    process.lingers = False
    stage.after(1)
    assert len(stage.gpus("double")) == 2


ABOVE_REQUESTS = {
    "each on two Gpus": ({"gpu_count": 2}, {"gpu_count": 2}),
    "elastic": ({"gpu_count_max": 2}, {"gpu_count_max": 2}),
    "elastic, and one that does not start again": ({"gpu_count_max": 2}, {"gpu_count": 2, "requeue": False}),
}


@pytest.mark.parametrize(("first", "second"), ABOVE_REQUESTS.values(), ids=ABOVE_REQUESTS)
def test_commands_that_need_more_than_their_requests_do_not_stop_each_other_for_ever(
    first: dict[str, object], second: dict[str, object]
) -> None:
    stage = Stage(2)
    stage.command("one", 0.25, 1.0, **{"requeue": True, **first})
    stage.allocates("one", 0.7)
    stage.command("other", 0.5, 1.0, **{"requeue": True, **second})
    if stage.runs("other"):
        stage.allocates("other", 0.6)
    ran = [name for name in ("one", "other") if stage.runs(name)]
    assert ran
    for name in {"one", "other"}.difference(ran):
        assert stage.reason(name).kind is Reason.USED_ABOVE_REQUEST
        stage.after(3600)
        assert stage.runs(*ran)
        stage.ends(ran[0])
        assert stage.runs(name)


def test_gangs_that_need_more_than_their_requests_do_not_stop_each_other_for_ever() -> None:
    stage = Stage(2)
    stage.gang("a", 2, request=0.25, limit=1.0, requeue=True)
    for name in ("a-0", "a-1"):
        stage.allocates(name, 0.7)
    stage.gang("b", 2, request=0.5, limit=1.0, requeue=True)
    for name, share in (("b-0", 0.6), ("b-1", 0.6), ("a-0", 0.7), ("a-1", 0.7)):
        if stage.runs(name):
            stage.allocates(name, share)
    stage.after(3600)
    ran = [stage.runs(f"{name}-0", f"{name}-1") for name in ("a", "b")]
    assert sorted(ran) == [False, True]
    assert max(stage.orders(name).count("start") for name in ("a-0", "a-1", "b-0", "b-1")) <= 2


@pytest.mark.parametrize("requeue", [True, False])
def test_a_gang_that_needs_more_than_its_requests_does_not_start_again_and_again_beside_a_notebook(
    *, requeue: bool
) -> None:
    stage = Stage(1)
    stage.notebook("alice", 0.5, 0.5)
    stage.cell_starts("alice")
    stage.gang("g", 2, request=0.25, limit=0.5, requeue=requeue)
    for _ in range(5):
        for name in ("g-0", "g-1"):
            if stage.runs(name):
                stage.allocates(name, 0.3)
        stage.after(60)
    assert stage.orders("g-0").count("start") == 1
    assert Reason.USED_ABOVE_REQUEST in [stage.reason(name).kind for name in ("g-0", "g-1")]


def test_a_command_that_needs_more_than_its_request_has_it_before_a_notebooks_burst() -> None:
    stage = Stage(2)
    stage.command("double", 0.5, 1.0, requeue=True, gpu_count=2)
    stage.allocates("double", 0.8)
    stage.command("firm", 0.5)
    assert stage.phase("double") != "running"
    stage.notebook("book", 0.125, 1.0)
    stage.allocates("book", 0.5)
    stage.ends("firm")
    stage.after(3600)
    assert stage.runs("double")


def test_an_elastic_command_that_needs_more_than_its_request_starts_again_where_there_is_that_much() -> None:
    stage = Stage(2)
    stage.command("grows", 0.125, 1.0, gpu_count=1, gpu_count_max=2, requeue=True)
    stage.holds("grows", 0.75)
    assert stage.gpus("grows") == [0, 1]
    stage.command("comes", 0.5)
    stage.node.workloads[stage.workload("grows").id].from_start_bytes = 3 * TOTAL // 4
    stage.after(60)
    assert stage.runs("comes", "grows")
    assert len(stage.gpus("grows")) == 1
    stage.after(600)  # and does not grow to where it would not fit
    assert len(stage.gpus("grows")) == 1
    stage.ends("comes")
    stage.after(600)
    assert stage.gpus("grows") == [0, 1]


def test_what_a_command_was_seen_to_need_under_another_limit_is_not_waited_for() -> None:
    stage = Stage(1)
    stage.command("alice", 0.375, 1.0, requeue=True)
    stage.holds("alice", 0.875)
    stage.command("bob", 0.5)
    stage.node.workloads[stage.workload("alice").id].from_start_bytes = TOTAL // 4
    stage.after(60)
    assert stage.phase("alice") == "queued"
    spec = replace(stage.workload("alice").spec, limit_bytes=3 * TOTAL // 8)
    stage.node.tell(ev.WorkloadRespecified(stage.node.now, stage.workload("alice").id, spec))
    stage.node.settle()
    assert stage.runs("alice", "bob")


@pytest.mark.parametrize(("gpus", "wanted"), [(3, {"gpu_count": 2}), (2, {"gpu_count": 1, "gpu_count_max": 2})])
def test_nobody_leaves_for_several_gpus_where_as_many_are_empty(gpus: int, wanted: dict[str, int]) -> None:
    """Who borrows is at home where it is from then on."""
    stage = Stage(gpus)
    stage.notebook("alice")
    stage.cell_starts("alice")
    stage.holds("alice", 0.9)
    stage.notebook("bob")
    stage.cell_starts("bob")
    stage.ends("alice")
    stage.after(1)
    assert (stage.gpu("bob"), stage.home("bob")) == (1, [0])
    stage.command("train", **wanted)
    assert stage.runs("train", "bob")
    assert (stage.gpu("bob"), stage.home("bob")) == (1, [1])
    assert stage.orders("bob") == ["start"]


def test_an_idle_notebook_moves_for_several_gpus_before_a_running_cell() -> None:
    stage = Stage(4)
    stage.notebook("idle")
    stage.notebook("bob")
    stage.notebook("carol", 0.25)
    stage.cell_starts("bob")
    stage.holds("idle", 0.375)
    stage.holds("carol", 0.5)
    assert [stage.gpu(name) for name in ("idle", "bob", "carol")] == [0, 1, 2]
    stage.command("train", gpu_count=2)
    stage.after(60)
    assert stage.runs("train", "idle", "bob", "carol")
    assert stage.gpus("train") == [0, 3]
    assert [stage.orders(name) for name in ("bob", "carol")] == [["start"]] * 2


def test_nobody_leaves_for_what_is_only_lent_to_an_elastic_command() -> None:
    stage = Stage(3)
    for name in ("alice", "bob"):
        stage.notebook(name)
        stage.cell_starts(name)
    stage.command("train", gpu_count=1, gpu_count_max=2, requeue=True)
    stage.after(3600)
    assert stage.gpus("train") == [2]
    assert [stage.orders(name) for name in ("alice", "bob", "train")] == [["start"]] * 3
    stage.ends("bob")
    stage.after(3600)
    assert stage.gpus("train") == [1, 2]


def test_an_elastic_command_gives_the_gpu_that_another_one_lacks() -> None:
    stage = Stage(2)
    stage.command("single", 0.5)
    stage.command("elastic", 0.25, gpu_count=1, gpu_count_max=2, requeue=True)
    assert stage.gpus("elastic") == [0, 1]
    stage.command("double", 0.375, gpu_count=2)
    assert stage.runs("single", "elastic", "double")
    assert stage.gpus("elastic") == [1]


@pytest.mark.parametrize("stays", [0, 1])
def test_an_elastic_command_gives_a_gpu_from_which_others_can_be_moved(stays: int) -> None:
    stage = Stage(2)
    stage.command("elastic", 0.375, gpu_count=1, gpu_count_max=2, requeue=True)
    for gpu in range(2):
        stage.command(f"full-{gpu}", 0.625)
    stage.ends(f"full-{stays}")
    stage.command("stays", 0.125)
    stage.command("filler", 0.5)
    stage.ends(f"full-{1 - stays}")
    stage.notebook("alice", 0.375)
    assert (stage.gpu("stays"), stage.gpu("alice")) == (stays, 1 - stays)
    stage.ends("filler")
    assert stage.gpus("elastic") == [0, 1]
    stage.command("whole")
    stage.after(3600)
    assert stage.runs("whole", "stays", "alice", "elastic")
    assert (stage.gpu("whole"), stage.gpus("elastic")) == (1 - stays, [stays])


def test_who_waits_for_several_is_told_of_a_holder_with_the_gpus_that_this_one_holds() -> None:
    stage = Stage(3)
    for name in ("alice", "bob", "carol"):
        stage.notebook(name, 0.25)
        stage.after(40)
        stage.cell_starts(name)
    stage.command("train", 1.0, gpu_count=2)
    why = stage.reason("train")
    (holder,) = why.who
    assert (why.kind, why.gpus) == (Reason.HELD, stage.node.state.workloads[holder.id].current)
