"""What `Orders` makes of the daemon's commands, with a keeper and a link made of promises."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from nls_jupyter.supervisor.notices import NoticeLog
from nls_jupyter.supervisor.orders import Orders
from nls_scheduler.wire.protocol import CommandMessage

INTERRUPT = CommandMessage("interrupt_cell", 7, "bob needs GPU 0", grace_s=20.0)


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def send(self, event: str, **fields: Any) -> None:
        self.sent.append((event, fields))


class FakeClient:
    def __init__(self) -> None:
        self.link = FakeLink()

    def supervise(self, *_: object, **__: object) -> FakeLink:
        return self.link


class FakeKeeper:
    def __init__(self, executing: bool) -> None:
        self.executing = executing
        self.reclaims: list[tuple[str, float]] = []

    async def reclaim(self, reason: str, grace_s: float) -> bool:
        self.reclaims.append((reason, grace_s))
        return self.executing


@pytest.mark.parametrize("executing", [True, False])
def test_an_interrupted_cell_is_told_and_one_that_does_not_run_is_not(executing: bool) -> None:
    client, keeper, log = FakeClient(), FakeKeeper(executing), NoticeLog()
    orders = Orders(cast("Any", client), {"id": "w"}, cast("Any", keeper), log, lambda: None)
    asyncio.run(orders._carry_out(INTERRUPT))
    assert keeper.reclaims == [("bob needs GPU 0", 20.0)]
    assert client.link.sent == [("cell_interrupted", {"command_id": 7})]
    assert ("interrupted: bob needs GPU 0" in log.as_text()) is executing


def test_a_workload_that_was_given_up_interrupts_nobody() -> None:
    client, keeper = FakeClient(), FakeKeeper(executing=True)
    orders = Orders(cast("Any", client), {"id": "w"}, cast("Any", keeper), NoticeLog(), lambda: None)
    orders.over = True
    asyncio.run(orders._carry_out(INTERRUPT))
    assert (keeper.reclaims, client.link.sent) == ([], [("cell_interrupted", {"command_id": 7})])
