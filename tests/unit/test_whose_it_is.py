"""Whose a workload is, as the server extension's events and orders take it from the daemon."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from typing import Any

import pytest

from nls_jupyter_server.announcements import Announcements
from nls_jupyter_server.orders import Orders
from nls_scheduler.wire.errors import Problem

ENTRY: dict[str, Any] = {
    "workload": "w-1", "name": "book", "owner": os.geteuid(), "event": "suspended", "reason": "it is idle",
    "cause": None, "from": "GPU 0", "to": None, "seconds": 1.0, "bytes": 5,
}  # fmt: skip
WHOSE = pytest.mark.parametrize(
    ("said", "own"),
    [
        ({"own": True}, True),
        ({"own": False}, False),  # of another pod, whose user has the same id
        ({}, True),  # a daemon from before it said so
        ({"owner": os.geteuid() + 1}, False),
    ],
)


class EventBus:
    """Jupyter's."""

    def __init__(self) -> None:
        self.emitted: list[dict[str, Any]] = []

    def register_event_schema(self, _schema: object) -> None:
        """Nothing is checked here."""

    def emit(self, *, schema_id: str, data: dict[str, Any]) -> None:
        assert schema_id
        self.emitted.append(data)


class Feed:
    """A daemon that knows one workload."""

    def __init__(self, workload: dict[str, Any]) -> None:
        self._workload = workload

    understood = staticmethod(nullcontext)

    async def client(self) -> Feed:
        return self

    async def status(self) -> dict[str, Any]:
        return {"workloads": [self._workload]}


@WHOSE
def test_only_what_happens_to_ones_own_is_announced(said: dict[str, Any], own: bool) -> None:
    bus = EventBus()
    Announcements(bus).announce({**ENTRY, **said})  # type: ignore[arg-type]  # what is used of it
    assert bool(bus.emitted) is own


@pytest.mark.parametrize("said", [{"own": False}, {}])
def test_what_happens_to_a_gpu_is_announced_to_everybody(said: dict[str, Any]) -> None:
    bus = EventBus()
    gpu = {**ENTRY, "owner": None, "workload": None, "event": "gpu_unhealthy"}
    Announcements(bus).announce({**gpu, **said})  # type: ignore[arg-type]  # what is used of it
    assert [each["action"] for each in bus.emitted] == ["gpu-unhealthy"]


@WHOSE
def test_orders_are_for_ones_own(said: dict[str, Any], own: bool) -> None:
    orders = Orders(Feed({"id": "w-1", "owner": os.geteuid(), **said}))  # type: ignore[arg-type]  # what is used of it
    assert asyncio.run(orders.is_own("w-1")) is own
    with pytest.raises(Problem, match="w-2"):
        asyncio.run(orders.is_own("w-2"))
