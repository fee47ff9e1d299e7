"""Which Events are written while the API server is slow, away, or asked for too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nls_scheduler.kubernetes_driver.events_out import EventWriter
from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.pods import PodRecord
from nls_scheduler.kubernetes_driver.reflector import ApiError
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

POD = PodRecord("uid-1", "default", "train")
PACE = Pace(least_s=0.001, most_s=0.01)


@pytest.mark.parametrize("at_last", [None, ApiError(409, "HTTP 409: it is there already")])
def test_an_event_that_nobody_has_answered_is_written_again_and_once(at_last: ApiError | None) -> None:
    class AwayApi:
        def __init__(self) -> None:
            self.answers = [ApiError(0, "no answer"), ApiError(503, "HTTP 503: not yet"), at_last]
            self.names: set[str] = set()

        async def create(self, _path: str, body: Mapping[str, Any]) -> None:
            self.names.add(body["metadata"]["name"])
            if (answer := self.answers.pop(0)) is not None:
                raise answer

    async def main() -> None:
        api = AwayApi()
        writer = EventWriter(api, "node-a", PACE)  # type: ignore[arg-type]
        writer.once(POD, "GpuRequestInvalid", "half is no number")
        task = asyncio.create_task(writer.run())

        async def done() -> bool:
            return writer.written == 1

        await eventually(done)
        task.cancel()
        assert (writer.lost, len(api.names), api.answers) == (0, 1, [])

    asyncio.run(main())
