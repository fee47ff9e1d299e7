"""Who reads whose names: in the status, the history, an explanation and what is told of an order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nls_scheduler.core.model.events import GpusClaimed
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.reasons import NOBODY, Mention, Reason, Why, said
from nls_scheduler.views.entries import Entry, as_record, entry_view, from_record, restored
from nls_scheduler.views.explain import explain
from nls_scheduler.views.metrics import Metrics
from nls_scheduler.views.sentences import Names, sentence
from nls_scheduler.views.status import node_view, settled_part, workload_view
from nls_scheduler.views.veil import HIDDEN_REASON, SEES_ALL, Access, ShowNames, Viewer
from stage import Stage

ANNA, BERT = 1000, 1001
BOOK, RUN = Mention("a", "diagnosis", "notebook", ANNA), Mention("b", "training", "command", BERT)
POD = Mention("uid-7", "secret/train", "pod")
UNKNOWN = Mention("gone", "gone", "workload")


def entry(about: Mention, why: Why, cause: Mention | None = None, **more: Any) -> Entry:
    return Entry(1, 1.5, "2026-01-01T00:00:00", about, "moved", why, cause=cause, **more)


def needed_by(who: Mention) -> Why:
    return Why(Reason.NEEDED, who=(who,))


@pytest.mark.parametrize(
    ("choice", "shared", "user", "administrator"),
    [
        ("auto", False, True, True), ("auto", True, False, True), ("all", True, True, True),
        ("admins", False, False, True), ("own", False, False, False),
    ],
)  # fmt: skip
def test_who_reads_all_names(choice: ShowNames, shared: bool, user: bool, administrator: bool) -> None:
    access = Access(None, choice).settled(shared=shared)
    assert access.sees_all(administrator=False) is user
    assert access.sees_all(administrator=True) is administrator
    assert access.viewer(ANNA, "", administrator=False) == Viewer(ANNA, "", user)


@pytest.mark.parametrize(
    ("viewer", "knows"),
    [
        (SEES_ALL, True),
        (Viewer(ANNA), True),
        (Viewer(BERT), False),
        (Viewer(ANNA, "another pod's"), False),
        (Viewer(), False),
    ],
)
def test_ones_own_are_those_of_ones_user_id_and_tenant(viewer: Viewer, knows: bool) -> None:
    assert viewer.knows(BOOK) is knows
    assert viewer.calls(BOOK) == ("diagnosis" if knows else "another user's notebook")


def test_nobody_s_is_nobody_s_own() -> None:
    assert not Viewer(NOBODY).knows(POD)
    assert not Viewer(NOBODY).owns(POD)


@pytest.mark.parametrize(
    ("viewer", "own"),
    [
        (Viewer(ANNA, "anna's pod"), True), (Viewer(ANNA, "anna's pod", sees_all=True), True), (SEES_ALL, False),
        (Viewer(ANNA, "bert's pod", sees_all=True), False), (Viewer(ANNA), False), (Viewer(BERT, "anna's pod"), False),
    ],
)  # fmt: skip
def test_everything_that_is_told_of_a_workload_says_whether_it_is_the_asker_s_own(viewer: Viewer, own: bool) -> None:
    stage = Stage(1)
    stage.notebook("book", 0.5, 1.0, owner=ANNA, tenant="anna's pod")
    node, book = stage.node, stage.workload("book")
    status = node_view(node.state, node.now, viewer, simulated=True, message=None)
    told = [*status["workloads"], workload_view(node.state, book, node.now, Names.of(node.state, viewer))]
    told.append(entry_view(entry(book.mention, said("it fits")), viewer))
    assert [each["own"] for each in told] == [own] * 3


@pytest.mark.parametrize(("viewer", "name"), [(SEES_ALL, "ml/diagnosis"), (Viewer(ANNA), "another user's pod")])
def test_a_pod_that_owns_a_gpu_is_named_for_who_reads_all_names(viewer: Viewer, name: str) -> None:
    state = Stage(2).node.state
    uuid, _ = sorted(state.gpus)
    claims = Claims((Owner("uid-1", "ml/diagnosis", (uuid,), 4096, 1),))
    status = node_view(replace(state, claims=claims), 0.0, viewer, simulated=True, message=None)
    owns = [{"uuid": uuid, "request_bytes": 4096}]
    assert status["owners"] == [{"name": name, "gpus": owns, "devices_to_come": 1}]
    assert "uid-1" not in str(status)


def test_another_users_workload_has_no_name_no_reason_and_no_cause() -> None:
    shown = entry_view(entry(BOOK, needed_by(RUN), RUN, missing=("patients",), lost_cells=("[4]",)), Viewer(BERT))
    assert shown["name"] == "another user's notebook"
    assert (shown["reason"], shown["cause"]) == (HIDDEN_REASON, {"id": "b", "name": "somebody"})
    assert (shown["missing"], shown["lost_cells"]) == ([], [])
    assert "diagnosis" not in str(shown)
    assert "training" not in str(shown)


def test_the_names_of_ones_own_variables_are_told() -> None:
    shown = entry_view(entry(BOOK, said("it fits"), missing=("patients",), lost_cells=("[4]",)), Viewer(ANNA))
    assert (shown["missing"], shown["lost_cells"]) == (["patients"], ["[4]"])


@pytest.mark.parametrize(
    ("cause", "called"),
    [
        (BOOK, "another user's notebook"),
        (POD, "another user's pod"),
        (UNKNOWN, "another user's workload"),
        (RUN, "training"),
    ],
)
def test_ones_own_reasons_name_others_only_by_what_they_are(cause: Mention, called: str) -> None:
    own = Mention("m", "mine", "notebook", BERT)
    shown = entry_view(entry(own, needed_by(cause), cause), Viewer(BERT))
    assert shown["reason"] == f"{called} needs "
    assert shown["cause"] == {"id": cause.id, "name": called}
    assert shown["name"] == "mine"


def test_an_entry_is_kept_in_the_journal_with_all_that_it_takes_to_tell_it_again() -> None:
    kept = entry(BOOK, needed_by(RUN), RUN, left="GPU 0", seconds=1.5, bytes=7, missing=("x",))
    assert from_record(json.loads(json.dumps(as_record(kept)))) == kept


def test_an_entry_tells_the_gpus_as_they_were_called_then() -> None:
    stage = Stage(1)
    gpu = stage.uuid(0)
    told = entry(BOOK, Why(Reason.NEEDED, gpus=(gpu,), who=(RUN,)), labels={gpu: "GPU 5"})
    assert entry_view(from_record(as_record(told)))["reason"] == "training needs GPU 5"


def test_an_entry_that_cannot_be_read_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    kept = entry(BOOK, needed_by(RUN), RUN)
    newer = as_record(kept)
    newer["why"] = {**newer["why"], "kind": {"$": "Reason", "value": "a-kind-of-next-year"}}
    assert list(restored([newer, {**as_record(kept), "weather": "rain"}, {"sequence": 3}, as_record(kept)])) == [kept]
    assert caplog.text.count("cannot be read and is left out") == 3


OF_AN_EARLIER_VERSION = {
    "sequence": 3, "at": 1.5, "time": "2026-01-01T00:00:00", "workload": "a", "name": "diagnosis", "kind": "notebook",
    "owner": ANNA, "event": "moved", "reason": "training needs GPU 0", "cause": {"id": "b", "name": "training"},
    "from": "GPU 0", "to": "GPU 1", "seconds": 1.5, "bytes": 7, "missing": ["x"], "lost_cells": [],
}  # fmt: skip


def as_it_was(reason: str) -> dict[str, object]:
    return {"template": "%1", "arguments": [reason]}


def test_an_entry_of_an_earlier_version_is_told_as_it_was_to_those_who_may_read_all_names() -> None:
    kept = from_record(OF_AN_EARLIER_VERSION)
    anew = {"reason_parts": as_it_was("training needs GPU 0"), "own": False}
    assert entry_view(kept) == {**OF_AN_EARLIER_VERSION, **anew}
    assert "training" not in str(entry_view(kept, Viewer(ANNA)))
    assert entry_view(kept, Viewer(ANNA))["name"] == "diagnosis"
    assert "diagnosis" not in str(entry_view(kept, Viewer(BERT)))


def test_what_an_earlier_version_told_of_a_gpu_is_everybody_s_business() -> None:
    nothing = dict.fromkeys(("workload", "owner", "cause", "from", "to", "seconds", "bytes"))
    told = {"name": "GPU 0", "kind": "gpu", "event": "gpu_unhealthy", "reason": "Xid 79"}
    kept = {**OF_AN_EARLIER_VERSION, **nothing, **told, "missing": [], "lost_cells": []}
    assert entry_view(from_record(kept), Viewer(BERT)) == {**kept, "reason_parts": as_it_was("Xid 79"), "own": False}


def test_the_kind_of_a_reason_is_for_those_who_read_the_reason() -> None:
    stage = Stage(1)
    stage.command("theirs", owner=BERT)
    views = [
        workload_view(stage.node.state, stage.workload("theirs"), stage.node.now, Names.of(stage.node.state, viewer))
        for viewer in (Viewer(ANNA), Viewer(BERT), SEES_ALL)
    ]
    assert [view["reason_kind"] for view in views] == [None, "at-home", "at-home"]
    assert [view["reason"] == HIDDEN_REASON for view in views] == [True, False, False]


def crowd(*theirs: str) -> Stage:
    """A GPU that BERT's workloads fill and want, and ANNA's notebook, which waits behind them."""
    stage = Stage(1)
    for name in theirs:
        stage.command(name, owner=BERT)
    stage.notebook("mine", 0.5, 1.0, owner=ANNA)
    stage.cell_starts("mine")
    return stage


def read_by_anna(stage: Stage) -> str:
    state, at, viewer = stage.node.state, stage.node.now, Viewer(ANNA)
    mine = stage.workload("mine")
    status = node_view(state, at, viewer, simulated=True, message=None)
    shown = [explain(state, mine.id, at, viewer), settled_part(workload_view(state, mine, at, Names.of(state, viewer)))]
    return json.dumps([*map(settled_part, status["workloads"]), *shown])


@pytest.mark.parametrize("name", ["is", "GPU", "a", "no", "room", "0", "{w.who}"])
def test_what_others_call_theirs_changes_nothing_in_what_one_reads(name: str) -> None:
    reads, as_before = read_by_anna(crowd(name, name)), read_by_anna(crowd("diagnosis", "diagnosis"))
    assert reads == as_before
    assert "diagnosis" not in as_before
    assert "GPU 0 is held by another user's command" in as_before


def test_the_name_of_a_cluster_s_pod_is_for_those_who_read_all_names() -> None:
    stage = Stage(1)
    owner = Owner("uid-7", "secret/train", (stage.uuid(0),))
    stage.node.tell(GpusClaimed(stage.node.now, Claims((owner,))))
    stage.notebook("mine", 0.5, 1.0, owner=ANNA)
    assert "GPU 0 is held by another user's pod" in read_by_anna(stage)
    assert "secret" not in read_by_anna(stage)
    assert "GPU 0 is held by secret/train" in sentence(stage.reason("mine"), Names.of(stage.node.state))


def a_gang_that_waits(owner: int) -> Stage:
    """Of three members one is still to come, and of a whole one not all have room beside ANNA's notebook."""
    stage = Stage(1)
    stage.notebook("mine", 0.5, 1.0, owner=ANNA)
    stage.cell_starts("mine")
    stage.gang("layoffs", 2, size=3, request=0.5, owner=owner)
    stage.gang("mergers", 2, request=0.5, owner=owner)
    return stage


