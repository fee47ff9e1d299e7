"""How many Gpus are said to be needed."""

from __future__ import annotations

from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.plays import Crew, Play, play_one
from nls_scheduler.what_if.policies.oracle import bound, places_of
from nls_scheduler.what_if.scenario import Node, Scenario
from nls_scheduler.what_if.search import Needed, extents_by_seed, fewest_possible, is_enough, search

SCENARIO = Scenario(Recipe(8, 86400.0, seed=1), Node(2, 80 * 2**30))


def test_what_is_found_is_enough_and_nothing_less_is() -> None:
    extents = extents_by_seed(SCENARIO, SCENARIO.extent(), 3)
    assert len({extent.most_at_once for extent in extents.values()}) > 1
    with Crew(1) as crew:
        for needed in search(SCENARIO, ("whole", "fractions", "replicas"), extents, crew):
            for (seed, extent), gpus in zip(extents.items(), needed.by_seed, strict=True):
                if gpus <= needed.most_tried:
                    assert is_enough(play_one(Play(SCENARIO.on(gpus), needed.policy, seed, extent)))
                for fewer in range(1, gpus):
                    assert not is_enough(play_one(Play(SCENARIO.on(fewer), needed.policy, seed, extent)))
            assert needed.most_tried == max(extent.most_at_once for extent in extents.values())


def test_the_bound_needs_no_more_than_anybody() -> None:
    extents = extents_by_seed(SCENARIO, SCENARIO.extent(), 2)
    oracle = fewest_possible(SCENARIO, extents)
    for seed, gpus in zip(extents, oracle.by_seed, strict=True):
        places = places_of(extents[seed].least_request_bytes, SCENARIO.node.gpu_bytes)
        assert places == 2
        assert bound(SCENARIO.rows(seed), places * gpus) >= 0.99
        assert gpus == 1 or bound(SCENARIO.rows(seed), places * (gpus - 1)) < 0.99


def test_how_many_are_needed_is_said_as_far_as_it_is_known() -> None:
    assert str(Needed("whole", (7, 6, 8), 9)) == "7 (6 to 8)"
    assert str(Needed("whole", (7, 7), 9)) == "7"
    assert str(Needed("whole", (8, 10, 9), 9)) == "9 (8 to more than 9)"
    unknown = Needed("whole", (10, 9, 10), 9)
    assert (str(unknown), unknown.is_known) == ("more than 9 (9 to more than 9)", False)
    assert Needed("whole", (7, 8), 9).gpus == 8
    assert (unknown.as_json()["gpus"], unknown.as_json()["by_seed"]) == (None, [None, 9, None])
    assert Needed("whole", (7, 8), 9).as_json() == {"gpus": 8, "by_seed": [7, 8], "most_tried": 9, "wanted": 0.99}
