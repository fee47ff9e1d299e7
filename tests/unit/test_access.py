from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Kind, Workload, WorkloadSpec
from nls_scheduler.views.veil import Access, NameBook, ShowNames

ANNA, BERT = 1000, 1001


def state(*workloads: tuple[str, str, int, Kind]) -> NodeState:
    made = {
        WorkloadId(id_): Workload(WorkloadId(id_), WorkloadSpec(name, kind, owner, 1, 1), 0.0)
        for id_, name, owner, kind in workloads
    }
    return NodeState(workloads=made)


def entry(owner: int, name: str, reason: str, cause: dict[str, str] | None = None) -> dict[str, Any]:
    return {"owner": owner, "name": name, "kind": "notebook", "reason": reason, "cause": cause}


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


def test_another_users_workload_has_no_name_no_reason_and_no_cause() -> None:
    book = NameBook()
    book.note(state(("a", "diagnosis", ANNA, Kind.NOTEBOOK), ("b", "training", BERT, Kind.COMMAND)))
    shown = book.veil_for(BERT).entry(entry(ANNA, "diagnosis", "waits for training", {"id": "b", "name": "training"}))
    assert shown["name"] == "another user's notebook"
    assert "diagnosis" not in str(shown)
    assert "training" not in str(shown)


def test_the_names_of_another_users_variables_are_hidden_and_ones_own_are_not() -> None:
    book = NameBook()
    book.note(state(("a", "diagnosis", ANNA, Kind.NOTEBOOK)))
    told = {**entry(ANNA, "diagnosis", "it fits"), "missing": ["patients"], "lost_cells": ["[4]"]}
    hidden = book.veil_for(BERT).entry(told)
    assert (hidden["missing"], hidden["lost_cells"]) == ([], [])
    shown = book.veil_for(ANNA).entry(told)
    assert (shown["missing"], shown["lost_cells"]) == (["patients"], ["[4]"])
    assert "missing" not in book.veil_for(BERT).entry(entry(ANNA, "diagnosis", "it fits"))


def test_ones_own_reasons_name_others_only_by_what_they_are() -> None:
    book = NameBook()
    book.note(state(("a", "diagnosis", ANNA, Kind.NOTEBOOK), ("b", "mine", BERT, Kind.COMMAND)))
    own = entry(BERT, "mine", "GPU 1 is held by diagnosis", {"id": "a", "name": "diagnosis"})
    shown = book.veil_for(BERT).entry(own)
    assert shown["reason"] == "GPU 1 is held by another user's workload"
    assert shown["cause"] == {"id": "a", "name": "another user's workload"}
    assert shown["name"] == "mine"


def test_the_name_of_a_cluster_s_pod_is_for_administrators_too() -> None:
    book = NameBook()
    node = state(("a", "mine", ANNA, Kind.NOTEBOOK))
    book.note(replace(node, claims=Claims((Owner("uid-7", "secret/train", devices_to_come=1),))))
    told = entry(ANNA, "mine", "secret/train needs GPU 1", {"id": "uid-7", "name": "secret/train"})
    shown = book.veil_for(ANNA).message(told)
    assert shown["reason"] == "another user's workload needs GPU 1"
    assert "secret" not in str(shown)


def test_names_of_workloads_that_have_ended_stay_hidden() -> None:
    book = NameBook()
    book.note(state(("a", "diagnosis", ANNA, Kind.NOTEBOOK)))
    book.note(state())
    assert book.veil_for(BERT).text("diagnosis held it") == "another user's notebook held it"
    assert book.veil_for(ANNA).text("diagnosis held it") == "diagnosis held it"


def test_a_cause_that_nobody_knows_any_more_is_hidden_too() -> None:
    own = entry(BERT, "mine", "secret-7 needed GPU 0", {"id": "gone", "name": "secret-7"})
    shown = NameBook().veil_for(BERT).entry(own)
    assert shown["reason"] == "another user's workload needed GPU 0"
    assert "secret-7" not in str(shown)


def test_what_a_supervisor_is_sent_is_veiled_in_every_form() -> None:
    book = NameBook()
    book.note(state(("a", "diagnosis", ANNA, Kind.NOTEBOOK), ("b", "mine", BERT, Kind.NOTEBOOK)))
    veil, cause = book.veil_for(BERT), {"id": "a", "name": "diagnosis"}
    order = {"command": "stop_process", "reason": "diagnosis needs GPU 0", "cause": cause}
    view = {"view": entry(BERT, "mine", "diagnosis needs GPU 0", cause)}
    assert "diagnosis" not in str(veil.supervisor_message(order))
    assert "diagnosis" not in str(veil.supervisor_message(view))
    assert veil.supervisor_message({"error": {"status": 400}}) == {"error": {"status": 400}}


def test_names_with_special_letters_are_names_and_no_patterns() -> None:
    book = NameBook()
    book.note(state(("a", "a.c (x)+", ANNA, Kind.NOTEBOOK)))
    assert book.veil_for(BERT).text("abc and a.c (x)+ wait") == "abc and another user's notebook wait"
