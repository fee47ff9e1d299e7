from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from nls_jupyter.supervisor.kept_state import Restored
from nls_jupyter.supervisor.notices import (
    Departure,
    NoticeLog,
    came_later,
    clock_time,
    kept,
    ordinal,
    returned,
    standing_line,
    waiting_line,
)

MIB = 2**20
LOST = {"name": "counter", "type_name": "generator", "reason": "a generator cannot be pickled"}


def back(*names: str, missing: tuple[Any, ...] = (), cell: str | None = "[3]", **more: Any) -> Restored:
    return Restored(names=names, missing=missing, memory_bytes=MIB, cell=cell, seconds=0.5, **more)


RETURNS = {
    "a first start says only where": (None, back(), "GPU process ready on GPU 0 after 0.5 s."),
    "a start with what was saved before says what came back": (
        None,
        back("x"),
        "GPU process ready on GPU 0 after 0.5 s: 1 variable kept (1 MiB).",
    ),
    "a move says from where, for whom, and what was not kept": (
        Departure("training needs GPU 1", "GPU 1", 10.0),
        back("x", "y", missing=(LOST,)),
        (
            "Moved from GPU 1 to GPU 0 because training needs GPU 1 (2.0 s): 2 variables kept (1 MiB); "
            "not kept: counter (a generator cannot be pickled)."
        ),
    ),
    "what was not kept is said with the cell that made it": (
        Departure("training needs GPU 1", "GPU 1", 10.0),
        back(missing=(LOST, {**LOST, "name": "rows", "cell": "[4]"}, {**LOST, "name": "lines", "cell": "[4]"})),
        (
            "Moved from GPU 1 to GPU 0 because training needs GPU 1 (2.0 s): 0 variables kept (1 MiB); "
            "not kept: counter (a generator cannot be pickled), "
            "rows, lines (a generator cannot be pickled; made in cell [4])."
        ),
    ),
    "a return to the same GPU says why it was away": (
        Departure("bob needs GPU 0", "GPU 0", 10.0),
        back("x"),
        "Back on GPU 0 after 2.0 s: 1 variable kept (1 MiB). It was away: bob needs GPU 0.",
    ),
    "who was suspended by its user was away and not moved, wherever it comes back": (
        Departure("suspended by its user", "GPU 1", 10.0, kind="said"),
        back("x"),
        "Back on GPU 0 (before: GPU 1) after 2.0 s: 1 variable kept (1 MiB). It was away: suspended by its user.",
    ),
    "a death says how and from which cell the variables are": (
        Departure("the GPU process exited with code 3", "GPU 0", 10.0, died=True),
        back("x"),
        (
            "The GPU process exited with code 3; back on GPU 0 with the variables of cell [3] after 2.0 s: "
            "1 variable kept (1 MiB)."
        ),
    ),
    "a death before anything was saved says so": (
        Departure("the GPU process exited with code 3", "GPU 0", 10.0, died=True),
        back(cell=None),
        "The GPU process exited with code 3; back on GPU 0 after 2.0 s without variables, as none were saved.",
    ),
    "completed cells that are not in it are named": (
        Departure("the GPU process exited with code 3", "GPU 0", 10.0, died=True),
        back("x", gone=("[4]", "[6]")),
        (
            "The GPU process exited with code 3; back on GPU 0 with the variables of cell [3] after 2.0 s: "
            "1 variable kept (1 MiB). It is back as of cell [3]: cells [4] and [6] ran after it and are not in it."
        ),
    ),
    "also where nobody heard why it left, and many of them": (
        None,
        back("x", gone=("[4]", "[5]", "[6]", "[9]")),
        (
            "GPU process ready on GPU 0 after 0.5 s: 1 variable kept (1 MiB). "
            "It is back as of cell [3]: 4 cells from [4] to [9] ran after it and are not in it."
        ),
    ),
    "a single one": (
        None,
        back("x", gone=("[4]",)),
        (
            "GPU process ready on GPU 0 after 0.5 s: 1 variable kept (1 MiB). "
            "It is back as of cell [3]: cell [4] ran after it and is not in it."
        ),
    ),
    "and where nothing was saved at all": (
        Departure("the GPU process exited with code 3", "GPU 0", 10.0, died=True),
        back(cell=None, gone=("[1]", "[2]")),
        (
            "The GPU process exited with code 3; back on GPU 0 after 2.0 s without variables, as none were saved. "
            "Nothing was saved: cells [1] and [2] ran and are lost."
        ),
    ),
    "what is saved and could not be restored is told apart from what is gone": (
        Departure("training needs GPU 1", "GPU 1", 10.0),
        back("x", missing=(LOST,), not_back=({"name": "net", "type_name": "Net", "reason": "no module"},)),
        (
            "Moved from GPU 1 to GPU 0 because training needs GPU 1 (2.0 s): 1 variable kept (1 MiB); "
            "not kept: counter (a generator cannot be pickled); "
            "saved, but could not be restored, and tried again: net (no module)."
        ),
    ),
}


@pytest.mark.parametrize(("left", "restored", "sentence"), RETURNS.values(), ids=RETURNS)
def test_a_return_is_one_sentence(left: Departure | None, restored: Restored, sentence: str) -> None:
    assert returned(left, "GPU 0", restored, 12.0) == sentence


def view(**fields: Any) -> dict[str, Any]:
    plain = {"phase": "queued", "position": 2, "gpus": [], "cause": None, "reason": "GPU 1 is held by training-7"}
    return {**plain, **fields}


