"""What the corpus's judge lets pass, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from normalise import Normaliser
from outputs import HIDDEN, Collected, Shown
from verdicts import Told, Verdict, bound, lost, mentioned, verdicts

SOURCES = ["a = 1", "b = a + 1", "c = 3", "print(b)", "print(c)"]
SHOWN = [Shown(stdout=f"{place}\n") for place in range(5)]
OTHER = Shown(stdout="other\n")
GENERATOR = "Back on GPU 0 after 2.0 s: 2 variables kept (1 MiB); not kept: a (a generator cannot be saved)."
AS_OF = "Back on GPU 0. It is back as of cell [1]: cells [2] and [3] ran after it and are not in it."


def judged(seen: list[Shown], told: list[Told], again: set[int] = frozenset()) -> list[Verdict]:  # type: ignore[assignment]
    return verdicts(SOURCES, [SHOWN, SHOWN], seen, told, again)


def with_other(place: int, shown: Shown = OTHER) -> list[Shown]:
    return [*SHOWN[:place], shown, *SHOWN[place + 1 :]]


def test_what_plain_kernels_show_is_the_same() -> None:
    assert judged(SHOWN, []) == [Verdict.SAME] * 5


@pytest.mark.parametrize(
    "shown",
    [
        Shown(),
        Shown(stdout="3\n", stderr="a warning"),
        Shown(stdout="3\n", rich=((("text/plain", "3"),),)),
        Shown(stdout="3\n", error=("NameError", "name 'b' is not defined")),
    ],
)
def test_any_other_output_differs(shown: Shown) -> None:
    assert judged(with_other(3, shown), [])[3] is Verdict.UNNAMED


def test_a_cell_that_differs_between_plain_runs_says_nothing() -> None:
    plain = [SHOWN, with_other(3)]
    assert verdicts(SOURCES, plain, with_other(3, Shown("third")), [])[3] is Verdict.VARIES


def test_a_name_that_was_named_explains_the_cells_that_it_reaches() -> None:
    assert judged(with_other(3), [Told(2, GENERATOR)])[3] is Verdict.NAMED


def test_it_explains_no_cell_that_it_does_not_reach() -> None:
    assert judged(with_other(4), [Told(2, GENERATOR)])[4] is Verdict.UNNAMED


def test_it_explains_nothing_before_it_was_said() -> None:
    assert judged(with_other(1), [Told(2, GENERATOR)])[1] is Verdict.UNNAMED


def test_a_cell_that_ran_again_as_told_may_differ_with_what_it_makes() -> None:
    seen = [SHOWN[0], OTHER, SHOWN[2], OTHER, OTHER]
    found = judged(seen, [Told(2, AS_OF)], {1, 2})
    assert found == [Verdict.SAME, Verdict.NAMED, Verdict.SAME, Verdict.NAMED, Verdict.NAMED]
    assert judged(with_other(0), [Told(2, AS_OF)], {1, 2})[0] is Verdict.UNNAMED


def test_cells_that_ran_again_have_other_numbers_and_show_them() -> None:
    sources = ["a = 1", "print(a)", "dir()[:10]"]
    plain = SHOWN[:3]
    seen = [*plain[:2], OTHER]
    assert verdicts(sources, [plain, plain], seen, [Told(1, AS_OF)], {1})[2] is Verdict.NAMED
    assert verdicts(sources, [plain, plain], seen, [Told(1, AS_OF)])[2] is Verdict.UNNAMED


def test_a_move_that_says_nothing_of_losses_explains_nothing() -> None:
    moved = "Moved from GPU 0 to GPU 1 because its user wants it on GPU 1 (2.0 s): 3 variables kept (1 MiB)."
    assert judged(with_other(3), [Told(2, moved)])[3] is Verdict.UNNAMED


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (AS_OF, {2, 3}),
        ("It is back as of cell [3]: cell [4] ran after it and is not in it.", {4}),
        ("It is back as of cell [3]: 4 cells from [4] to [7] ran after it and are not in it.", {4, 5, 6, 7}),
        ("Nothing was saved: cells [1], [2] and [3] ran and are lost.", {1, 2, 3}),
        (GENERATOR, set()),
    ],
)
def test_the_cells_that_a_sentence_takes_back_are_read(text: str, labels: set[int]) -> None:
    assert lost(text).labels == labels


def test_the_names_that_a_sentence_lists_are_read() -> None:
    text = "2 variables kept (381 B); not kept: g, h (a generator (of old)), Out[2] (a lock); changed: y, z (detached)."
    assert lost(text).names == {"g", "h", "Out", "_2", "y", "z"}
    assert lost("1 variable kept (1 B); not kept: the working directory (it is gone)").settings == {
        "the working directory"
    }


def test_names_are_found_in_cells_with_magics() -> None:
    assert bound("%matplotlib inline\nx.y[0] = z\ndef f(): pass\n!ls") >= {"x", "f"}
    assert {"total", "i"} <= mentioned("%%time\ntotal = sum(i for i in data)")


# What a cell shows


def shown(*messages: tuple[str, dict[str, Any]]) -> Shown:
    collected = Collected()
    for kind, content in messages:
        collected.take({"header": {"msg_type": kind}, "content": content})
    return collected.shown(Normaliser("/nowhere", HIDDEN))


def stream(text: str, name: str = "stdout") -> tuple[str, dict[str, Any]]:
    return ("stream", {"name": name, "text": text})


def display(text: str, name: str | None = None, **more: str) -> tuple[str, dict[str, Any]]:
    return ("display_data", {"data": {"text/plain": text, **more}, "transient": {"display_id": name}})


def test_what_must_differ_between_processes_is_no_difference() -> None:
    one = shown(stream("<object at 0x7f0011223344>\nCPU times: 3 ms\n"), stream("1.2 µs ± 3 ns per loop\n"))
    two = shown(stream("<object at 0x7f9911223355>\nCPU times: 9 s\n1.3 ms ± 1 ns per loop (mean)\n"))
    assert one == two
    assert shown(stream("12")) != shown(stream("13"))


def test_pictures_are_compared_to_the_last_bit() -> None:
    assert shown(display("<Figure>", **{"image/png": "AAAA"})) != shown(display("<Figure>", **{"image/png": "AAAB"}))
    assert shown(display("<Figure>", **{"image/png": "AAAA"})) != shown(display("<Figure>"))


def test_what_is_cleared_or_updated_is_as_the_frontend_shows_it() -> None:
    cleared = shown(stream("1"), ("clear_output", {"wait": True}), stream("2"))
    assert cleared.stdout == "2"
    assert shown(stream("1"), ("clear_output", {"wait": True})).stdout == "1"
    updated = ("update_display_data", {"data": {"text/plain": "new"}, "transient": {"display_id": "d"}})
    assert shown(display("old", "d"), updated).rich == ((("text/plain", "new"),),)


def test_what_we_say_is_no_output_of_the_cells() -> None:
    told = shown(
        stream("a warning\nGPU: moved.\n", "stderr"),
        display("waiting", "d"),
        ("update_display_data", display("", "d")[1]),
    )
    assert told.said == ("moved.",)
    assert not told.differs(Shown(stderr="a warning\n"))
