"""The processes of the machine are gone through often only where there can be GPU processes."""

from __future__ import annotations

import asyncio
import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest

from nls_jupyter_server import app, orphans
from nls_jupyter_server.app import NlsExtension
from nls_jupyter_server.orphans import Orphanage


@pytest.mark.parametrize("has_met", [False, True])
def test_without_a_daemon_the_next_look_waits_until_one_is_met(monkeypatch: pytest.MonkeyPatch, has_met: bool) -> None:
    monkeypatch.setattr(app, "LOOK_EVERY_S", 0.0)
    extension: Any = SimpleNamespace(events=SimpleNamespace(met=asyncio.Event()))
    if has_met:
        extension.events.met.set()

    async def story() -> None:
        pause = asyncio.ensure_future(NlsExtension._until_the_next_look(extension))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pause.done() is has_met
        extension.events.met.set()
        async with asyncio.timeout(20):
            await pause

    asyncio.run(story())


def test_a_look_that_fails_is_in_the_log_and_another_one_follows(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[str] = []

    async def at_once() -> None:
        """No pause."""

    async def look() -> None:
        looks.append("look")
        if len(looks) == 1:
            raise ArithmeticError("of a kind that nobody foresaw")
        raise asyncio.CancelledError

    extension: Any = SimpleNamespace(
        _until_the_next_look=at_once, _look_at_kernels=look, log=logging.getLogger("extension")
    )
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(NlsExtension._look_after_kernels(extension))
    assert len(looks) == 2
    assert "ArithmeticError" in caplog.text


def test_what_other_users_run_is_passed_by_since_each_of_their_servers_looks_as_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(orphans, "look_up", looked_at.append)
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)  # nobody is
    assert Orphanage().look([os.getpid()]) == {}
    assert looked_at == []
