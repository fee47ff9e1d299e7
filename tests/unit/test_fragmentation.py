"""Placing pods on the GPUs of a cluster, on nodes so few that scores and moves can be worked out by hand."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="the benchmarks of a cluster's fragmentation count with NumPy")
pytest.importorskip("scipy", reason="the bound on what can be allocated is a linear program")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import allocation
import numpy as np
from fragmentation.bound import all_fit_until, most_milli
from fragmentation.cluster import Cluster, Place
from fragmentation.inside_nodes import InsideNodes
from fragmentation.play import arrivals, in_drawn_order, play, play_both
from fragmentation.policies import POLICIES
from fragmentation.policies.best_fit import BestFit
from fragmentation.policies.dot_product import DotProduct
from fragmentation.policies.fgd import Fgd, typical
from fragmentation.policies.packing import Packing
from fragmentation.trace import MILLI, Node, Pod, Trace, load

NODES = (
    Node("eight", 64_000, 8, "G2"),
    Node("four", 32_000, 4, "V100M32"),
    Node("one", 8_000, 1, "P100"),
    Node("two", 16_000, 2, "T4"),
)
EIGHT, FOUR, ONE, TWO = range(4)
SEED = 8
HALF, WHOLE, CPU_ONLY = Pod(4000, 1, 500), Pod(4000, 1, 1000), Pod(4000, 0, 0)
TRACES = os.environ.get("NLS_TRACES")


def rows(*nodes: int) -> np.ndarray:
    return np.array(nodes, dtype=np.int64)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(NODES)


def made_up(seed: int = 1, pods: int = 60) -> Trace:
    """Pods for those nodes as the published trace has them: parts of a GPU, whole ones, several, and none."""
    chance = random.Random(seed)
    sizes = [0, 110, 160, 230, 320, 470, 590, 650, 1000, 2000]
    drawn = [(chance.choice([500, 1000, 8000]), chance.choice(sizes)) for _ in range(pods)]
    return Trace(NODES, tuple(Pod(cpu, -(-size // MILLI), min(size, MILLI)) for cpu, size in drawn))


def test_bestfit_scores_what_is_left(cluster: Cluster) -> None:
    """Of `two` are left 12 of 128 CPUs and 1.5 of 8 GPUs: half of 0.094 and of 0.1875 is 0.141, and 85.9 the rest."""
    assert BestFit(cluster).score(HALF, rows(EIGHT, FOUR, ONE, TWO)).tolist() == [29, 67, 95, 85]
    assert BestFit(cluster).score(CPU_ONLY, rows(ONE, TWO)).tolist() == [92, 82]


def test_dotprod_scores_how_little_alike_they_are(cluster: Cluster) -> None:
    """Of `two`: 16/128 times 4/128 CPUs and 2/8 times 1/8 GPUs, half of their sum is 0.0176."""
    assert DotProduct(cluster).score(WHOLE, rows(EIGHT, FOUR, ONE, TWO)).tolist() == [92, 96, 99, 98]


def test_packing_prefers_shared_gpus_then_used_nodes_then_small_free_ones(cluster: Cluster) -> None:
    cluster.put(0, Pod(1000, 1, 470), Place(FOUR, (2,)))
    cluster.put(1, Pod(1000, 1, 470), Place(TWO, (0,)))
    cluster.put(2, Pod(1000, 1, 320), Place(TWO, (0,)))
    policy = Packing(cluster)
    assert policy.score(HALF, rows(EIGHT, FOUR, ONE, TWO)).tolist() == [25, 95, 32, 49]
    assert policy.score(Pod(0, 1, 210), rows(FOUR, TWO)).tolist() == [95, 98]
    assert policy.score(Pod(0, 3, 1000), rows(EIGHT, FOUR)).tolist() == [25, 47]
    assert policy.score(CPU_ONLY, rows(EIGHT, TWO)).tolist() == [0, 0]
    assert policy.choose(HALF) == Place(FOUR, (2,))


def test_typical_pods_are_the_most_frequent_until_they_are_95_percent() -> None:
    pods = [HALF] * 94 + [WHOLE] * 4 + [CPU_ONLY] * 2
    assert typical(pods) == [(HALF, 94), (WHOLE, 4)]
    assert typical(pods[:94] + [WHOLE] * 3 + [CPU_ONLY] * 3) == [(HALF, 94), (WHOLE, 3)], "of equals the larger"


def test_fgd_scores_what_becomes_or_was_a_fragment(cluster: Cluster) -> None:
    """Three of four pods want a half, one a whole GPU: half a GPU is a fragment for a quarter, or 0.125 GPUs.

    A half on a free GPU makes one: sigmoid(-0.125) is 0.4688. On the other half there is none left: 0.5312.
    """
    policy = Fgd(cluster, [HALF, HALF, HALF, WHOLE])
    assert policy.score_with_gpus(HALF, rows(ONE, TWO))[0].tolist() == [46, 46]
    cluster.put(0, HALF, Place(TWO, (1,)))
    scores, gpus = policy.score_with_gpus(HALF, rows(ONE, TWO))
    assert (scores.tolist(), gpus.tolist()) == ([46, 53], [0, 1])
    assert policy.choose(HALF) == Place(TWO, (1,))


def test_fgd_counts_all_that_is_free_where_the_cpus_do_not_suffice(cluster: Cluster) -> None:
    """With 2 of 8 CPUs left nobody can use the GPU of `one`: it becomes a fragment, and sigmoid(-1) is 0.2689."""
    policy = Fgd(cluster, [HALF, HALF, HALF, WHOLE])
    assert policy.score_with_gpus(Pod(6000, 0, 0), rows(ONE, TWO))[0].tolist() == [26, 50]


def test_a_gpu_is_a_fragment_for_pods_that_want_none(cluster: Cluster) -> None:
    """For half of the pods all free GPUs are: a half that is taken makes 0.25 less, and sigmoid(0.25) is 0.5622."""
    policy = Fgd(cluster, [HALF, CPU_ONLY])
    assert policy.score_with_gpus(HALF, rows(TWO))[0].tolist() == [56]


def test_random_places_are_among_those_with_room(cluster: Cluster) -> None:
    for gpu in range(1, 8):
        cluster.put(gpu, WHOLE, Place(EIGHT, (gpu,)))
    places = {POLICIES["Random"](cluster, (), seed).choose(Pod(32_000, 1, 500)) for seed in range(40)}
    assert places == {Place(EIGHT, (0,)), *(Place(FOUR, (gpu,)) for gpu in range(4))}


@pytest.mark.parametrize("policy", POLICIES)
def test_several_gpus_are_the_first_that_are_free(cluster: Cluster, policy: str) -> None:
    cluster.put(0, Pod(0, 1, 10), Place(EIGHT, (1,)))
    place = POLICIES[policy](cluster, [WHOLE, HALF], 1).choose(Pod(1000, 6, 1000))
    assert place == Place(EIGHT, (0, 2, 3, 4, 5, 6))
    cluster.put(1, Pod(0, 1, 10), Place(EIGHT, (7,)))
    cluster.put(2, Pod(0, 1, 10), Place(EIGHT, (6,)))
    assert POLICIES[policy](cluster, [WHOLE, HALF], 1).choose(Pod(1000, 6, 1000)) is None


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "Random"])
def test_scores_that_were_kept_are_those_worked_out_anew(policy: str) -> None:
    trace = made_up()
    cluster = Cluster(trace.nodes)
    kept = POLICIES[policy](cluster, trace.pods, 1)
    for number, pod in enumerate(arrivals(trace, 3)):
        place = kept.choose(pod)
        assert place == POLICIES[policy](cluster, trace.pods, 1).choose(pod)
        if place is not None:
            cluster.put(number, pod, place)


def test_the_smaller_pod_moves_so_that_one_fits_that_did_not() -> None:
    """0.6 and 0.3 GPUs are there: the smaller beside the larger leaves one free, and costs 0.3 of 15109 MiB."""
    cluster = Cluster(NODES[TWO:])
    cluster.put(0, Pod(1000, 1, 600), Place(0, (0,)))
    cluster.put(1, Pod(1000, 1, 300), Place(0, (1,)))
    room = InsideNodes(cluster).choose(Pod(1000, 1, 800))
    assert room is not None
    assert (room.place, room.moves, room.moved_bytes) == (Place(0, (1,)), {1: 0}, 300 * 15109 * 2**20 // 1000)
    assert cluster.move(0, room.moves) == 300
    cluster.put(2, Pod(1000, 1, 800), room.place)
    assert cluster.gpu_left.tolist() == [[100, 200]]


def test_nobody_moves_for_a_pod_that_lacks_cpus_or_room_altogether() -> None:
    cluster = Cluster(NODES[TWO:])
    cluster.put(0, Pod(1000, 1, 600), Place(0, (0,)))
    cluster.put(1, Pod(1000, 1, 450), Place(0, (1,)))
    inside = InsideNodes(cluster)
    assert inside.choose(Pod(1000, 1, 600)) is None, "0.95 GPUs are left, in two parts that no move makes larger"
    cluster.put(2, Pod(14_000, 0, 0), Place(0, ()))
    assert inside.choose(Pod(1000, 1, 100)) is None


def test_whole_gpus_get_room_too_and_who_has_one_stays() -> None:
    cluster = Cluster(NODES[FOUR : FOUR + 1])
    cluster.put(0, WHOLE, Place(0, (0,)))
    for number, gpu in ((1, 1), (2, 2), (3, 3)):
        cluster.put(number, Pod(1000, 1, 300), Place(0, (gpu,)))
    room = InsideNodes(cluster).choose(Pod(1000, 2, 1000))
    assert room is not None
    assert room.place.gpus == (2, 3), "of equals the latest arrivals move"
    assert room.moves == {2: 1, 3: 1}


def test_room_is_made_where_the_fewest_bytes_move() -> None:
    """As many thousandths are twice as much memory on a V100 with 32 GB as on a T4."""
    cluster = Cluster((Node("large", 16_000, 2, "V100M32"), Node("small", 16_000, 2, "T4")))
    for node in (0, 1):
        cluster.put(2 * node, Pod(1000, 1, 600), Place(node, (0,)))
        cluster.put(2 * node + 1, Pod(1000, 1, 300), Place(node, (1,)))
    room = InsideNodes(cluster).choose(Pod(1000, 1, 800))
    assert room is not None
    assert room.place.node == 1


def test_a_node_without_room_is_asked_again_once_something_changed() -> None:
    """Nobody leaves in what is played; here somebody shrinks."""
    cluster = Cluster(NODES[TWO:])
    cluster.put(0, Pod(1000, 1, 600), Place(0, (0,)))
    cluster.put(1, Pod(1000, 1, 450), Place(0, (1,)))
    inside = InsideNodes(cluster)
    assert inside.choose(Pod(1000, 1, 600)) is None
    cluster.put(1, Pod(0, 1, 300), Place(0, (1,)))
    cluster.gpu_left[0, 1] = 700
    room = inside.choose(Pod(1000, 1, 800))
    assert room is not None
    assert room.moves == {1: 0}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("moves", [False, True], ids=["placed_once", "with_moves"])
def test_nothing_is_given_twice_and_nobody_exceeds_the_bound(
    policy: str, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is free is worked out from who was put where, apart from the arrays."""
    trace, clusters = made_up(), []
    monkeypatch.setattr("fragmentation.play.Cluster", lambda nodes: clusters.append(Cluster(nodes)) or clusters[-1])
    outcome = play(trace, policy, SEED, moves=moves)
    (cluster,) = clusters
    came = list(arrivals(trace, SEED))
    assert (cluster.cpu_left >= 0).all()
    assert cluster.gpu_left[cluster.gpu_left >= 0].sum() == outcome.capacity_milli - outcome.allocated_milli
    for left, shared in zip(cluster.gpu_left, cluster.shared, strict=True):
        for gpu in {resident.gpu for resident in shared.values()}:
            assert left[gpu] + sum(r.gpu_milli for r in shared.values() if r.gpu == gpu) == MILLI
        assert all(came[number].gpu_milli == resident.gpu_milli for number, resident in shared.items())
    assert outcome.allocated_milli <= most_milli(came, trace.capacity_milli // MILLI)
    assert outcome.arrived == len(came)
    assert bool(outcome.made_room) == bool(outcome.moves_of) == bool(outcome.moved_bytes)
    if not moves:
        assert not outcome.made_room


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_played_with_and_without_moves_at_once_is_what_comes_of_each(policy: str) -> None:
    trace = made_up()
    for seed in range(3):
        alone = [play(trace, policy, seed, moves=moves) for moves in (False, True)]
        assert list(play_both(trace, policy, seed)) == alone


def test_some_pods_above_got_room_by_moves() -> None:
    assert any(play(made_up(), policy, SEED, moves=True).made_room for policy in POLICIES)


def test_arrivals_are_all_pods_once_and_then_some_until_they_ask_for_all_gpus() -> None:
    trace = made_up(pods=12)
    came = list(arrivals(trace, 7))
    assert sorted(came[:12]) == sorted(trace.pods)
    assert set(came) <= set(trace.pods)
    asked = [pod.request_milli for pod in came]
    assert sum(asked[:-1]) < trace.capacity_milli <= sum(asked)
    assert sorted(in_drawn_order(trace)) == sorted(trace.nodes)


def test_the_same_seed_gives_the_same_figures_and_another_one_others() -> None:
    trace = made_up()
    figures = [allocation.compared(trace, list(POLICIES), seeds, {"FGD": 90.0}) for seeds in ([1, 2], [1, 2], [3])]
    assert figures[0] == figures[1] != figures[2]
    once = figures[0]["policies"]["FGD"]["placed_once"]
    assert once["difference"] == round(once["percent"] - 90.0, 2)
    assert "FGD" in allocation.table({"mine": figures[0]})


def test_the_bound_is_what_the_best_sets_hold() -> None:
    assert most_milli([Pod(0, 1, 600)] * 10, 4) == pytest.approx(2400)
    assert most_milli([Pod(0, 1, 600)] * 3 + [Pod(0, 1, 400)] * 2, 4) == pytest.approx(2600), "2 x 1.0 and 0.6"
    assert most_milli([Pod(0, 1, 810)] * 3 + [Pod(0, 1, 190)], 3) == pytest.approx(2620)
    assert most_milli([Pod(0, 2, 1000), Pod(9000, 0, 0)], 4) == pytest.approx(2000)
    assert most_milli([Pod(9000, 0, 0)], 4) == 0.0


def test_all_fit_until_somebody_has_to_be_refused() -> None:
    pods = [Pod(0, 1, 600), Pod(0, 1, 400), Pod(0, 1, 600), Pod(0, 1, 600)]
    assert all_fit_until(pods, 2) == 1600
    assert all_fit_until(pods, 3) == 2200


def test_the_page_has_the_figures_that_are_kept() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "fragmentation.md").read_text(encoding="utf-8")
    figures = json.loads((root / "benchmarks" / "results" / "allocation.json").read_text())["figures"]
    assert figures["seeds"] == list(range(42, 52))
    for name, found in figures["workloads"].items():
        for policy, row in found["policies"].items():
            once, moved = row["placed_once"], row["with_moves"]
            assert once["published"] == allocation.PUBLISHED[name][policy]
            assert abs(once["difference"]) <= 0.3
            shown = [name, policy, f"{once['published']:.2f}", f"{once['percent']:.2f}", f"{moved['percent']:.2f}"]
            shown += [
                f"{moved['moves']:,.0f}",
                f"{moved['moved_gib']:,.0f}",
                f"{found['nobody_exceeds']['percent']:.2f}",
            ]
            assert f"| {' | '.join(shown)} |" in page


@pytest.mark.skipif(TRACES is None, reason="NLS_TRACES does not name the published trace")
@pytest.mark.long("a cluster of 6,212 GPUs is filled, as published")
def test_fgd_fills_the_published_trace_as_published_and_moves_do_not_reach_what_nobody_can() -> None:
    trace = load(Path(str(TRACES)), "gpushare100")
    once, moved = (play(trace, "FGD", allocation.FIRST_SEED, moves=moves).percent for moves in (False, True))
    most = (
        100 * most_milli(arrivals(trace, allocation.FIRST_SEED), trace.capacity_milli // MILLI) / trace.capacity_milli
    )
    assert once == pytest.approx(allocation.PUBLISHED["gpushare100"]["FGD"], abs=0.3)
    assert once < moved < most < 90.0
