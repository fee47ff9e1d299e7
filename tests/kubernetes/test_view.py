"""What pods, BindRequests and the kubelet come to: who owns which Gpu, and where our pods are at home."""

from __future__ import annotations

from typing import Any

import pytest

from nls_scheduler.core.model.gpu import Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.kubernetes_driver.bind_requests import bind_request as parse_bind_request
from nls_scheduler.kubernetes_driver.pods import pod_record
from nls_scheduler.kubernetes_driver.view import Sources, View, look
from objects import SOCKET_DIRECTORY, bind_request, pod, reservation, shared_pod

GIB = 2**30
A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")


def seen(*pods: dict[str, Any], requests: tuple[dict[str, Any], ...] = (), **more: Any) -> View:
    records = {}
    for written in pods:
        record = pod_record(written, SOCKET_DIRECTORY)
        assert record is not None
        records[record.uid] = record
    parsed = tuple(found for written in requests if (found := parse_bind_request(written)) is not None)
    return look(Sources("node-a", records, bind_requests=parsed, capacities={A: 16 * GIB, B: 16 * GIB}, **more))


def uid(written: dict[str, Any]) -> str:
    return str(written["metadata"]["uid"])


def owners(view: View) -> set[tuple[str, tuple[str, ...], int | None, int]]:
    return {(o.name, o.gpus, o.request_bytes, o.devices_to_come) for o in view.claims.owners}


def test_a_stranger_in_a_group_owns_its_part_of_the_reserved_gpu() -> None:
    view = seen(reservation("g1", A), shared_pod("train", "0.5", "g1"))
    assert owners(view) == {("default/train", (A,), 8 * GIB, 0)}
    assert view.claims.allocated == {A}


def test_a_notebook_of_ours_is_at_home_on_the_reserved_gpu_and_owns_nothing() -> None:
    notebook = shared_pod("book", "0.5", "g1", managed=True)
    view = seen(reservation("g1", A), notebook)
    assert view.claims.owners == ()
    assert view.homes == {uid(notebook): (A,)}
    assert view.claims.allocated == {A}


def test_a_bind_request_for_a_new_group_is_a_device_to_come() -> None:
    view = seen(requests=(bind_request("train", groups=["g-new"]),))
    assert owners(view) == {("default/train", (), None, 1)}
    assert view.signals["group:g-new"] == "bind_request"


def test_two_pods_of_a_new_group_wait_for_one_device() -> None:
    view = seen(requests=(bind_request("a", groups=["g"]), bind_request("b", groups=["g"])))
    assert [o.devices_to_come for o in view.claims.owners] == [1]


def test_a_bind_request_for_more_devices_than_any_node_has_costs_no_more_than_one_for_all_of_them() -> None:
    for kind in ("Fraction", "Regular"):
        written = bind_request("train")
        written["spec"] |= {"receivedResourceType": kind, "receivedGPU": {"count": 2**40, "portion": "0.5"}}
        claims = seen(requests=(written,)).claims
        assert 2 <= sum(owner.devices_to_come for owner in claims.owners) <= 64


@pytest.mark.parametrize("portion", [10**400, "1e999", "-1", "half", [], True, "1e-11"], ids=range(7))
def test_a_portion_that_makes_no_sense_is_all_of_it(portion: object) -> None:
    written = bind_request("train", groups=["g1"])
    written["spec"]["receivedGPU"]["portion"] = portion
    view = seen(reservation("g1", B), requests=(written,))
    assert owners(view) == {("default/train", (B,), 16 * GIB, 0)}


def test_a_bind_request_for_a_known_group_claims_its_part_at_once() -> None:
    view = seen(reservation("g1", B), requests=(bind_request("train", groups=["g1"], portion="0.25"),))
    assert owners(view) == {("default/train", (B,), 4 * GIB, 0)}


def test_a_bind_request_of_another_node_is_nobodys_business_here() -> None:
    assert seen(requests=(bind_request("train", groups=["g"], node="node-b"),)).claims.owners == ()


def test_a_bind_request_of_a_notebook_of_ours_drives_nobody_out() -> None:
    record = pod_record(shared_pod("book", "0.5", managed=True, node=None), SOCKET_DIRECTORY)
    assert record is not None
    view = seen(requests=(bind_request("book", groups=["g"]),), elsewhere={"default/book": record})
    assert view.claims.owners == ()


def test_what_a_pod_asks_for_counts_before_the_part_that_its_bind_request_rounds() -> None:
    third = pod_record(pod("train", annotations={"gpu-memory": "5433"}, node=None), SOCKET_DIRECTORY)
    assert third is not None
    request = bind_request("train", groups=["g1"], portion="0.34")
    known = {"default/train": third}
    view = seen(reservation("g1", A), requests=(request,), elsewhere=known)
    assert owners(view) == {("default/train", (A,), 5433 * 2**20, 0)}


