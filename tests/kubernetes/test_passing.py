"""Whoever comes or goes disturbs nobody: which news of a cluster are no owner, in whatever order they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.kubernetes_driver.bind_requests import bind_request as parsed_request
from nls_scheduler.kubernetes_driver.passing import LINGER_S, Passing
from nls_scheduler.kubernetes_driver.pods import pod_record
from nls_scheduler.kubernetes_driver.view import Sources, View, look
from objects import SOCKET_DIRECTORY, bind_request, pod, reservation, shared_pod

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId

ZERO, ONE = GpuUuid("GPU-0"), GpuUuid("GPU-1")


@dataclass
class Told:
    """What the watches and the kubelet have told of one node so far; each `look` is at one moment."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    allocations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passing: Passing = field(default_factory=Passing)
    at: float = 0.0

    def see(self, *written: dict[str, Any]) -> View:
        """These pods are there, or have changed."""
        for one in written:
            self.pods[one["metadata"]["name"]] = one
        return self.look()

    def miss(self, *names: str) -> View:
        """Pods are not there any more."""
        for name in names:
            self.pods.pop(name, None)
        return self.look()

    def look(self) -> View:
        records = [r for written in self.pods.values() if (r := pod_record(written, SOCKET_DIRECTORY)) is not None]
        parsed = [r for written in self.requests.values() if (r := parsed_request(written)) is not None]
        requests = {request.uid: request for request in parsed}
        self.passing = self.passing.after(self.at, records, requests, self.allocations)
        return look(
            Sources(
                "node-a",
                {record.uid: record for record in records},
                bind_requests=tuple(self.passing.requests.values()),
                allocations=self.allocations,
                capacities={ZERO: 16 * GIB, ONE: 16 * GIB},
                spent=self.passing.spent(records),
                departed=self.passing.reservations,
            )
        )


def names(view: View) -> list[str]:
    return [owner.name for owner in view.claims.owners]


BOOK = "book"


def ours(name: str = BOOK, group: str = "g0") -> dict[str, Any]:
    return shared_pod(name, "0.5", group, managed=True, uid=f"uid-{name}")


def test_a_reservation_that_has_been_told_to_end_is_no_owner() -> None:
    assert names(Told().see(reservation("g0", ZERO, dying=True))) == []
    assert names(Told().see(reservation("g0", ZERO))) == ["kai-resource-reservation/gpu-reservation-g0"]


def test_a_pod_that_has_been_told_to_end_waits_for_no_device() -> None:
    told = Told(allocations={"default/train": (ZERO,)})
    train = pod("train", gpus=1, scheduler="default-scheduler")
    ending = pod("train", gpus=1, scheduler="default-scheduler", uid=train["metadata"]["uid"], dying=True)
    told.see(train)
    assert told.see(ending).claims.owners[0].gpus == (ZERO,), "its container may go on for a while"
    told.allocations = {}
    assert names(told.look()) == [], "a finalizer may keep it there for long"


def test_a_part_that_has_been_told_to_end_and_whose_reservation_has_gone_waits_for_no_device() -> None:
    told = Told()
    told.see(reservation("g0", ZERO), shared_pod("train", "0.5", "g0"))
    ending = shared_pod("train", "0.5", "g0", dying=True)
    assert told.see(ending).claims.owners[0].gpus == (ZERO,)
    told.requests = {"train": bind_request("train", groups=["g0"])}
    assert names(told.miss("gpu-reservation-g0")) == []


def test_a_pod_that_has_been_told_to_end_and_still_runs_keeps_its_device() -> None:
    ending = pod("train", gpus=1, scheduler="default-scheduler", dying=True, started_at="2026-11-23T09:00:00Z")
    assert [owner.devices_to_come for owner in Told().see(ending).claims.owners] == [1]


def test_a_pod_that_has_been_told_to_end_keeps_a_device_of_which_the_kubelet_says_nothing() -> None:
    ending = pod_record(pod("train", gpus=1, scheduler="default-scheduler", dying=True), SOCKET_DIRECTORY)
    assert ending is not None
    assert [o.devices_to_come for o in look(Sources("node-a", {ending.uid: ending})).claims.owners] == [1]


def test_a_reservation_whose_last_pod_has_gone_is_no_owner() -> None:
    told = Told()
    told.see(reservation("g0", ZERO), ours())
    assert names(told.miss(BOOK)) == []
    assert told.look().claims.allocated == {ZERO}, "no device to come is looked for there"
    assert names(told.see(shared_pod("train", "0.5", "g0"))) == ["default/train"]


