from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from nls_jupyter.supervisor.notices import NoticeLog
from nls_jupyter.supervisor.orders import Orders


class Link:
    """Remembers what the daemon would hear."""

    connected = True

    def __init__(self) -> None:
        self.told: list[str] = []

    async def send(self, event: str, **fields: Any) -> None:
        del fields
        self.told.append(event)


def orders_and_link() -> tuple[Orders, Link]:
    link = Link()
    client: Any = SimpleNamespace(supervise=lambda *_, **__: link)
    process = SimpleNamespace(pid=1, start_time=2)
    keeper: Any = SimpleNamespace(process=process, executing=False, usable=True, saved=None, still_usable=lambda: True)
    view = {"id": "w", "gpus": ["GPU 0"], "allowance_bytes": 0}
    return Orders(client, view, keeper, NoticeLog(), lambda: None), link


def test_the_workload_executes_until_the_last_cell_or_callback_is_over() -> None:
    orders, link = orders_and_link()

    async def story() -> None:
        await orders.tell_cell_started("a slider's")
        await orders.tell_cell_started("another's")
        assert link.told == ["cell_started"]
        await orders.tell_cell_finished("a slider's")
        assert orders._report().executing
        assert link.told == ["cell_started"]
        await orders.tell_cell_finished("another's")
        assert not orders._report().executing
        assert link.told == ["cell_started", "cell_finished"]

    asyncio.run(story())


def test_a_cell_is_always_told_also_while_a_callback_runs() -> None:
    orders, link = orders_and_link()

    async def story() -> None:
        await orders.tell_cell_started("a slider's")
        await orders.tell_cell_started()
        assert link.told == ["cell_started", "cell_started"]
        await orders.tell_cell_finished("a slider's")
        await orders.tell_cell_finished()
        assert link.told == ["cell_started", "cell_started", "cell_finished"]

    asyncio.run(story())


def test_nobody_is_suspended_in_the_middle_of_a_callback() -> None:
    orders, link = orders_and_link()
    command: Any = SimpleNamespace(command_id=3, reason="somebody needs the GPU")

    async def story() -> None:
        await orders.tell_cell_started("a slider's")
        await orders._suspend(command)
        assert link.told == ["cell_started", "suspend_failed"]

    asyncio.run(story())
