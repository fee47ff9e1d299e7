"""Sizes for people are never on the wrong side of what they are said for."""

from __future__ import annotations

import pytest

from nls_scheduler.units.sizes import format_bytes_down, format_bytes_up, parse_bytes


@pytest.mark.parametrize("size_bytes", [2**30, 5 * 2**30 + 2**28 + 12345, 3 * 2**20 - 1, 1023])
def test_room_is_never_said_to_be_more_than_it_is_nor_a_need_less(size_bytes: int) -> None:
    assert parse_bytes(format_bytes_down(size_bytes)) <= size_bytes
    assert parse_bytes(format_bytes_up(size_bytes)) >= size_bytes