def test_a_reservation_that_has_gone_is_no_owner_while_the_kubelet_still_tells_of_it() -> None:
    told = Told(allocations={"kai-resource-reservation/gpu-reservation-g0": (ZERO,)})
    told.see(reservation("g0", ZERO), ours())
    told.miss(BOOK)
    assert names(told.miss("gpu-reservation-g0")) == []
    told.allocations = {}
    told.look()
    assert told.passing.reservations == frozenset()


def test_a_reservation_that_only_the_kubelet_knows_of_is_an_owner() -> None:
    told = Told(allocations={"kai-resource-reservation/gpu-reservation-x": (ONE,)})
    assert names(told.look()) == ["kai-resource-reservation/gpu-reservation-x"]


def test_a_pod_that_was_deleted_by_force_owns_its_device_until_the_kubelet_has_it_back() -> None:
    told = Told(allocations={"default/train": (ONE,)})
    told.see(pod("train", gpus=1))
    assert names(told.miss("train")) == ["default/train"]


def test_a_bind_request_that_is_seen_to_go_before_its_pod_is_seen_bound_leaves_no_lonely_reservation() -> None:
    told = Told(requests={"r": bind_request("book", groups=["g1"])})
    told.passing = Passing()
    told.requests["r"]["metadata"]["name"] = "book"
    told.see(reservation("g1", ONE))
    told.requests.clear()
    view = told.look()
    assert "kai-resource-reservation/gpu-reservation-g1" not in names(view)
    told.at += LINGER_S + 0.1
    told.look()
    assert told.passing.requests == {}


@pytest.mark.parametrize("groups", [None, ["g1"]])
def test_a_decision_that_is_seen_carried_out_before_its_pod_is_seen_bound_holds_for_that_moment(
    groups: list[str] | None,
) -> None:
    told = Told(requests={"r": bind_request("train", groups=groups)})
    decided = told.see(reservation("g1", ONE), ours(group="g1")).claims
    told.requests["r"] = {**told.requests["r"], "status": {"phase": "Succeeded"}}
    assert told.look().claims == decided
    told.at += LINGER_S
    assert names(told.look()) == []


def test_a_decision_that_another_one_of_its_pod_follows_is_over_at_once() -> None:
    told = Told(requests={"r": bind_request("train")})
    told.look()
    told.requests = {"s": bind_request("train")}
    assert names(told.look()) == ["default/train"]


def test_two_reservations_of_a_group_of_which_one_is_ending_are_no_contradiction() -> None:
    old = reservation("g0", ZERO, "old", dying=True, uid="a")
    view = Told().see(old, reservation("g0", ONE, "new", uid="b"), ours())
    assert (names(view), view.homes, view.troubles) == ([], {"uid-book": (ONE,)}, {})


@pytest.mark.parametrize("asked", [True, False])
def test_a_request_of_a_pod_that_is_being_asked_for_is_nobody_s_yet(asked: bool) -> None:
    request = parsed_request(bind_request("book", groups=["g-new"]))
    assert request is not None
    asked_for = frozenset({"default/book"} if asked else ())
    view = look(Sources("node-a", {}, bind_requests=(request,), asked_for=asked_for))
    assert names(view) == ([] if asked else ["default/book"])


STEP = st.one_of(
    st.tuples(st.just("come"), st.sampled_from(["a", "b", "c"]), st.sampled_from(["g0", "g1"])),
    st.tuples(st.just("train"), st.sampled_from(["x", "y"]), st.sampled_from(["g0", "g1", "g2"])),
    st.tuples(st.just("die"), st.sampled_from(["a", "b", "c", "x", "y"]), st.just("")),
    st.tuples(st.just("wait"), st.integers(1, 40), st.just("")),
)