def test_whole_devices_of_a_bind_request_are_to_come_until_the_kubelet_gives_them() -> None:
    request = bind_request("train", count=2)
    assert owners(seen(requests=(request,))) == {("default/train", (), None, 2)}
    given = seen(requests=(request,), allocations={"default/train": (A,)})
    assert owners(given) == {("default/train", (A,), None, 1)}


def test_a_bound_pod_of_whole_devices_claims_them_before_the_kubelet_gives_them() -> None:
    train = pod("train", gpus=1, scheduler="default-scheduler")
    view = seen(train)
    assert owners(view) == {("default/train", (), None, 1)}
    assert view.signals[uid(train)] == "binding"
    assert owners(seen(train, allocations={"default/train": (B,)})) == {("default/train", (B,), None, 0)}


def test_an_allocation_that_the_api_server_has_not_told_of_is_an_owner() -> None:
    view = seen(allocations={"default/train": (B,)})
    assert owners(view) == {("default/train", (B,), None, 0)}
    assert set(view.signals.values()) == {"allocation"}


@pytest.mark.parametrize(
    "written",
    [
        pod("train", scheduler="default-scheduler"),
        shared_pod("train", "0.5", scheduler="default-scheduler"),
        pod("train", scheduler="default-scheduler", managed=True),
    ],
    ids=["no word of a GPU", "a part that nobody gives", "a notebook of ours"],
)
def test_a_gpu_that_the_kubelet_gave_is_its_pod_s_whatever_that_asks_for(written: dict[str, Any]) -> None:
    view = seen(written, allocations={"default/train": (B,)})
    assert owners(view) == {("default/train", (B,), None, 0)}
    assert view.claims.allocated == {B}


def test_a_notebook_whose_claim_cannot_be_read_is_at_home_where_the_kubelet_says() -> None:
    notebook = pod("book", scheduler="default-scheduler", managed=True, claim="gpu")
    view = seen(notebook, allocations={"default/book": (B,)})
    assert (view.homes, owners(view)) == ({uid(notebook): (B,)}, set())


def test_what_the_kubelet_gave_beyond_the_request_is_its_pod_s_too() -> None:
    shares = shared_pod("train", "0.5", "g1")
    view = seen(reservation("g1", A), shares, allocations={"default/train": (B,)})
    assert owners(view) == {("default/train", (A,), 8 * GIB, 0), ("default/train", (B,), None, 0)}
    assert [t.code for t in view.troubles[uid(shares)]] == ["GpuDevicesWrong"]


