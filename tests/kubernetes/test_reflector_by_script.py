"""What the reflector asks for next, and what it then knows: an API server by script says what happens to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.reflector import ApiError, Reflector
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from nls_scheduler.kubernetes_driver.reflector import Api

    Said = dict[str, Any] | ApiError | asyncio.Event | Callable[[], None] | None

PATH = "/api/v1/things"
PACE = Pace(spread_s=0.0, least_s=0.001, most_s=0.01)
ACCEPTED = {"type": "CONNECTED", "object": {}}
ENDS = None


def thing(name: str, size: str = "1", version: str = "99") -> dict[str, Any]:
    return {"metadata": {"uid": name, "name": name, "resourceVersion": version}, "size": size}


def event(kind: str, name: str, size: str = "1", version: str = "99") -> dict[str, Any]:
    return {"type": kind, "object": thing(name, size, version)}


def error_event(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "on demand"}}


@dataclass
class Scripted:
    """Each list and each watch is the next of its script, the last one for ever; a watch stands where its script ends.

    Attributes:
        lists: objects and version, or what is raised.
        watches: events, what is waited for or called, and at the end perhaps what is raised, or that it `ENDS`.
        asked: the `resourceVersion` of each list and watch.
    """

    lists: list[tuple[list[dict[str, Any]], str] | ApiError]
    watches: list[list[Said]] = field(default_factory=lambda: [[ACCEPTED]])
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    async def list(self, _path: str, params: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        self.asked.append(("list", params.get("resourceVersion")))
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def watch(self, _path: str, params: Mapping[str, str], _timeout_s: float) -> AsyncIterator[dict[str, Any]]:
        self.asked.append(("watch", params.get("resourceVersion")))
        for said in self.watches.pop(0) if len(self.watches) > 1 else self.watches[0]:
            if isinstance(said, ApiError):
                raise said
            if isinstance(said, asyncio.Event):
                await said.wait()
            elif callable(said):
                said()
            elif said is ENDS:
                return
            else:
                yield said
        await asyncio.Event().wait()


def name_of(written: Mapping[str, Any]) -> str:
    return str(written["metadata"]["name"])


def follow(
    api: Scripted,
    story: Callable[[Reflector[str]], Awaitable[None]],
    convert: Callable[[Mapping[str, Any]], str | None] = name_of,
    changed: Callable[[], None] = lambda: None,
    pace: Pace = PACE,
    **options: Any,
) -> None:
    async def main() -> None:
        reflector = Reflector(cast("Api", api), PATH, {}, convert, changed, pace=pace, **options)
        task = asyncio.create_task(reflector.run())
        try:
            await story(reflector)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    async def so() -> bool:
        return bool(condition())

    await eventually(so)


@pytest.mark.parametrize(
    "failed",
    [
        [ApiError(400, "invalid resource version")],
        [ApiError(410, "too old resource version")],
        [ApiError(504, "Too large resource version")],
        [ACCEPTED, error_event(410)],
        [ACCEPTED, error_event(500)],
        [ACCEPTED, {"type": "ADDED"}],
    ],
    ids=str,
)
def test_a_version_that_the_server_does_not_accept_is_given_up_for_the_most_recent_list(failed: list[Any]) -> None:
    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: set(reflector.records.values()) == {"new"})
        await until(lambda: reflector.age_s == 0.0)
        assert api.asked == [("list", "0"), ("watch", "100"), ("list", None), ("watch", "200")]
        assert reflector.trouble is None

    api = Scripted([([thing("old")], "100"), ([thing("new")], "200")], [failed, [ACCEPTED]])
    follow(api, story)


@pytest.mark.parametrize("status", [0, 401, 429, 502, 503])
def test_a_server_that_is_away_is_asked_for_the_same_version_again(status: int) -> None:
    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: reflector.age_s == 0.0)
        assert api.asked == [("list", "0"), ("watch", "100"), ("watch", "100")]

    api = Scripted([([], "100")], [[ApiError(status, "away")], [ACCEPTED]])
    follow(api, story)


def test_whom_the_server_does_not_know_at_the_moment_it_has_refused_nothing() -> None:
    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: reflector.trouble is not None)
        assert "does not accept this daemon's credentials (HTTP 401)" in str(reflector.trouble)
        assert "grant" not in str(reflector.trouble)
        assert not reflector.settled
        api.lists.append(([thing("new")], "100"))
        await until(lambda: set(reflector.records.values()) == {"new"})

    api = Scripted([ApiError(401, "HTTP 401: Unauthorized"), ApiError(401, "HTTP 401: Unauthorized")])
    follow(api, story)


def test_who_is_refused_for_a_moment_by_a_server_that_starts_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers before it has read the cluster's roles."""
    now_s = 1000.0
    monkeypatch.setattr("nls_scheduler.kubernetes_driver.reflector.boottime_s", lambda: now_s)

    async def story(reflector: Reflector[str]) -> None:
        nonlocal now_s
        for error, seconds, refused in (
            (ApiError(403, "no"), 0.0, False),
            (ApiError(403, "no"), PACE.refused_s - 1.0, False),
            (ApiError(0, "away"), PACE.refused_s, False),
            (ApiError(403, "no"), 0.0, False),
            (ApiError(403, "no"), PACE.refused_s, True),
        ):
            now_s += seconds
            api.lists, asked = [error], len(api.asked)
            await until(lambda asked=asked: len(api.asked) > asked + 1)
            assert reflector.settled is refused
        api.lists = [([thing("new")], "100")]
        await until(lambda: set(reflector.records.values()) == {"new"})
        assert not reflector.refused

    api = Scripted([ApiError(0, "away")])
    follow(api, story)