class History:
    """Pods that come and go on two Gpus in KAI's own steps, and notebooks in those of ours that are moved about."""

    def __init__(self) -> None:
        self.told = Told()
        self.node = SimulatedNode.of(2, 16 * GIB, Policy(reclaim_deadline_s=3.0, stop_grace_s=0.5, cool_down_s=5.0))
        self.books: dict[str, WorkloadId] = {}

    def come(self, name: str, group: str, *, managed: bool) -> None:
        """KAI's order: BindRequest, reservation, label and binding, and the BindRequest goes."""
        there = [written for written in self.told.pods.values() if _group(written) == group]
        members = [written for written in there if written["metadata"]["namespace"] == "default"]
        gpu = self._gpu(group)
        if name in self.told.pods or len(members) >= 2 or gpu is None:
            return
        bound = shared_pod(name, "0.5", group, managed=managed, uid=f"uid-{name}")
        self.told.requests[name] = bind_request(name, groups=[group])
        if managed:
            self.told.requests.clear()  # it is known at once to be ours
        self.look()
        if not there:
            self.told.see(reservation(group, gpu))
            self.told.allocations[f"kai-resource-reservation/gpu-reservation-{group}"] = (gpu,)
        self.told.requests.clear()
        self.told.see(bound)
        self.look()
        if managed:
            self.books[name] = self.node.submit(given_home=(gpu,), request_bytes=8 * GIB, limit_bytes=16 * GIB)
            self.node.settle()

    def _gpu(self, group: str) -> GpuUuid | None:
        for written in self.told.pods.values():
            if written["metadata"]["name"] == f"gpu-reservation-{group}":
                return GpuUuid(written["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"])
        taken = {gpu for gpus in self.told.allocations.values() for gpu in gpus}
        return next((gpu for gpu in (ZERO, ONE) if gpu not in taken), None)

    def die(self, name: str) -> None:
        """The pod, then the reservation that it was the last of, then the kubelet's word for that."""
        written = self.told.pods.get(name)
        if written is None:
            return
        if name in self.books:
            self.node.release(self.books.pop(name))
            self.node.settle()
        self.told.miss(name)
        self.look()
        group = _group(written)
        if any(_group(other) == group and other["metadata"]["name"] in "abcxy" for other in self.told.pods.values()):
            return
        self.told.see({**(old := self.told.pods[f"gpu-reservation-{group}"]), "metadata": _dying(old["metadata"])})
        self.look()
        self.told.miss(f"gpu-reservation-{group}")
        self.look()
        self.told.allocations.pop(f"kai-resource-reservation/gpu-reservation-{group}", None)
        self.look()

    def look(self) -> None:
        """The claims of this moment; owners are pods that are nobody's of ours, and nothing else."""
        view = self.told.look()
        strangers = {f"default/{name}" for name in (*self.told.pods, *self.told.requests) if name in ("x", "y")}
        assert {owner.name for owner in view.claims.owners} <= strangers, view.claims
        if view.claims != self.node.state.claims:
            self.node.tell(ev.GpusClaimed(self.node.now, view.claims))
        self.node.settle()


def _group(written: dict[str, Any]) -> str:
    return str(written["metadata"]["labels"].get("runai-gpu-group"))


def _dying(metadata: dict[str, Any]) -> dict[str, Any]:
    return {**metadata, "deletionTimestamp": "2026-11-23T10:00:00Z"}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEP, min_size=3, max_size=16))
def test_nobody_moves_but_for_a_pod_that_needs_the_gpu_or_for_a_gain(steps: list[tuple[str, Any, str]]) -> None:
    history = History()
    for kind, value, group in steps:
        if kind == "wait":
            history.told.at += value
            history.node.advance(value)
        elif kind == "die":
            history.die(value)
        else:
            history.come(value, group, managed=kind == "come")
        owners = {owner.id for owner in history.node.state.claims.owners}
        for workload in history.node.state.workloads.values():
            why = workload.last_reason
            if why.kind is Reason.NEEDED and workload.moved_at == history.node.now:
                assert {mention.id for mention in why.who} & {*owners, *history.node.state.workloads}, why


def homeward(*, comes_back: bool) -> tuple[SimulatedNode, WorkloadId]:
    """Two at home on GPU 0 of which one borrows GPU 1; the other one ends."""
    node = SimulatedNode.of(2, 16 * GIB, Policy(cool_down_s=5.0))
    first, second = (node.submit(given_home=(ZERO,)) for _ in range(2))
    node.settle()
    node.advance(60)
    borrower = next(key for key in (first, second) if node.state.workloads[key].current == (ONE,))
    if comes_back:
        node.release(first if borrower == second else second)
    node.settle()
    return node, borrower


def test_a_borrower_goes_home_when_its_home_has_room_and_nobody_gains_by_its_staying() -> None:
    node, borrower = homeward(comes_back=True)
    node.advance(60)
    assert node.state.workloads[borrower].current == (ZERO,)
    count = len(node.history)
    node.advance(600)
    assert not any(commands for _, commands in node.history[count:]), "and stays there"
    node.tell(ev.GpusClaimed(node.now, type(node.state.claims)((Owner("x", "default/x", (ONE,)),))))
    assert not node.pending, "the next owner waits for nobody"


def test_a_borrower_stays_where_its_going_home_would_take_from_somebody() -> None:
    node, borrower = homeward(comes_back=False)
    node.advance(600)
    assert node.state.workloads[borrower].current == (ONE,)


def test_a_borrower_whose_cell_runs_goes_home_after_it() -> None:
    node, borrower = homeward(comes_back=False)
    other = next(key for key in node.state.workloads if key != borrower)
    node.start_cell(borrower)
    node.release(other)
    node.settle()
    node.advance(60)
    assert node.state.workloads[borrower].current == (ONE,)
    node.finish_cell(borrower)
    node.settle()
    node.advance(60)
    assert node.state.workloads[borrower].current == (ZERO,)