def test_what_init_containers_alone_have_stays_a_device_to_come() -> None:
    train = pod("train", gpus=1, scheduler="default-scheduler")
    train["spec"]["initContainers"] = [{"name": "init", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    assert owners(seen(train, allocations={"default/train": (A,)})) == {("default/train", (A,), None, 1)}
    train["spec"]["volumes"] = pod("book", managed=True)["spec"]["volumes"]
    assert seen(train, allocations={"default/train": (A,)}).homes == {uid(train): (A,)}


def test_a_reservation_without_its_pod_owns_its_gpu() -> None:
    assert owners(seen(reservation("g1", A))) == {("kai-resource-reservation/gpu-reservation-g1", (A,), None, 0)}


def test_a_reservation_that_says_nothing_is_known_by_the_kubelets_allocation() -> None:
    silent = reservation("g1", None, started_at="2026-11-21T10:00:00Z")
    notebook = shared_pod("book", "0.5", "g1", managed=True)
    view = seen(silent, notebook, allocations={"kai-resource-reservation/gpu-reservation-g1": (B,)})
    assert view.homes == {uid(notebook): (B,)}


def test_a_reservation_that_nobody_can_place_keeps_a_gpu_free_and_is_reported() -> None:
    silent = reservation("g1", None, started_at="2026-11-21T10:00:00Z")
    view = seen(silent)
    assert [o.devices_to_come for o in view.claims.owners] == [1]
    assert [t.code for t in view.troubles[uid(silent)]] == ["GpuReservationSilent"]


@pytest.mark.parametrize("whole_node", [True, False])
def test_a_reservation_that_names_no_gpu_of_this_node_holds_the_one_that_the_kubelet_gave_it(whole_node: bool) -> None:
    wrong, notebook = reservation("g1", STRANGE), shared_pod("book", "0.5", "g1", managed=True)
    told = {"kai-resource-reservation/gpu-reservation-g1": (B,)}
    view = seen(wrong, notebook, allocations=told, whole_node=whole_node)
    assert view.homes[uid(notebook)] == (B,)
    assert [t.code for t in view.troubles[uid(wrong)]] == ["GpuReservationWrong"]
    nobody_knows = seen(wrong, notebook, whole_node=whole_node)
    assert nobody_knows.homes[uid(notebook)] == (STRANGE,), "it may be another daemon's, or one that comes back"


def test_the_kubelet_knows_better_than_a_reservation_which_gpu_that_has() -> None:
    wrong, notebook = reservation("g1", A), shared_pod("book", "0.5", "g1", managed=True)
    view = seen(wrong, notebook, allocations={"kai-resource-reservation/gpu-reservation-g1": (B,)})
    assert (view.homes, owners(view), view.claims.allocated) == ({uid(notebook): (B,)}, set(), {B})
    assert [t.code for t in view.troubles[uid(wrong)]] == ["GpuReservationWrong"]


DEVICES = "nvidia.com/container.main.gpus.devices"


@pytest.mark.parametrize("written", [{"annotations": {DEVICES: A}}, {"labels": {"runai-gpu-group": "g1"}}])
@pytest.mark.parametrize("managed", [True, False])
def test_the_kubelet_knows_better_than_a_pod_which_gpu_that_has(written: dict[str, Any], managed: bool) -> None:
    """As of a manifest that was copied from a pod that KAI had placed."""
    copied, told = pod("a", gpus=1, managed=managed, **written), {"default/a": (B,)}
    book = shared_pod("book", "0.5", "g1", managed=True)
    view = seen(reservation("g1", A), book, copied, allocations=told)
    assert owners(view) == (set() if managed else {("default/a", (B,), None, 0)})
    assert view.homes == {uid(book): (A,), **({uid(copied): (B,)} if managed else {})}
    assert [t.code for t in view.troubles[uid(copied)]] == ["GpuDevicesWrong"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", "somebody-s"])
@pytest.mark.parametrize("managed", [True, False])
def test_who_is_not_placed_by_kai_has_nothing_by_what_it_says_itself(scheduler: str, managed: bool) -> None:
    says = {"gpu-fraction": "0.9", DEVICES: f"{A},{B}", "gpu-fraction-num-devices": "2"}
    group = {"runai-gpu-group": "g1"}
    thief = pod("thief", scheduler=scheduler, annotations=says, labels=group, managed=managed)
    view = seen(reservation("g1", A), thief)
    assert owners(view) == {("kai-resource-reservation/gpu-reservation-g1", (A,), None, 0)}
    assert view.homes == {}
    assert [t.code for t in view.troubles[uid(thief)]] == ["GpuShareUnscheduled"]


def test_kai_s_word_on_parts_needs_nobody_else_s() -> None:
    by_devices = shared_pod("book", "0.5", managed=True)
    by_devices["metadata"]["annotations"][DEVICES] = B
    assert (seen(by_devices).homes, seen(by_devices).troubles) == ({uid(by_devices): (B,)}, {})


def test_two_reservations_of_one_group_are_reported_and_both_gpus_are_left_alone() -> None:
    first = reservation("g1", A, "r1", uid="1")
    second = reservation("g1", B, "r2", uid="2")
    view = seen(first, second, shared_pod("book", "0.5", "g1", managed=True, uid="3"))
    assert view.homes == {"3": (A,)}
    assert owners(view) == {("kai-resource-reservation/r2", (B,), None, 0)}
    assert [t.code for t in view.troubles["2"]] == ["GpuGroupDuplicate"]


def test_a_pod_that_has_ended_owns_nothing_even_where_the_kubelet_still_lists_it() -> None:
    train = pod("train", gpus=1, phase="Succeeded")
    assert seen(train, allocations={"default/train": (A,)}).claims.owners == ()


def test_a_part_of_a_gpu_without_kai_is_reported_and_claims_nothing() -> None:
    train = shared_pod("train", "0.5", scheduler="default-scheduler")
    view = seen(train)
    assert view.claims.owners == ()
    assert [t.code for t in view.troubles[uid(train)]] == ["GpuShareUnscheduled"]


def test_a_pod_of_several_groups_owns_a_part_of_each() -> None:
    labels = {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}
    several = shared_pod("train", "0.5", labels=labels)
    several["metadata"]["annotations"]["gpu-fraction-num-devices"] = "2"
    view = seen(reservation("g1", A), reservation("g2", B), several)
    assert owners(view) == {("default/train", (A, B), 8 * GIB, 0)}


def test_a_notebook_whose_devices_are_only_partly_known_has_no_home_yet() -> None:
    labels = {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}
    several = shared_pod("book", "0.5", labels=labels, managed=True)
    several["metadata"]["annotations"]["gpu-fraction-num-devices"] = "2"
    assert seen(reservation("g1", A), several).homes == {uid(several): ()}


def test_a_request_that_cannot_be_read_counts_as_a_whole_gpu() -> None:
    view = seen(reservation("g1", A), shared_pod("train", "lots", "g1"))
    assert owners(view) == {("default/train", (A,), 16 * GIB, 0)}


def test_a_gpu_that_is_not_ours_changes_nothing() -> None:
    view = seen(reservation("g1", "GPU-other"), shared_pod("train", "0.5", "g1"))
    assert owners(view) == {("default/train", ("GPU-other",), None, 0)}


@pytest.mark.parametrize("started_at", [None, "1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "2026-11-21T10:00:00Z"])
def test_no_clock_but_the_node_s_own_decides_anything(started_at: str | None) -> None:
    train = shared_pod("train", "0.5", "g1", uid="1", started_at=started_at)
    view = seen(reservation("g1", A, uid="2", started_at=started_at), train)
    assert owners(view) == {("default/train", (A,), 8 * GIB, 0)}
    assert view.troubles == {}


def test_the_same_sources_in_another_order_give_the_same_view() -> None:
    pods = [reservation("g1", A), shared_pod("x", "0.5", "g1"), pod("y", gpus=1), reservation("g2", B)]
    assert seen(*pods).claims == seen(*reversed(pods)).claims
    assert isinstance(seen(*pods).claims.owners[0], Owner)


STRANGE = "GPU-by-another-name"


def test_a_device_by_a_name_that_no_gpu_has_could_be_every_gpu_of_which_nothing_is_known() -> None:
    view = seen(allocations={"default/train": (STRANGE,)})
    assert owners(view) == {("default/train", (A, B), None, 0)}
    assert view.somewhere == {"default/train": (STRANGE,)}


def test_it_is_one_of_those_that_it_could_be() -> None:
    """A slice that was cut out of its GPU for a claim: the GPU is known, and which of its slices it is, not."""
    view = seen(allocations={"default/train": (STRANGE,)}, could_be={STRANGE: frozenset({B})})
    assert owners(view) == {("default/train", (B,), None, 0)}
    both = {"default/train": (STRANGE,), "default/other": ("GPU-of-no-name",)}
    assert owners(seen(allocations=both, could_be={STRANGE: frozenset({B})})) == {
        ("default/other, default/train", (A, B), None, 0)
    }


def test_it_is_no_gpu_that_somebody_has() -> None:
    notebook = shared_pod("book", "0.5", "g1", managed=True)
    view = seen(reservation("g1", A), notebook, allocations={"default/train": (STRANGE,)})
    assert owners(view) == {("default/train", (B,), None, 0)}
    assert view.homes == {uid(notebook): (A,)}


def test_two_devices_by_such_names_are_one_owner_of_all_that_is_left() -> None:
    view = seen(allocations={"default/a": (STRANGE,), "default/b": (f"{STRANGE}-2", A)})
    assert owners(view) == {("default/a, default/b", (B,), None, 0), ("default/b", (A,), None, 0)}


def test_a_bound_pod_with_such_a_device_waits_for_no_other() -> None:
    train = pod("train", gpus=1, scheduler="default-scheduler")
    view = seen(train, allocations={"default/train": (STRANGE,)})
    assert owners(view) == {("default/train", (), None, 0), ("default/train", (A, B), None, 0)}


def test_a_notebook_of_ours_with_such_a_device_has_no_home_yet() -> None:
    notebook = pod("book", gpus=1, scheduler="default-scheduler", managed=True)
    view = seen(notebook, allocations={"default/book": (STRANGE,)})
    assert view.homes == {uid(notebook): ()}
    assert owners(view) == {("default/book", (A, B), None, 0)}


def test_a_reservation_that_says_which_gpu_it_is_says_it_for_the_kubelet() -> None:
    notebook = shared_pod("book", "0.5", "g1", managed=True)
    allocations = {"kai-resource-reservation/gpu-reservation-g1": (STRANGE,)}
    view = seen(reservation("g1", A), notebook, allocations=allocations)
    assert (owners(view), view.somewhere, view.homes) == (set(), {}, {uid(notebook): (A,)})


def test_such_a_device_of_a_pod_that_has_ended_is_nobodys() -> None:
    view = seen(pod("train", gpus=1, phase="Succeeded"), allocations={"default/train": (STRANGE,)})
    assert (owners(view), view.somewhere) == (set(), {})


def test_a_gpu_that_has_vanished_is_no_other_one() -> None:
    view = seen(allocations={"default/train": (STRANGE,)}, vanished=frozenset({GpuUuid(STRANGE)}))
    assert (owners(view), view.somewhere) == ({("default/train", (STRANGE,), None, 0)}, {})


def test_where_another_daemon_has_the_other_gpus_it_is_one_of_those() -> None:
    assert seen(allocations={"default/train": (STRANGE,)}, whole_node=False).somewhere == {}
