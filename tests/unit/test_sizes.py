"""Sizes for people are never on the wrong side of what they are said for, and those of people are as they write."""

from __future__ import annotations

import pytest

from nls_scheduler.units.sizes import format_bytes_down, format_bytes_up, parse_bytes, parse_size


@pytest.mark.parametrize("size_bytes", [2**30, 5 * 2**30 + 2**28 + 12345, 3 * 2**20 - 1, 1023])
def test_room_is_never_said_to_be_more_than_it_is_nor_a_need_less(size_bytes: int) -> None:
    assert parse_bytes(format_bytes_down(size_bytes)) <= size_bytes
    assert parse_bytes(format_bytes_up(size_bytes)) >= size_bytes


@pytest.mark.parametrize("text", ["１", "٠.٥", "８GiB", "1e-1", "1_0MiB"])
def test_a_size_has_the_digits_from_0_to_9_and_no_others(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size: write a fraction of a GPU such as 0\.5"):
        parse_size(text)
    with pytest.raises(ValueError, match="is not a size in bytes: write for example 8GiB"):
        parse_bytes(text)
