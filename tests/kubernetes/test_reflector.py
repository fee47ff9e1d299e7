"""The reflector against a server that forgets, freezes, refuses, breaks off and restarts; through the real client."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from api_servers import SERVERS
from fake_api_server import FakeApiServer
from nls_scheduler.kubernetes_driver import api as client
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.reflector import ApiError, Reflector
from objects import NODE, PODS, pod
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from api_servers import ApiServer

PACE = Pace(spread_s=0.0, least_s=0.01, most_s=0.1, absent_s=0.05)
SHORT = Pace(spread_s=0.0, watch_s=0.5, slack_s=0.2, least_s=0.01, most_s=0.1)
MINE = {"fieldSelector": f"spec.nodeName={NODE}"}


class Following:
    """A reflector of pods' names."""

    def __init__(self, api: KubernetesApi, path: str = PODS, pace: Pace = PACE, *, optional: bool = False) -> None:
        self.changes = 0
        self.reflector: Reflector[str] = Reflector(
            api, path, MINE if path == PODS else {}, _name, self._changed, pace=pace, optional=optional
        )

    def _changed(self) -> None:
        self.changes += 1

    @property
    def names(self) -> set[str]:
        return set(self.reflector.records.values())

    async def sees(self, *names: str) -> None:
        async def so() -> bool:
            return self.names == set(names)

        await eventually(so)

    async def stands(self) -> None:
        """A watch stands."""

        async def so() -> bool:
            return self.reflector.age_s == 0.0

        await eventually(so)


def _name(written: Mapping[str, Any]) -> str | None:
    return str(written["metadata"]["name"])


@asynccontextmanager
async def following(
    server: ApiServer, directory: Path, path: str = PODS, pace: Pace = PACE, *, optional: bool = False
) -> AsyncIterator[Following]:
    # The daemon's own account may not even ask for other kinds.
    kubeconfig = server.kubeconfig(directory, administrator=path != PODS)
    api = await KubernetesApi.connect(str(kubeconfig))
    followed = Following(api, path, pace, optional=optional)
    task = asyncio.create_task(followed.reflector.run())
    try:
        yield followed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await api.close()


