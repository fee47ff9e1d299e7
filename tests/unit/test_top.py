"""What `nls top` draws and what its keys do, as text."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.text import Text

from nls_scheduler.cli.live.choices import Choices, Order, Page, Prompt, Wish, listed, pressed, selected
from nls_scheduler.cli.live.drawing import Canvas, entry_text, frame, sizes_text
from nls_scheduler.cli.live.glyphs import ASCII, BLOCKS, glyphs_for
from nls_scheduler.cli.live.keys import Keys
from nls_scheduler.cli.live.terminal import Terminal
from nls_scheduler.client.following import Look
from nls_scheduler.views.bars import pieces
from nls_scheduler.wire.errors import DaemonUnreachable

GIB = 2**30


def workload(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"id-{name}-0123", "name": name, "kind": "notebook", "phase": "running", "executing": False,
        "position": None, "gpus": ["GPU 0"], "home": ["a"], "current": ["a"], "queue": "default", "keep_until": None,
        "gpu_count": 1,
        "request_bytes": 4 * GIB, "limit_bytes": 16 * GIB, "memory_used_bytes": 0, "saved_bytes": None,
        "waiting_s": None, "reason": "at home on GPU 0", **fields,
    }  # fmt: skip


def gpu(index: int, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": "abcdefghijklmnop"[index], "index": index, "memory_total_bytes": 16 * GIB,
        "memory_used_bytes": 10 * GIB, "utilisation": 0.5, "unplaced_bytes": 0, "healthy": True,
        "unhealthy_reason": None, **fields,
    }  # fmt: skip


def entry(sequence: int, **fields: Any) -> dict[str, Any]:
    return {
        "sequence": sequence, "time": "2026-11-24T12:00:00.000+00:00", "name": "analysis.ipynb", "event": "moved",
        "from": "GPU 0", "to": "GPU 1", "seconds": 1.25, "bytes": 2 * GIB, "missing": [], "lost_cells": [],
        "reason": "training-7 needs GPU 0", **fields,
    }  # fmt: skip


ANALYSIS = workload("analysis.ipynb", memory_used_bytes=int(6.2 * GIB), executing=True)
OTHER = workload("another user's notebook", gpus=["GPU 1"], current=["b"], home=["b"], request_bytes=8 * GIB)
WAITING = workload(
    "training-7", kind="command", phase="queued", position=1, gpus=[], home=[], current=[], waiting_s=12.0,
    request_bytes=16 * GIB,
    reason="no room for 16 GiB on one GPU: GPU 0 is held by analysis.ipynb; GPU 1 is being freed",
)  # fmt: skip
STATUS = {
    "simulated": True, "message": None, "gpus": [gpu(0), gpu(1, memory_used_bytes=GIB, utilisation=None)],
    "workloads": [ANALYSIS, OTHER, WAITING],
}  # fmt: skip
LOOK = Look(STATUS, (entry(1),))
CANVAS = Canvas(80, 16, ASCII)


def drawn(look: Look, choices: Choices = Choices(), canvas: Canvas = CANVAS) -> list[str]:  # noqa: B008 - frozen
    lines = frame(look, choices, canvas)
    assert len(lines) == canvas.rows
    assert max(line.cell_len for line in lines) <= canvas.columns
    return [line.plain.rstrip() for line in lines]


def test_what_is_used_on_several_gpus_is_beside_what_is_guaranteed_on_all_of_them() -> None:
    both = workload("training-7", gpus=["GPU 0", "GPU 1"], gpu_count=2, memory_used_bytes=12 * GIB)
    assert sizes_text(both) == "12 / 8 / 32 GiB"


def test_a_frame_shows_gpus_workloads_who_waits_and_what_happened() -> None:
    assert drawn(LOOK, Choices(selected=WAITING["id"])) == [
        "nls top   2 GPUs (simulated)   3 workloads   1 in line",
        "GPU 0  [##########+++++.......................]    10 GiB of 16 GiB     50% busy",
        "GPU 1  [###################...................]     1 GiB of 16 GiB",
        "  WORKLOAD         PHASE        ON    USED/REQUEST/LIMIT WHY",
        "  analysis.ipynb   running cell GPU 0 6.2 / 4 / 16 GiB   at home on GPU 0",
        "  another user's ~ running      GPU 1 0 / 8 / 16 GiB     at home on GPU 0",
        "> training-7       1. in line   -     0 / 16 / 16 GiB    no room for 16 GiB on ~",
        "training-7 (id-tra): no room for 16 GiB on one GPU: GPU 0 is held by",
        "analysis.ipynb; GPU 1 is being freed. Home: nowhere yet.",
        "WHAT HAPPENED",
        f"{entry_text(entry(1))[:79]}~",  # its time is that of this machine's clock
        *[""] * 4,
        "q quit  ? help  s suspend  r resume  k keep  e explain  f filter  o order",
    ]
    assert (
        entry_text(entry(1))[8:] == " analysis.ipynb moved GPU 0 -> GPU 1: training-7 needs GPU 0 (1.2 s, 2 GiB kept)"
    )


@pytest.mark.parametrize("rows", [*range(10, 30), 50])
@pytest.mark.parametrize("columns", [40, 60, 80, 119, 120, 160])
def test_every_size_shows_the_chosen_one_and_the_keys(columns: int, rows: int) -> None:
    gpus = [gpu(index) for index in range(8)]
    workloads = [workload(f"notebook-{number}") for number in range(30)]
    look = Look({**STATUS, "gpus": gpus, "workloads": workloads}, tuple(entry(n) for n in range(100)))
    for number in (0, 15, 29):
        lines = drawn(look, Choices(selected=workloads[number]["id"]), Canvas(columns, rows, BLOCKS))
        assert any(line.startswith(f"▸ notebook-{number}") for line in lines)
        assert lines[-1].startswith("q quit")


def test_a_window_that_is_too_small_says_how_large_it_must_be() -> None:
    assert drawn(LOOK, canvas=Canvas(39, 24, ASCII))[0] == "nls top wants 40x10 characters; q ends"
    assert drawn(LOOK, canvas=Canvas(80, 9, ASCII))[0] == "nls top wants 40x10 characters; q ends it"


def test_without_a_daemon_the_last_frame_stays_and_the_reason_is_said() -> None:
    away = Look(STATUS, (), DaemonUnreachable("The daemon at /run/nls/nls.sock does not answer: `nls up` starts one."))
    lines = drawn(away)
    said = " ".join(lines[1:3])
    assert said == f"{away.trouble} Waiting for a daemon; what is shown is how it was."
    assert any("analysis.ipynb" in line for line in lines)


def test_an_unhealthy_gpu_says_why_and_what_nobody_placed_is_seen() -> None:
    gpus = [gpu(0, healthy=False, unhealthy_reason="it has vanished", unplaced_bytes=4 * GIB, memory_used_bytes=None)]
    line = drawn(Look({**STATUS, "gpus": gpus, "workloads": []}))[1]
    assert line == "GPU 0  [xxxxxxxxxx............................] OUT OF SERVICE: it has vanished"


def test_nobody_and_nobody_who_matches_are_said() -> None:
    empty = Look({**STATUS, "workloads": []})
    assert "Nobody asks for a GPU." in drawn(empty)
    assert "Nobody's line has 'zzz' in it." in drawn(LOOK, Choices(filter="zzz"))


def test_twins_are_told_apart_and_what_a_name_has_of_wide_letters_is_cut_in_time() -> None:
    twins = [workload("twin", id="aaaaaa1"), workload("twin", id="bbbbbb2"), workload("深層学習の長い名前です.ipynb")]
    lines = drawn(Look({**STATUS, "workloads": twins}))
    assert [line[:18] for line in lines[4:6]] == ["> aaaaaa twin     ", "  bbbbbb twin     "]
    assert lines[6].startswith("  深層学習の長い ~ running")


def test_a_bar_is_full_also_where_more_is_used_than_there_is() -> None:
    here = [
        workload("one", request_bytes=12 * GIB),
        workload("two", request_bytes=12 * GIB, memory_used_bytes=20 * GIB),
    ]
    for cells in range(1, 60):
        assert sum(piece.cells for piece in pieces(gpu(0), here, cells)) == cells
    assert {piece.kind for piece in pieces(gpu(0), here, 60)} == {"guaranteed", "burst"}


def test_glyphs_are_those_that_the_terminal_can_show() -> None:
    assert glyphs_for("utf-8") is BLOCKS
    assert glyphs_for("ascii") is ASCII
    assert glyphs_for("no such encoding") is ASCII


def test_an_entry_tells_what_did_not_come_back() -> None:
    text = entry_text(entry(1, missing=["model"], lost_cells=["[3]"], event="start_failed", reason=""))
    assert text.endswith(
        "analysis.ipynb start failed GPU 0 -> GPU 1 (1.2 s, 2 GiB kept, without model, without cells [3])"
    )


# Keys --------------------------------------------------------------------------------------------------------------


def test_keys_come_whole_whatever_the_line_does() -> None:
    keys = Keys()
    assert keys.pressed(b"q\x1b[A\x1b[5~\xc3") == ["q", "up", "page up"]
    assert keys.pressed(b"\xa9") == ["é"]
    assert keys.pressed(b"\x1b") == []
    assert keys.waits
    assert keys.pressed(b"[B") == ["down"]
    assert keys.pressed(b"\x1b\x1b[C\x1b[99;5u\x01") == ["escape", "right"]
    assert not keys.waits
    assert keys.pressed(b"\x1b") == []
    assert keys.no_more() == ["escape"]
    assert keys.no_more() == []


def press(*keys: str, look: Look = LOOK, choices: Choices = Choices()) -> tuple[Choices, Wish | None]:  # noqa: B008
    wish = None
    for key in keys:
        choices, wish = pressed(key, look, choices, 80, 10)
    return choices, wish


@pytest.mark.parametrize(("key", "verb"), [("s", "suspend"), ("r", "resume"), ("e", "explain"), ("enter", "explain")])
def test_a_key_acts_on_the_chosen_workload(key: str, verb: str) -> None:
    assert press("down", key)[1] == Wish(verb, OTHER["id"], OTHER["name"])
    assert press("up", "page up", key)[1] == Wish(verb, ANALYSIS["id"], ANALYSIS["name"])
    assert press("end", "down", key)[1] == Wish(verb, WAITING["id"], WAITING["name"])


def test_what_is_chosen_stays_chosen_when_others_come_and_go() -> None:
    choices = press("end")[0]
    later = Look({**STATUS, "workloads": [workload("newcomer"), WAITING]})
    assert selected(later, choices) == WAITING
    gone = Look({**STATUS, "workloads": [OTHER]})
    assert selected(gone, choices) == OTHER
    assert selected(Look(), choices) is None


def test_a_workload_is_kept_for_as_long_as_is_typed() -> None:
    assert press("k")[0].prompt == Prompt("keep", "2h")
    assert press("k", "enter")[1] == Wish("keep", ANALYSIS["id"], ANALYSIS["name"], 7200)
    assert press("k", *["backspace"] * 2, *"30min", "enter")[1] == Wish("keep", ANALYSIS["id"], ANALYSIS["name"], 1800)
    assert press("k", *["backspace"] * 2, "0", "enter")[1] == Wish("keep", ANALYSIS["id"], ANALYSIS["name"], 0)
    assert press("k", "escape") == (Choices(selected=ANALYSIS["id"]), None)
    choices, wish = press("k", *"soon", "enter")
    assert (wish, choices.message) == (None, "'2hsoon' is not a duration: write for example 90s, 10min, 2h or 1d.")


def test_one_that_ends_while_its_time_is_typed_is_not_taken_for_another() -> None:
    choices = press("k")[0]
    choices, wish = press("enter", look=Look({**STATUS, "workloads": [OTHER]}), choices=choices)
    assert (wish, choices.message) == (None, "that workload has ended")


def test_a_filter_shows_only_lines_that_have_it() -> None:
    choices = press("f", *"HELD by", "enter")[0]
    assert [w["name"] for w in listed(LOOK, choices)] == ["training-7"]
    assert press("escape", choices=choices)[0].filter == ""
    assert press("s", choices=Choices(filter="zzz"))[0].message == "there is no workload to act on"


def test_orders_go_round() -> None:
    named = [w["name"] for w in listed(LOOK, Choices(order=Order.NAME))]
    assert named == ["analysis.ipynb", "another user's notebook", "training-7"]
    assert listed(LOOK, Choices(order=Order.WAITING))[0] == WAITING
    assert listed(LOOK, Choices(order=Order.MEMORY))[0] == ANALYSIS
    assert [w["gpus"] for w in listed(LOOK, Choices(order=Order.GPU))] == [["GPU 0"], ["GPU 1"], []]
    assert press("o")[0].message == "sorted by name"
    assert press(*["o"] * len(Order))[0].order is Order.ARRIVAL


def test_a_page_is_scrolled_and_left() -> None:
    page = Choices(page=Page("a page", "\n".join(f"line {number}" for number in range(30))))
    seen = [press(*keys, choices=page)[0].page for keys in (["down"], ["end"], ["end", "down"], ["page down", "up"])]
    assert [each.top for each in seen if each is not None] == [1, 20, 20, 9]
    assert drawn(LOOK, page)[1] == "line 0"
    assert drawn(LOOK, page)[-1] == "q back  up, down scroll   lines 1 to 14 of 30"
    assert press("q", choices=page) == (Choices(), None)
    assert press("q")[1] == Wish("quit")
    assert "suspend it" in "\n".join(drawn(LOOK, press("?")[0]))


# The terminal ------------------------------------------------------------------------------------------------------


class Tty(io.StringIO):
    """What a terminal gets."""

    def isatty(self) -> bool:
        return True

    def taken(self) -> str:
        """Since the last call."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


def test_only_what_differs_is_drawn_and_a_full_line_keeps_its_last_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", screen := Tty())
    terminal = Terminal()
    first, second = Text("x" * 79 + "y"), Text("below")
    terminal.draw([first, second])
    # Whoever erases to the end behind a full line erases its last letter: it is done before.
    assert screen.taken() == f"\x1b[H\x1b[2J\x1b[1;1H\x1b[0K{first.plain}\x1b[2;1H\x1b[0Kbelow"
    terminal.draw([first, Text("other")])
    assert screen.taken() == "\x1b[2;1H\x1b[0Kother"
    terminal.redraw()  # as after a resize: terminals fold lines anew
    terminal.draw([first, Text("other")])
    assert screen.taken().startswith("\x1b[H\x1b[2J")
