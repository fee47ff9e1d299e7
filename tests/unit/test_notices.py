from __future__ import annotations

import re
from typing import Any

import pytest

from nls_jupyter.keeper import Restored
from nls_jupyter.notices import Departure, NoticeLog, clock_time, kept, ordinal, returned, waiting_line

MIB = 2**20
LOST = {"name": "counter", "type_name": "generator", "reason": "a generator cannot be pickled"}


def back(*names: str, missing: tuple[Any, ...] = (), cell: str | None = "[3]") -> Restored:
    return Restored(names=names, missing=missing, memory_bytes=MIB, cell=cell, seconds=0.5)


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
    "a return to the same GPU says why it was away": (
        Departure("bob needs GPU 0", "GPU 0", 10.0),
        back("x"),
        "Back on GPU 0 after 2.0 s: 1 variable kept (1 MiB). It was away because bob needs GPU 0.",
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
    assert kept([], [], 0) == "0 variables kept (0 B)"
    assert kept(["a"], [], 3 * MIB) == "1 variable kept (3 MiB)"
