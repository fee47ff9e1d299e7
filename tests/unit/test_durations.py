from __future__ import annotations

import pytest

from nls_scheduler.units.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10min", 600), ("10 m", 600), ("2h", 7200), ("1d", 86400), ("1h30min", 5400), ("0.5H", 1800)],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 weeks", "-2h", "2h later", "0s", "2h,", "２h"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"write for example 90s, 10min, 2h or 1d\."):
        parse_duration(text)
