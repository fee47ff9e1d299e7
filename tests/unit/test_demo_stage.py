"""On which GPUs the demo plays, and what its end says."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.concurrent import future_set_exception_unless_cancelled

from nls_scheduler.demo import stage
from nls_scheduler.demo.stage import which_gpus


@pytest.mark.parametrize(
    ("asked", "idle", "plays"),
    [
        pytest.param(None, [], (2, "--simulate"), id="two are simulated where none is idle"),
        pytest.param(None, ["GPU-a"], (1, "GPU-a"), id="one that is idle is enough for a story"),
        pytest.param(None, ["GPU-a", "GPU-b", "GPU-c"], (2, "GPU-a,GPU-b"), id="two of those that are idle"),
        pytest.param(1, ["GPU-a", "GPU-b"], (1, "GPU-a"), id="one, as asked for"),
        pytest.param(1, [], (1, "--simulate"), id="one is simulated, as asked for"),
        pytest.param(2, ["GPU-a"], (2, "--simulate"), id="two are simulated where one is idle and two are asked for"),
    ],
)
def test_which_gpus_the_demo_plays_on(asked: int | None, idle: list[str], plays: tuple[int, str]) -> None:
    count, arguments, told = which_gpus(asked, idle)
    assert count == plays[0]
    assert plays[1] in arguments
    assert ("SIMULATED" in told) == ("--simulate" in arguments), "simulation is never chosen silently"


def test_what_a_ctrl_c_cancels_is_nobody_s_error(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """A request that was under way meets a server that ends, and tornado reports what nobody waits for."""
    answer = "of the server"

    async def story(*_: object) -> int:
        request: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await request
        finally:
            future_set_exception_unless_cancelled(request, ConnectionResetError(answer))
        return 0

    monkeypatch.setattr(stage, "_perform", story)
    screen = SimpleNamespace(note=lambda text: None)
    assert asyncio.run(stage.perform(screen, None, 1)) == 128 + signal.SIGINT  # type: ignore[arg-type]
    assert caplog.records == []
    logging.getLogger("tornado.application").error("later")
    assert [record.message for record in caplog.records] == ["later"]
