"""The processes of the machine are gone through often only where there can be GPU processes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from nls_jupyter_server import app
from nls_jupyter_server.app import NlsExtension


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