def test_the_waiting_line_says_position_holder_and_since_when() -> None:
    cause = {"id": "7", "name": "training-7", "since": "2026-11-21T07:41:37.905+00:00"}
    line = waiting_line(view(cause=cause), 12.3)
    assert re.fullmatch(
        r"waiting for a GPU: 2nd in queue, GPU 1 is held by training-7 "
        r"\(training-7 is there since (\d\d \w+ )?\d\d:\d\d:\d\d\); 12 s so far",
        line,
    )


def test_the_line_of_a_standing_cell_says_since_when_and_for_whom() -> None:
    since = datetime.now().astimezone().replace(microsecond=0)
    line = standing_line(since.timestamp(), "training-7", "GPU 1", 65.2)
    clock = since.strftime("%H:%M:%S")
    assert line == f"the cell stands still since {clock}, for training-7; it goes on when GPU 1 has room (65 s)"
    nobody = standing_line(since.timestamp(), None, "GPU 1", 0.0)
    assert nobody == f"the cell stands still since {clock}; it goes on when GPU 1 has room (0 s)"


def test_the_waiting_line_names_what_it_waits_for() -> None:
    assert waiting_line(view(position=None, cause={"id": "7", "name": "x", "since": None}), 1) == (
        "waiting for a GPU, GPU 1 is held by training-7; 1 s so far"
    )
    assert waiting_line(view(phase="starting", gpus=["GPU 0"]), 1) == "the GPU process starts on GPU 0 … (1 s)"
    assert waiting_line(view(), 1, connected=False).startswith("the node's daemon does not answer")


def test_a_time_of_another_day_has_its_date() -> None:
    assert re.fullmatch(r"\d\d Jan \d\d:\d\d:\d\d", clock_time("2020-01-15T12:00:00.000+00:00"))


def test_important_notices_are_shown_once_and_the_log_has_all() -> None:
    log = NoticeLog()
    log.add("started")
    log.add("moved", important=True)
    assert [notice.text for notice in log.take_unread()] == ["moved"]
    assert log.take_unread() == []
    assert [line.split("  ")[1] for line in log.as_text().splitlines()] == ["started", "moved"]


def test_what_is_told_again_and_again_is_shown_once() -> None:
    log = NoticeLog()
    log.add_once("torch 3.0 has no name")
    assert [notice.text for notice in log.take_unread()] == ["torch 3.0 has no name"]
    log.add_once("torch 3.0 has no name")
    assert log.take_unread() == []


def test_what_could_not_be_shown_is_shown_first_the_next_time() -> None:
    log = NoticeLog()
    log.add("first", important=True)
    unread = log.take_unread()
    log.add("second", important=True)
    log.put_back(unread)
    assert [notice.text for notice in log.take_unread()] == ["first", "second"]


@pytest.mark.parametrize(
    ("number", "word"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st")]
)
def test_ordinals(number: int, word: str) -> None:
    assert ordinal(number) == word


def test_what_was_kept_is_counted() -> None:
    assert kept(back()) == "0 variables kept (1 MiB)"
    assert kept(back("a")) == "1 variable kept (1 MiB)"


def lost(reason: str, *names: str, type_name: str = "IntSlider") -> tuple[dict[str, str], ...]:
    return tuple({"name": name, "type_name": type_name, "reason": reason} for name in names)


def test_what_holds_of_several_names_is_said_once() -> None:
    missing = (*lost("it holds a lock", "a", "b"), *lost("a socket", "s"), *lost("it holds a lock", "c"))
    assert kept(back(missing=missing)) == "0 variables kept (1 MiB); not kept: a, b, c (it holds a lock), s (a socket)"


def test_of_many_some_are_named() -> None:
    missing = lost("it holds a lock", *"abcdefgh")
    assert kept(back(missing=missing)).endswith("not kept: a, b, c, d, e and 3 more (it holds a lock)")
    assert kept(back(missing=missing[:6])).endswith("not kept: a, b, c, d, e, f (it holds a lock)")


def test_what_is_a_result_too_is_not_said_three_times() -> None:
    assert kept(back(missing=lost("a lock", "a", "Out[3]", "_", "__"))).endswith("not kept: a (a lock)")
    assert kept(back(missing=lost("a lock", "_", "Out[3]"))).endswith("not kept: Out[3] (a lock)")
    assert kept(back(missing=lost("a lock", "_"))).endswith("not kept: _ (a lock)")
    others = (*lost("a lock", "a"), *lost("a lock", "Out[3]", type_name="Thread"))
    assert kept(back(missing=others)).endswith("not kept: a, Out[3] (a lock)")


def test_what_comes_back_otherwise_is_said_where_the_kept_ones_are_counted() -> None:
    changed = tuple(
        {"name": name, "type_name": "torch.Tensor", "change": "without its graph"} for name in ("loss", "Out[3]", "w")
    )
    assert kept(back("loss", "w", changed=changed)) == (
        "2 variables kept (1 MiB); changed: loss, w (without its graph)"
    )


def test_what_came_back_later_is_said_and_what_it_does_not_share_any_more() -> None:
    nothing = {"restored": [], "changed": []}
    assert came_later(nothing) is None
    change = {
        "name": "net",
        "type_name": "Net",
        "change": "it came back later than w: what they shared, it has a copy of",
    }
    assert came_later({"restored": ["net"], "changed": [change]}) == (
        "net could not be restored before and is back; "
        "changed: net (it came back later than w: what they shared, it has a copy of)."
    )
