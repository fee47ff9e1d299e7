from __future__ import annotations

from connections import pairs
from nls_scheduler import gangs
from stage import Stage


def test_a_gang_starts_together_once_the_last_member_has_come() -> None:
    stage = Stage(4)
    stage.gang("g", 3, size=4)
    assert [stage.phase(f"g-{n}") for n in range(3)] == ["queued"] * 3
    assert stage.reason("g-0") == "waits for 1 of 4 members of gang g"
    stage.command("g-3", gang="g", gang_size=4)
    assert stage.runs("g-0", "g-1", "g-2", "g-3")
    assert sorted(stage.gpu(f"g-{n}") for n in range(4)) == [0, 1, 2, 3]


def test_a_gang_that_waits_for_a_member_keeps_nobody_from_a_gpu() -> None:
    stage = Stage(2)
    stage.gang("g", 1, size=2)
    stage.command("other")
    assert stage.runs("other")


def test_a_gang_gets_all_its_gpus_or_none() -> None:
    stage = Stage(2)
    stage.command("single")
    stage.gang("g", 2)
    assert [stage.phase("g-0"), stage.phase("g-1")] == ["queued", "queued"]
    assert [stage.home("g-0"), stage.home("g-1")] == [[], []]
    assert "for each of the 2 members of gang g at once: GPU 0 is held by single" in stage.reason("g-1")
    stage.ends("single")
    assert stage.runs("g-0", "g-1")


def test_a_gang_starts_when_all_of_it_has_room_in_fact_and_not_before() -> None:
    stage = Stage(2)
    stage.command("single")
    process = stage.node.workloads[stage.workload("single").id].process
    assert process is not None
    process.lingers = True
    stage.ends("single")
    stage.gang("g", 2)
    assert [stage.phase("g-0"), stage.phase("g-1")] == ["queued", "queued"]
    process.lingers = False
    stage.node.sample()
    stage.node.settle()
    assert stage.runs("g-0", "g-1")


def test_a_gang_with_a_dead_member_starts_again_whole_with_the_same_ranks() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    ranks = [gangs.rank(stage.node.state, stage.workload(f"g-{n}")) for n in range(2)]
    stage.dies("g-1")
    assert stage.runs("g-0", "g-1")
    assert stage.orders("g-0") == ["start", "stop", "start"]
    assert stage.orders("g-1") == ["start", "start"]
    assert [gangs.rank(stage.node.state, stage.workload(f"g-{n}")) for n in range(2)] == ranks == [0, 1]
    stopped = next(c.reason for _, given in stage.node.history for c in given if type(c).__name__ == "StopProcess")
    assert stopped.startswith("g-1 of gang g killed by SIGKILL")


def test_a_gang_whose_members_die_again_and_again_is_given_up_whole() -> None:
    """The deaths are the gang's: it does not matter which member dies."""
    stage = Stage(2, max_failures=3)
    stage.gang("g", 2)
    stage.dies("g-0")
    stage.dies("g-1")
    assert stage.runs("g-0", "g-1")
    stage.dies("g-0")
    assert [stage.phase("g-0"), stage.phase("g-1")] == ["failed", "failed"]
    assert stage.reason("g-1") == "gave up after 3 failures in a row: g-0 of gang g killed by SIGKILL"
    stage.user_resumes("g-1")
    assert stage.runs("g-0", "g-1")


def test_a_death_after_a_long_run_begins_a_new_row() -> None:
    stage = Stage(2, max_failures=2, start_timeout_s=120.0)
    stage.gang("g", 2)
    for _ in range(4):
        stage.after(121)
        stage.dies("g-0")
        assert stage.runs("g-0", "g-1")


def test_members_that_end_well_leave_the_others_alone() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    stage.ends_well("g-0")
    assert not stage.known("g-0")
    assert stage.runs("g-1")
    assert stage.orders("g-1") == ["start"]
    stage.dies("g-1")
    assert stage.phase("g-1") == "queued"
    assert stage.reason("g-1") == "gang g cannot start again whole: 1 of its members have ended well already"


def test_when_a_member_is_taken_away_the_others_stop_and_wait_for_another() -> None:
    stage = Stage(2)
    stage.gang("g", 2)
    stage.ends("g-1")
    assert stage.phase("g-0") == "queued"
    assert stage.reason("g-0") == "waits for 1 of 2 members of gang g"
    stage.command("g-2", gang="g", gang_size=2)
    assert stage.runs("g-0", "g-2")


def test_a_gang_is_put_where_it_is_closest_together() -> None:
    stage = Stage(4, pairs((0, 2), (1, 3)))
    stage.gang("g", 2)
    assert sorted(stage.gpu(f"g-{n}") for n in range(2)) == [0, 2]


def test_two_users_gangs_of_one_name_are_two_gangs() -> None:
    stage = Stage(2)
    stage.gang("g", 1, size=2, owner=1)
    stage.command("other", gang="g", gang_size=2, owner=2)
    assert [stage.phase("g-0"), stage.phase("other")] == ["queued", "queued"]
