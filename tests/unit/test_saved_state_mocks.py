"""Mocks come back with what they were told and asked; a save asks them nothing, as they would make another for it."""

from __future__ import annotations

from unittest import mock

import pytest

from nls_jupyter.saved_state.kinds import hash_of
from saved_state_roundtrip import of_user, roundtrip

SOURCE = """
from unittest import mock
class Kind:
    def double(self, n): return 2 * n
told = mock.MagicMock()
told.part.method.return_value = 3
told.part.method(1, x=2)
told.__len__.return_value = 5
told.fails.side_effect = KeyError
seen = [told] * 30
known = {told: 1}
stands_in, checked, awaited = mock.Mock(spec=Kind), mock.create_autospec(Kind), mock.AsyncMock()
stands_in.double.return_value = 7
counted = mock.Mock(side_effect=[1, 2])
counted()
"""


def test_mocks_come_back():
    result = roundtrip(SOURCE)
    assert not result.unsaved
    assert not result.report.missing
    told, kind = result["told"], result["Kind"]
    assert told.part.method.mock_calls == [mock.call(1, x=2)]
    assert (told.part.method(), len(told), told.part is told.part) == (3, 5, True)
    with pytest.raises(KeyError):
        told.fails()
    assert result["seen"][29] is told
    assert result["known"][told] == 1
    assert isinstance(result["stands_in"], kind)
    assert (result["stands_in"].double(1), result["counted"]()) == (7, 2)
    with pytest.raises(AttributeError):
        result["stands_in"].triple  # noqa: B018 - it has no such method
    with pytest.raises(TypeError):
        result["checked"]().double()


def test_a_save_asks_a_mock_nothing():
    told = mock.MagicMock()
    before = list(told._mock_children), list(told.mock_calls)
    of_user({"told": told, "among": [told, 1]})
    assert (list(told._mock_children), list(told.mock_calls)) == before == ([], [])


def test_the_hash_of_a_class_is_found_without_asking_for_it():
    assert hash_of(int) is int.__hash__
    assert hash_of(bool) is int.__hash__
    assert hash_of(list) is None
