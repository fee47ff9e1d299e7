"""What `nls run` does about one command, without a daemon."""

from __future__ import annotations

import asyncio
import signal
from typing import Any
from unittest.mock import Mock

from nls_scheduler.cli.runner import Runner
from nls_scheduler.processes.foreground import ForegroundCommand
from nls_scheduler.wire.protocol import CommandMessage


class Command(ForegroundCommand):
    """One that runs, and what it is sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send(self, number: int) -> bool:
        self.sent.append(number)
        return True


def test_a_command_that_is_stopped_gets_one_sigterm() -> None:
    """Many take a second one for: at once, without what they save."""
    command, runner = Command(), Runner(["train"], {}, None, lambda _: None)

    async def stop() -> None:
        runner._running = command
        for number in (7, 8):  # evicted, and then released
            order: Any = CommandMessage("stop_process", number, "its GPU is needed", None, grace_s=0.0)
            await runner._stop(Mock(), order)
        await asyncio.gather(*runner._tasks)

    asyncio.run(stop())
    assert [number for number in command.sent if number == signal.SIGTERM] == [signal.SIGTERM]
    assert signal.SIGKILL in command.sent
