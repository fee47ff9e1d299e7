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
from pages import apply

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


def test_user_ids_do_not_reach_the_page() -> None:
    assert "owner" not in json.dumps(shown())


def test_an_older_daemon_makes_nobody_an_administrator() -> None:
    old = status()
    del old["administrator"]
    assert shown(old)["daemon"]["administrator"] is False


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
states = st.fixed_dictionaries({"daemon": fields, "gpus": parts, "workloads": parts, "history": entries})


@given(states, states)
def test_a_page_that_applies_the_difference_has_the_new_state(before: dict[str, Any], now: dict[str, Any]) -> None:
    page = copy.deepcopy(before)
    delta = json.loads(json.dumps(difference(before, now)))
    apply(page, delta)
    assert page == now
