"""The first of the random histories with everything in them; `make histories` plays as many as one likes."""

from __future__ import annotations

from typing import NoReturn

import pytest

from effort import examples
from left_out import thinned
from mixed_histories import LOSSES_FROM, SILENCE_FROM, WIDE_FROM, drawn, played, smallest
from properties.test_histories import Histories

AT_ONCE = 10
FOUND = (10165, 80974, 81102, 81374, 83494, 98000, 113824, 165198, 190706, 418819, 426271, 3000495, 3000592)
"""Later ones that went wrong once, and that no short story tells.

A deadline that is put off and comes nearer again after an interrupt; nodes on which more is promised than there is.
"""
FIRST = [
    *range(0, examples(350), AT_ONCE),
    *range(LOSSES_FROM, LOSSES_FROM + examples(150), AT_ONCE),
    *range(SILENCE_FROM, SILENCE_FROM + examples(150), AT_ONCE),
    *range(WIDE_FROM, WIDE_FROM + examples(150), AT_ONCE),
]


@pytest.mark.parametrize("first", thinned(FIRST, 4, "histories with everything in them"))
def test_every_sentence_holds_with_everything_mixed(first: int) -> None:
    for number in range(first, first + AT_ONCE):
        history = drawn(number)
        finding = played(history)
        if finding is not None:
            least, finding = smallest(history, finding)
            pytest.fail(f"history {number}, after event {finding.after}: {finding.told}\n{least}")


@pytest.mark.parametrize("number", FOUND)
def test_what_went_wrong_once_does_no_more(number: int) -> None:
    assert played(drawn(number)) is None


def test_a_history_that_goes_wrong_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(machine: Histories, **arguments: object) -> NoReturn:
        raise ValueError(f"planted in {type(machine).__name__}: {arguments}")

    history = next(h for h in map(drawn, range(100)) if len([1 for name, _ in h.events if name == "release"]) > 1)
    monkeypatch.setattr(Histories, "release", wrong)
    finding = played(history)
    assert finding is not None
    least, same = smallest(history, finding)
    assert [name for name, _ in least.events] == ["release"]
    assert (same.kind, same.after) == (finding.kind, 1)
