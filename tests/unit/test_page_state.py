"""What a page shows, and the differences that it is sent."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon_process import ROOT
from nls_jupyter_server.page_state import difference, page_state, steadied, unreachable
from nls_scheduler.core.model.queues import Queue
from nls_scheduler.views.status import node_view
from pages import apply
from stage import Stage

SAMPLES = ROOT / "labextension" / "samples"
ME = 1000


def status() -> dict[str, Any]:
    return json.loads((SAMPLES / "daemon_status.json").read_text())


def history() -> list[dict[str, Any]]:
    return json.loads((SAMPLES / "daemon_history.json").read_text())["entries"]


def shown(changed: dict[str, Any] | None = None) -> dict[str, Any]:
    return page_state(changed or status(), history(), ME, {"w-alice": ("kernel-1", "alice.ipynb")})


def test_the_sample_that_the_browsers_tests_use_is_what_the_server_makes_of_the_daemons() -> None:
    assert shown() == json.loads((SAMPLES / "snapshot.json").read_text())["snapshot"]


def test_a_workload_is_own_only_if_it_is_the_servers_users() -> None:
    own = {w["name"]: w["own"] for w in shown()["workloads"].values()}
    assert own == {"alice.ipynb": True, "bob.ipynb": True, "training": False}


@pytest.mark.parametrize("own", [True, False])
def test_whose_a_workload_is_the_daemon_says_since_users_of_two_pods_may_have_one_id(own: bool) -> None:
    anothers, past = status(), history()
    for entry in (*anothers["workloads"], *past):
        entry |= {"owner": ME, "own": own}
    seen = page_state(anothers, past, ME, {})
    assert {entry["own"] for entry in (*seen["workloads"].values(), *seen["history"])} == {own}


def test_of_a_daemon_from_before_it_says_so_the_user_id_says_whose_a_workload_is() -> None:
    older, past = status(), history()
    for entry in (*older["workloads"], *past):
        del entry["own"]
    assert page_state(older, past, ME, {}) == page_state(status(), history(), ME, {})


def test_user_ids_do_not_reach_the_page() -> None:
    assert "owner" not in json.dumps(shown())


def test_an_older_daemon_makes_nobody_an_administrator() -> None:
    old = status()
    del old["administrator"]
    assert shown(old)["daemon"]["administrator"] is False


def test_a_daemon_from_before_a_field_is_shown_without_it() -> None:
    old = status()
    for entry in (*old["gpus"], *old["workloads"]):
        for name in ("pool", "cell_waits", "claimed", "keep_until"):
            entry.pop(name, None)
    seen = shown(old)
    assert {gpu["pool"] for gpu in seen["gpus"].values()} == {None}
    fields = {(w["cell_waits"], w["claimed"], w["keep_until"]) for w in seen["workloads"].values()}
    assert fields == {(True, False, None)}


@pytest.mark.parametrize(
    ("last", "moving"),
    [("resumed", True), ("started", True), ("moved", True), ("suspended", False), ("exited", False), (None, False)],
)
def test_who_left_a_gpu_to_be_on_another_moves_and_who_was_away_comes_back(last: str | None, moving: bool) -> None:
    coming = status()
    coming["workloads"][0] |= {"phase": "starting", "saved_bytes": 5}
    own = coming["workloads"][0]["id"]
    past = [] if last is None else [{**history()[0], "event": "started"}, {**history()[0], "event": last}]
    assert page_state(coming, past, ME, {})["workloads"][own]["moving"] is moving


def test_names_of_anothers_variables_do_not_reach_the_page() -> None:
    entry = {**history()[1], "missing": ["secret"], "lost_cells": ["[4]"]}
    shown = page_state(status(), [entry], ME, {})["history"][0]
    assert (shown["missing"], shown["lost_cells"]) == (["secret"], ["[4]"])
    assert "secret" not in json.dumps(page_state(status(), [{**entry, "own": False}], ME, {}))


def test_a_millisecond_in_the_time_until_when_it_is_kept_is_no_change() -> None:
    before, now = status(), status()
    before["workloads"][0]["keep_until"] = "2026-11-21T10:10:00.001+00:00"
    now["workloads"][0]["keep_until"] = "2026-11-21T10:09:59.999+00:00"
    assert difference(shown(before), steadied(shown(before), shown(now), keep_figures=False)) == {}
    now["workloads"][0]["keep_until"] = None
    assert difference(shown(before), steadied(shown(before), shown(now), keep_figures=False)) != {}


def test_who_is_there_no_more_is_not_kept_for_its_times_to_be_steady() -> None:
    before, now = status(), status()
    waits, waits_now = (next(w for w in each["workloads"] if w["cause"]) for each in (before, now))
    waits["cause"]["since"] = waits["since"] = "2026-11-21T10:10:00.001+00:00"
    waits_now["cause"]["since"] = waits_now["since"] = "2026-11-21T10:09:59.999+00:00"
    assert difference(shown(before), steadied(shown(before), shown(now), keep_figures=False)) == {}
    waits_now["cause"]["since"] = None
    steady = steadied(shown(before), shown(now), keep_figures=False)
    assert steady["workloads"][waits["id"]]["cause"]["since"] is None
    waits_now["cause"]["since"] = "2026-11-21T10:30:00+00:00"
    steady = steadied(shown(before), shown(now), keep_figures=False)
    assert steady["workloads"][waits["id"]]["cause"] == waits_now["cause"]


def test_queues_come_as_the_daemon_orders_them_and_an_older_daemon_has_none() -> None:
    assert [(q["order"], q["name"], q["parent"]) for q in shown()["queues"].values()] == [
        (0, "research", None),
        (1, "vision", "research"),
        (2, "default", None),
    ]
    older = status()
    del older["queues"]
    for workload in older["workloads"]:
        del workload["queue"]
    seen = shown(older)
    assert seen["queues"] == {}
    assert {workload["queue"] for workload in seen["workloads"].values()} == {None}


def test_the_real_daemons_queues_are_what_the_page_expects() -> None:
    real = Stage(1, queues=(Queue("a", quota={"default": 1.0}), Queue("b", parent="a")))
    real.command("one", queue="b")
    queues = node_view(real.node.state, 0.0, simulated=True, message=None)["queues"]
    seen = page_state({**status(), "queues": queues}, history(), ME, {})["queues"]
    sample = shown()["queues"]["vision"]
    assert [set(queue) for queue in seen.values()] == [set(sample)] * len(queues)
    assert set(seen["b"]["pools"][0]) == set(sample["pools"][0])
    assert seen["b"]["pools"][0]["used"] == 1


def test_without_the_daemon_its_queues_go_too() -> None:
    assert unreachable("No daemon is running.", shown())["queues"] == {}


def test_a_daemon_that_speaks_otherwise_is_an_error_and_not_half_a_state() -> None:
    other = status()
    del other["workloads"][0]["phase"]
    with pytest.raises(KeyError):
        shown(other)


def test_nothing_changed_is_no_message() -> None:
    assert difference(shown(), shown()) == {}


def test_a_difference_has_the_changed_fields_only() -> None:
    moved = status()
    moved["workloads"][0]["gpus"] = ["GPU 1"]
    delta = difference(shown(), shown(moved))
    assert delta == {"workloads": {moved["workloads"][0]["id"]: {"gpus": ["GPU 1"]}}}


def test_without_the_daemon_nothing_old_is_shown_as_current() -> None:
    gone = unreachable("No daemon is running.", shown())
    assert (gone["gpus"], gone["workloads"]) == ({}, {})
    assert gone["history"] == shown()["history"]
    assert gone["daemon"]["message"] == "No daemon is running."


def test_figures_wait_but_changes_do_not() -> None:
    later = status()
    later["workloads"][0] |= {"memory_used_bytes": 5, "executing": False}
    later["gpus"][0]["utilisation"] = 0.9
    kept = steadied(shown(), shown(later), keep_figures=True)
    name = later["workloads"][0]["id"]
    assert difference(shown(), kept) == {"workloads": {name: {"executing": False}}}
    assert difference(shown(), steadied(shown(), shown(later), keep_figures=False))["gpus"]


def test_a_new_process_does_not_keep_the_figures_of_the_old_one() -> None:
    later = status()
    later["workloads"][0] |= {"memory_used_bytes": 0, "phase": "suspended"}
    kept = steadied(shown(), shown(later), keep_figures=True)
    assert kept["workloads"][later["workloads"][0]["id"]]["memory_used_bytes"] == 0


def test_a_millisecond_of_the_clocks_is_no_change() -> None:
    later = status()
    later["workloads"][0]["since"] = "2026-11-21T10:00:00.001+00:00"
    assert difference(shown(), steadied(shown(), shown(later), keep_figures=False)) == {}


def test_a_history_that_begins_anew_is_sent_whole() -> None:
    before, now = shown(), shown()
    now["history"] = [{**now["history"][0], "sequence": 1, "reason": "another journal"}]
    assert difference(before, now) == {"history": now["history"], "history_anew": True}


fields = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.none() | st.text(max_size=2)})
parts = st.dictionaries(st.sampled_from("xyz"), fields)
entries = st.integers(0, 6).map(lambda n: [{"sequence": i} for i in range(n)])
states = st.fixed_dictionaries(
    {"daemon": fields, "gpus": parts, "workloads": parts, "queues": parts, "history": entries}
)


@given(states, states)
def test_a_page_that_applies_the_difference_has_the_new_state(before: dict[str, Any], now: dict[str, Any]) -> None:
    page = copy.deepcopy(before)
    delta = json.loads(json.dumps(difference(before, now)))
    apply(page, delta)
    assert page == now
