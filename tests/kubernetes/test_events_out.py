"""Which Events are written while the API server is slow, away, or asked for too many."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from api_rules import is_subdomain
from nls_scheduler.kubernetes_driver import events_out
from nls_scheduler.kubernetes_driver.events_out import EventWriter
from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.pods import PodRecord
from nls_scheduler.kubernetes_driver.reflector import ApiError
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

POD, OTHER = PodRecord("uid-1", "default", "train"), PodRecord("uid-2", "default", "another")
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


class SlowApi:
    """Takes Events as fast as it is let, after these refusals, and keeps them."""

    def __init__(self, *refusals: ApiError) -> None:
        self.refusals = list(refusals)
        self.open = asyncio.Event()
        self.taken: list[dict[str, Any]] = []

    async def create(self, _path: str, body: dict[str, Any]) -> None:
        await self.open.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken.append(body)


def written_by(
    tell: Callable[[EventWriter], None], monkeypatch: pytest.MonkeyPatch, api: SlowApi | None = None
) -> tuple[list[dict[str, Any]], int]:
    """What comes of what is told at once, and how much is lost."""
    monkeypatch.setattr(events_out, "_PAUSE_S", 0.0)

    async def main() -> tuple[list[dict[str, Any]], int]:
        nonlocal api
        api = api or SlowApi()
        writer = EventWriter(api, "node-a", PACE)  # type: ignore[arg-type]
        tell(writer)
        task = asyncio.create_task(writer.run())
        api.open.set()

        async def all_of_them() -> bool:
            return bool(api.taken) and writer.waiting == 0 and writer.written == len(api.taken)

        await eventually(all_of_them)
        task.cancel()
        return api.taken, writer.lost

    return asyncio.run(main())


def test_a_pod_of_many_events_costs_no_other_pod_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(writer: EventWriter) -> None:
        for number in range(1000):
            writer.once(POD, "GpuRequestInvalid", f"{number} is no number")
        writer.once(OTHER, "GpuRequestInvalid", "half is no number")

    taken, lost = written_by(tell, monkeypatch)
    mine = [each["message"] for each in taken if each["involvedObject"]["uid"] == POD.uid]
    assert mine[-1] == "999 is no number", "the newest is what is true now"
    assert (len(mine), lost) == (10, 990)
    assert [each["message"] for each in taken if each["involvedObject"]["uid"] == OTHER.uid] == ["half is no number"]


def test_the_same_again_while_it_waits_is_counted_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(writer: EventWriter) -> None:
        for number in range(50):
            entry = {"event": ("suspended", "moved")[number % 2], "name": "book.ipynb", "reason": "train owns GPU 0"}
            writer.entry(POD, entry)

    taken, lost = written_by(tell, monkeypatch)
    assert [(each["reason"], each["count"]) for each in taken] == [("GpuSuspended", 25), ("GpuMoved", 25)]
    assert lost == 0


REFUSED = 'HTTP 403: events is forbidden: User "nls" cannot create resource "events" in API group "" in the namespace'
ENDING = "HTTP 403: unable to create new content in namespace default because it is being terminated"


def test_events_that_nobody_may_write_are_told_and_wait_until_somebody_grants_it() -> None:
    class Refused(SlowApi):
        async def create(self, path: str, body: dict[str, Any]) -> None:
            if not self.open.is_set():
                self.refused += 1
                raise ApiError(403, REFUSED)
            await super().create(path, body)

        refused = 0

    async def main() -> None:
        api = Refused()
        writer = EventWriter(api, "node-a", PACE)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())

        async def again_and_again() -> bool:
            return api.refused >= 3

        async def written() -> bool:
            return writer.written == 1

        writer.once(POD, "GpuRequestInvalid", "half is no number")
        await eventually(again_and_again)
        assert "grant create in the daemon's role" in str(writer.trouble)
        api.open.set()
        await eventually(written)
        assert (writer.trouble, writer.lost) == (None, 0)
        task.cancel()

    asyncio.run(main())


def test_an_event_of_a_namespace_that_ends_is_lost_and_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(writer: EventWriter) -> None:
        writers.append(writer)
        for number in range(2):
            writer.once(POD, "GpuRequestInvalid", f"{number} is no number")

    writers: list[EventWriter] = []
    taken, lost = written_by(tell, monkeypatch, SlowApi(ApiError(403, ENDING)))
    assert (len(taken), lost, writers[0].trouble) == (1, 1, None)


def test_an_event_says_when_it_was_told_and_not_when_the_server_was_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    monkeypatch.setattr(events_out, "_now", lambda: now)

    def tell(writer: EventWriter) -> None:
        nonlocal now
        for _ in range(2):
            writer.entry(POD, {"event": "moved", "name": "book.ipynb", "reason": "train owns GPU 0"})
            now += timedelta(minutes=5)

    ((event,), _) = written_by(tell, monkeypatch)
    assert event["count"] == 2
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-11-29T12:00:00Z", "2026-11-29T12:05:00Z")


def test_a_server_that_asks_for_a_day_of_rest_is_asked_again_before(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, lost = written_by(
        lambda writer: writer.once(POD, "GpuRequestInvalid", "half is no number"),
        monkeypatch,
        SlowApi(ApiError(429, "HTTP 429: not now", 86_400.0)),
    )
    assert (len(taken), lost) == (1, 0)


def test_a_namespace_that_may_have_no_more_events_at_the_moment_costs_no_other_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`EventRateLimit` counts for each namespace, and those of all others count there as well."""

    class Limited(SlowApi):
        async def create(self, path: str, body: dict[str, Any]) -> None:
            if path == "/api/v1/namespaces/noisy/events" and len(self.taken) < 3:
                raise ApiError(429, "HTTP 429: limit reached on type Namespace for key noisy")
            await super().create(path, body)

    def tell(writer: EventWriter) -> None:
        for _ in range(2):
            writer.entry(PodRecord("uid-3", "noisy", "a"), {"event": "moved", "name": "a.ipynb", "reason": "of train"})
        for number in range(3):
            writer.once(POD, "GpuRequestInvalid", f"{number} is no number")

    taken, lost = written_by(tell, monkeypatch, Limited())
    assert [event["metadata"]["namespace"] for event in taken] == ["default"] * 3 + ["noisy"]
    assert (taken[-1]["count"], lost) == (2, 0)


@pytest.mark.parametrize("name", ["a" * 253, f"{'a' * 199}.{'b' * 53}", f"{'a' * 199}-{'b' * 53}"])
def test_an_event_of_a_pod_of_any_name_has_a_name_that_the_server_accepts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = PodRecord("uid-1", "default", name)
    (event,), _ = written_by(lambda writer: writer.once(pod, "GpuRequestInvalid", "half is no number"), monkeypatch)
    assert is_subdomain(event["metadata"]["name"])
    assert event["involvedObject"]["name"] == name