def test_what_is_known_ages_while_each_watch_is_accepted_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("nls_scheduler.kubernetes_driver.reflector.boottime_s", lambda: now_s)

    async def story(reflector: Reflector[str]) -> None:
        nonlocal now_s
        await until(lambda: len(api.asked) > 1)
        now_s = 1060.0
        asked = len(api.asked)
        await until(lambda: len(api.asked) > asked + 4 and reflector.trouble is not None)
        assert reflector.age_s == 60.0
        assert "what is known is 60 s old" in str(reflector.trouble)

    api = Scripted([([], "100")], [[ACCEPTED, error_event(503)]])
    follow(api, story)


NOT_FOUND = ApiError(404, "the server could not find the requested resource")


def test_objects_whose_kind_goes_are_gone_at_once_and_it_is_asked_for_soon_again() -> None:
    told: list[set[str]] = []
    troubles: list[str | None] = []

    async def story(reflector: Reflector[str]) -> None:
        reflectors.append(reflector)
        await until(lambda: len(told) == 3)
        await until(lambda: reflector.age_s == 0.0)
        assert told == [{"train"}, set(), {"another"}]
        assert troubles[0] is None
        assert "no longer knows this kind of object" in str(troubles[1])
        assert reflector.trouble is None

    def changed() -> None:
        told.append(set(reflectors[0].records.values()))
        troubles.append(reflectors[0].trouble)

    reflectors: list[Reflector[str]] = []
    lists: list[Any] = [([thing("train")], "100"), *[NOT_FOUND] * 3, ([thing("another")], "200")]
    follow(Scripted(lists, [[NOT_FOUND], [ACCEPTED]]), story, changed=changed, optional=True)


def test_a_kind_that_stays_away_is_no_fault_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("nls_scheduler.kubernetes_driver.reflector.boottime_s", lambda: now_s)

    async def story(reflector: Reflector[str]) -> None:
        nonlocal now_s
        await until(lambda: reflector.trouble is not None)
        now_s += PACE.absent_s
        await until(lambda: reflector.trouble is None)

    follow(Scripted([([thing("train")], "100"), NOT_FOUND], [[NOT_FOUND]]), story, optional=True)


@dataclass(frozen=True, slots=True)
class Counted(Pace):
    """Waits for nothing, and keeps after how many failures it was asked to."""

    failures: list[int] = field(default_factory=list)

    def back_off_s(self, failures: int) -> float:
        self.failures.append(failures)
        return 0.0