def run(directory: Path, story: Callable[[Any, Following], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with following(server, directory, **options) as followed:
            await story(server, followed)

    with SERVERS.new() as server:
        server.put(PODS, pod("first"))
        server.put(PODS, pod("elsewhere", node="node-b"))
        asyncio.run(main())


async def put(server: ApiServer, written: dict[str, Any]) -> None:
    await asyncio.to_thread(server.put, PODS, written)


async def do(work: Callable[[], object]) -> None:
    await asyncio.to_thread(work)


def test_what_is_there_and_what_comes_and_goes_is_known(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        await followed.sees("first")
        await followed.stands()
        second = pod("second")
        await put(server, second)
        await followed.sees("first", "second")
        await do(lambda: server.delete(PODS, second))
        await followed.sees("first")
        assert followed.reflector.lists == 1

    run(tmp_path, story)


def test_a_pod_that_is_made_again_under_its_name_is_another_one(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        await followed.stands()
        before = set(followed.reflector.records)
        first = pod("first")
        await do(lambda: server.delete(PODS, first))
        await put(server, first)
        await followed.sees("first")
        assert set(followed.reflector.records) != before

    run(tmp_path, story)


@pytest.mark.faults
def test_a_bookmark_saves_a_list_after_the_versions_before_are_forgotten(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        await put(server, pod("elsewhere-2", node="node-b"))
        await do(server.forget)
        await do(server.bookmark)
        await do(server.end_watches)
        await put(server, pod("second"))
        await followed.sees("first", "second")
        assert followed.reflector.lists == 1

    run(tmp_path, story)


@pytest.mark.faults
def test_410_leads_to_a_list_and_what_has_gone_meanwhile_is_dropped(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.refused[PODS] = 503
        await do(server.end_watches)
        await do(lambda: server.delete(PODS, pod("first")))
        await put(server, pod("second"))
        await do(server.forget)
        assert followed.names == {"first"}
        del server.faults.refused[PODS]
        await followed.sees("second")
        assert followed.reflector.lists == 2

    run(tmp_path, story)


@pytest.mark.restarts
def test_a_restarted_server_is_followed_again(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        await followed.stands()
        await do(server.restart)
        await put(server, pod("second"))
        await followed.sees("first", "second")

    run(tmp_path, story)


@pytest.mark.faults
def test_half_an_event_is_no_event_and_the_next_watch_has_it_all(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        await do(lambda: server.say(b'{"type": "DELETED", "object": {"metadata": {"uid'))
        await put(server, pod("second"))
        await followed.sees("first", "second")

    run(tmp_path, story)


@pytest.mark.faults
def test_what_is_not_json_is_survived(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        await do(lambda: server.say(b"<html>gateway</html>\n[1]\n"))
        await put(server, pod("second"))
        await followed.sees("first", "second")

    run(tmp_path, story)


def test_an_object_of_200_kb_comes_through(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        await followed.stands()
        await put(server, pod("large", annotations={"note": "x" * 200_000}))
        await followed.sees("first", "large")

    run(tmp_path, story)


def test_a_list_of_objects_of_200_kb_comes_through(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        names = [f"large-{number}" for number in range(8)]
        for name in names:
            await put(server, pod(name, annotations={"note": "x" * 200_000}))
        async with following(server, tmp_path) as another:
            await another.sees("first", *names)

    run(tmp_path, story)


@pytest.mark.faults
def test_a_list_of_several_pages_is_read_to_its_end(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, _: Following) -> None:
        for number in range(4):
            await put(server, pod(f"more-{number}"))
        server.faults.page = 2
        async with following(server, tmp_path) as another:
            await another.sees("first", *(f"more-{number}" for number in range(4)))
            assert another.reflector.lists == 1

    run(tmp_path, story)


@pytest.mark.faults
def test_pages_that_the_server_no_longer_has_are_listed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = KubernetesApi._call

    async def forgetful(api: KubernetesApi, method: str, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        if "continue" in params and servers:
            await do(servers.pop().forget)
        return await call(api, method, path, params)

    async def story(server: FakeApiServer, _: Following) -> None:
        await put(server, pod("second"))
        server.faults.page = 1
        servers.append(server)
        async with following(server, tmp_path) as another:
            await another.sees("first", "second")
            assert another.reflector.lists == 1

    servers: list[FakeApiServer] = []
    monkeypatch.setattr(KubernetesApi, "_call", forgetful)
    run(tmp_path, story)


@pytest.mark.faults
def test_items_of_null_are_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with following(server, tmp_path) as followed:
            await followed.stands()

    with FakeApiServer() as server:
        server.faults.null_items = True
        asyncio.run(main())


@pytest.mark.faults
def test_errors_are_waited_out_and_the_last_known_state_stays(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.answers = [(500, {}), (429, {"Retry-After": "0"}), (503, {}), (504, {})]
        await do(server.end_watches)
        await put(server, pod("second"))
        await followed.sees("first", "second")
        assert server.faults.answers == []

    run(tmp_path, story)


@pytest.mark.faults
def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    async def main() -> None:
        api = await KubernetesApi.connect(str(server.kubeconfig(tmp_path)))
        try:
            with pytest.raises(ApiError) as raised:
                await api.list(PODS, {})
            assert (raised.value.status, raised.value.retry_after_s) == (429, 7.0)
            assert Following(api, pace=Pace()).reflector._after(raised.value) >= 7.0
        finally:
            await api.close()

    with FakeApiServer() as server:
        server.faults.answers = [(429, {"Retry-After": "7"})]
        asyncio.run(main())


@pytest.mark.faults
@pytest.mark.parametrize("status", [502, 503, 504])
def test_what_a_load_balancer_says_of_itself_is_no_answer(tmp_path: Path, status: int) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.gateway = status
        await do(server.end_watches)

        async def told() -> bool:
            return "no answer" in (followed.reflector.trouble or "")

        await eventually(told)
        assert f"HTTP {status}" in str(followed.reflector.trouble)
        server.faults.gateway = None
        await put(server, pod("second"))
        await followed.sees("first", "second")
        assert followed.reflector.lists == 1, "it has said nothing of what was asked"

    run(tmp_path, story)


def test_refused_by_rbac_is_said_and_mended_by_a_role(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        await followed.stands()
        await do(lambda: server.refuse(PODS))

        async def told() -> bool:
            return "grant list and watch" in (followed.reflector.trouble or "")

        await eventually(told)
        assert followed.names == {"first"}
        await do(lambda: server.permit(PODS))
        await followed.stands()
        assert followed.reflector.trouble is None

    run(tmp_path, story, pace=SHORT)


def test_a_kind_that_the_cluster_does_not_have_is_no_fault(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        async def synced() -> bool:
            return followed.reflector.synced

        await eventually(synced)
        assert followed.reflector.trouble is None

    run(tmp_path, story, path="/apis/example.org/v1/nothings", optional=True)


def test_a_kind_that_appears_later_is_found(tmp_path: Path) -> None:
    path = "/apis/example.org/v1/somethings"

    async def story(server: ApiServer, followed: Following) -> None:
        async def synced() -> bool:
            return followed.reflector.synced

        await eventually(synced)
        await do(lambda: server.add_kind(path))
        await do(lambda: server.put(path, pod("new")))
        await followed.sees("new")

    run(tmp_path, story, path=path, optional=True)


@pytest.mark.faults
def test_a_frozen_server_is_given_up_and_followed_again(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.frozen = True
        await do(server.end_watches)

        async def aged() -> bool:
            return (followed.reflector.age_s or 0.0) > 0.0

        await eventually(aged)
        server.faults.frozen = False
        await put(server, pod("second"))
        await followed.sees("first", "second")

    run(tmp_path, story, pace=SHORT)


@pytest.mark.faults
def test_what_is_known_grows_old_while_a_frozen_server_accepts_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_CALL_TIMEOUT_S", 0.05)

    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.frozen = True
        await do(server.end_watches)

        async def told() -> bool:
            return "no answer" in (followed.reflector.trouble or "")

        await eventually(told)
        age_s, asked = followed.reflector.age_s or 0.0, server.requests["WATCH", PODS]

        async def asked_again() -> bool:
            return server.requests["WATCH", PODS] >= asked + 4

        await eventually(asked_again)
        assert (followed.reflector.age_s or 0.0) > age_s
        assert "no answer" in str(followed.reflector.trouble)
        assert followed.reflector.lists == 1

    run(tmp_path, story)


@pytest.mark.faults
def test_a_watch_on_which_nothing_arrives_for_long_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_QUIET_S", 0.2)

    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.deaf = True
        await put(server, pod("second"))
        before = server.requests["WATCH", PODS]

        async def anew() -> bool:
            return server.requests["WATCH", PODS] > before

        await eventually(anew)
        server.faults.deaf = False
        await followed.sees("first", "second")

    run(tmp_path, story)


@pytest.mark.faults
def test_a_server_that_was_restored_from_a_backup_is_heard_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_QUIET_S", 0.2)

    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        backup = await asyncio.to_thread(server.backup)
        for number in range(5):
            await put(server, pod(f"later-{number}"))
        await do(lambda: server.delete(PODS, pod("first")))
        await followed.sees(*(f"later-{number}" for number in range(5)))
        await do(lambda: server.restore(backup))
        await put(server, pod("new"))
        await followed.sees("first", "new")

    run(tmp_path, story)


@pytest.mark.faults
def test_410_again_and_again_does_not_make_it_ask_without_end(tmp_path: Path) -> None:
    async def story(server: FakeApiServer, followed: Following) -> None:
        await followed.stands()
        server.faults.answers = [(410, {})] * 6
        before = followed.reflector.lists
        await do(server.end_watches)

        async def used_up() -> bool:
            return not server.faults.answers and followed.reflector.age_s == 0.0

        await eventually(used_up)
        assert followed.reflector.lists <= before + 6

    run(tmp_path, story)


@pytest.mark.restarts
def test_the_same_list_again_is_no_news(tmp_path: Path) -> None:
    async def story(server: ApiServer, followed: Following) -> None:
        await followed.stands()
        before = followed.changes
        # A server that has started anew knows no version from before its start.
        await put(server, pod("elsewhere-2", node="node-b"))
        await do(server.restart)

        async def listed() -> bool:
            return followed.reflector.lists == 2 and followed.reflector.age_s == 0.0

        await eventually(listed)
        assert followed.changes == before

    run(tmp_path, story)
