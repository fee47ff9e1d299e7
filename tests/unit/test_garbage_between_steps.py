"""The daemon looks for garbage between two steps, and Python does not do it in one."""

from __future__ import annotations

import asyncio
import gc

import pytest

from nls_scheduler.daemon.http import server


def collections_at(new_objects: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """At which of its looks, each a second after the one before, it collects; `new_objects` were made by each."""
    found: list[int] = []
    looks = iter(range(len(new_objects)))
    now = -1

    async def sleep(delay_s: float) -> None:
        nonlocal now
        assert delay_s == 1.0
        assert not gc.isenabled()
        try:
            now = next(looks)
        except StopIteration:
            raise asyncio.CancelledError from None

    monkeypatch.setattr(server.asyncio, "sleep", sleep)
    monkeypatch.setattr(server.gc, "collect", lambda: found.append(now))
    monkeypatch.setattr(server.gc, "get_count", lambda: (new_objects[now], 0, 0))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(server._collect_garbage())
    assert gc.isenabled()
    return found


def test_many_new_objects_are_looked_through_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    many = server.MANY_OBJECTS + 1
    assert collections_at([0, many, 5, server.MANY_OBJECTS, many, many], monkeypatch) == [1, 4, 5]


def test_a_quiet_daemon_collects_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collections_at([7] * 130, monkeypatch) == [59, 119]