@pytest.mark.parametrize("more", [[], [event("MODIFIED", "train", "2")]], ids=["it says nothing", "it says something"])
@pytest.mark.parametrize("end", [ENDS, ApiError(0, "broken off")], ids=["ended", "broken off"])
def test_watches_that_end_soon_come_ever_more_seldom_until_one_stands(
    monkeypatch: pytest.MonkeyPatch, more: list[Any], end: ApiError | None
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("nls_scheduler.kubernetes_driver.reflector.boottime_s", lambda: now_s)

    def stands() -> None:
        nonlocal now_s
        now_s += pace.stands_s

    async def story(_: Reflector[str]) -> None:
        await until(lambda: len(api.asked) == 8)
        assert pace.failures == [1, 2, 3, *([] if end is ENDS else [1]), *([1, 2] if end is ENDS else [2, 3])]

    pace = Counted(spread_s=0.0)
    short: list[Any] = [ACCEPTED, *more, end]
    watches = [short, short, short, [ACCEPTED, *more, stands, end], short, short, [ACCEPTED]]
    api = Scripted([([], "100")], watches)
    follow(api, story, pace=pace)


def test_that_each_watch_is_ended_at_once_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: "ends each watch at once" in str(reflector.trouble))
        asked = len(api.asked)
        await until(lambda: len(api.asked) > asked + 4)
        assert caplog.text.count("ends each watch at once") == 1, "the same again is no news"
        api.watches = [[ACCEPTED]]
        await until(lambda: reflector.age_s == 0.0)
        assert reflector.trouble is None

    api = Scripted([([], "100")], [[ACCEPTED, ENDS]])
    follow(api, story)


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_what_is_told_once_more_brings_no_deleted_object_back(kind: str) -> None:
    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: "last" in reflector.records)
        assert set(reflector.records) == {"last"}
        ends.set()
        await until(lambda: set(reflector.records) == {"last", "train"})
        assert api.asked == [("list", "0"), ("watch", "100"), ("watch", "130")]

    ends = asyncio.Event()
    api = Scripted([([thing("train")], "100")])
    told_again = [event("DELETED", "train", version="120"), event(kind, "train", version="110")]
    # What leaves a selector is deleted there, and may come back.
    back = event("ADDED", "train", version="140")
    api.watches = [[ACCEPTED, *told_again, event("ADDED", "last", version="130"), ends, ENDS], [ACCEPTED, back]]
    follow(api, story)


def test_an_object_that_a_restored_server_has_again_is_followed_whatever_its_versions_are() -> None:
    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: reflector.records == {"train": "3"})

    api = Scripted([([thing("train")], "100"), ([thing("train", "2", "50")], "60")])
    api.watches = [[ACCEPTED, event("DELETED", "train", version="120"), error_event(410)]]
    api.watches.append([ACCEPTED, event("MODIFIED", "train", "3", version="61")])
    follow(api, story, lambda written: str(written["size"]))


def test_one_object_that_cannot_be_read_costs_no_other_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def convert(written: Mapping[str, Any]) -> str:
        return str(int(written["size"]))

    async def story(reflector: Reflector[str]) -> None:
        await until(lambda: set(reflector.records.values()) == {"1", "5"})
        assert reflector.records == {"good": "1", "new": "5"}
        assert "bad cannot be read" in str(reflector.trouble)
        assert "ValueError" in caplog.text
        more.set()
        await until(lambda: reflector.trouble is None)
        assert reflector.records == {"good": "2", "new": "5", "bad": "3"}

    more = asyncio.Event()
    first = [ACCEPTED, event("MODIFIED", "good", "much"), event("ADDED", "new", "5"), more]
    api = Scripted([([thing("bad", "huge"), thing("good", "1")], "100")])
    api.watches = [[*first, event("MODIFIED", "good", "2"), event("MODIFIED", "bad", "3")]]
    follow(api, story, convert)