def test_the_status_names_gangs_of_others_as_theirs() -> None:
    state = a_gang_that_waits(BERT).node.state
    for viewer, gangs in (
        (Viewer(ANNA), {None, "another user's gang"}),
        (Viewer(BERT), {None, "layoffs", "mergers"}),
        (SEES_ALL, {None, "layoffs", "mergers"}),
    ):
        shown = node_view(state, state.at, viewer, simulated=True, message=None)
        assert {entry["gang"] for entry in shown["workloads"]} == gangs
        if viewer == Viewer(ANNA):
            assert not any(name in json.dumps(shown) for name in ("layoffs", "mergers"))


def test_no_explanation_names_a_gang_of_others() -> None:
    stage = a_gang_that_waits(BERT)
    state = stage.node.state
    for workload in state.workloads.values():
        told = json.dumps(explain(state, workload.id, state.at, Viewer(ANNA)))
        assert not any(name in told for name in ("layoffs", "mergers"))
    own = json.dumps(explain(state, stage.workload("layoffs-0").id, state.at, Viewer(BERT)))
    assert "members of gang layoffs" in own


def test_no_entry_of_the_history_names_a_gang_of_others() -> None:
    for why in (
        Why(Reason.GANG_INCOMPLETE, numbers=(1, 3), names=("layoffs",)),
        Why(Reason.GANG_MEMBER_ENDED, who=(RUN,), names=("layoffs",), because=(said("exited with code 1"),)),
        Why(Reason.GAVE_UP, numbers=(3,), because=(Why(Reason.GANG_STARTS_AGAIN, names=("layoffs",)),)),
    ):
        assert "layoffs" in json.dumps(entry_view(entry(RUN, why), Viewer(BERT)))
        assert "layoffs" not in json.dumps(entry_view(entry(RUN, why), Viewer(ANNA)))


def test_metrics_name_no_workload_and_no_gang() -> None:
    state = a_gang_that_waits(BERT).node.state
    told = Metrics(lambda: state).text().decode()
    assert "nls_workloads_waiting" in told
    assert not any(name in told for name in ("layoffs", "mergers", "mine"))
