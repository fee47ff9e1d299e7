"""What one user may have of a daemon that all share."""

from __future__ import annotations

import asyncio
import json
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tornado import web
from tornado.netutil import bind_unix_socket

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.daemon.bounds import Bounds, Turnstile
from nls_scheduler.daemon.http.connections import BoundedServer
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

ANNA, BERT = (1001, ""), (1002, "")
BOUNDS = Bounds(workloads=3, submissions_at_once=2, submissions_per_s=0.5)


def test_so_many_come_at_once_and_then_one_at_each_turn() -> None:
    turnstile = Turnstile()
    for _ in range(2):
        turnstile.submit(ANNA, BOUNDS, 100.0)
    with pytest.raises(Problem, match="try again in 2 s") as caught:
        turnstile.submit(ANNA, BOUNDS, 100.5)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 2)
    turnstile.submit(ANNA, BOUNDS, 102.0)
    with pytest.raises(Problem):
        turnstile.submit(ANNA, BOUNDS, 103.9)
    for _ in range(2):
        turnstile.submit(ANNA, BOUNDS, 106.0)


def test_another_user_and_another_pod_of_the_same_user_id_have_buckets_of_their_own() -> None:
    turnstile = Turnstile()
    for user in (ANNA, BERT, (1001, "pod-1")):
        for _ in range(2):
            turnstile.submit(user, BOUNDS, 100.0)
        with pytest.raises(Problem):
            turnstile.submit(user, BOUNDS, 100.0)


def test_who_has_not_come_for_long_is_forgotten() -> None:
    turnstile = Turnstile()
    for uid in range(5000):
        turnstile.submit((uid, ""), BOUNDS, float(uid))
    assert len(turnstile._full_at) < 1100


def test_as_many_new_workloads_as_one_may_have_leave_room_for_those_that_come_back() -> None:
    BOUNDS.check_workloads(2)
    with pytest.raises(Problem, match=r"You have 3 workloads .* release some of them first"):
        BOUNDS.check_workloads(3)
    BOUNDS.check_adopted(5)
    with pytest.raises(Problem, match="You have 6 workloads"):
        BOUNDS.check_adopted(6)


class Refusing(DaemonClient):
    """A client whose daemon answers with what it is given."""

    def __init__(self, socket: Path, *answers: Problem | dict[str, Any]) -> None:
        super().__init__(socket)
        self.answers = list(answers)

    async def _answer(self, *_: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Problem):
            raise answer
        return SimpleNamespace(body=json.dumps(answer), headers={})


@pytest.mark.parametrize(("waits", "left"), [((0, 0), 0), ((0, None), 1), ((10_000, 0), 2)])
def test_a_submission_is_tried_again_where_that_is_said_to_help_soon(
    tmp_path: Path, waits: tuple[int | None, ...], left: int
) -> None:
    refusals = [Problem(429, "Too many", "Too many.", retry_after_s=wait_s) for wait_s in waits]
    client = Refusing(tmp_path, *refusals, {"id": "w"})
    if left:
        with pytest.raises(Problem, match=r"Too many\."):
            asyncio.run(client.submit(kind="command"))
    else:
        assert asyncio.run(client.submit(kind="command")) == {"id": "w"}
    assert len(client.answers) == left


def refused(path: Path, connections: int, **settings: Any) -> int:
    """How many of some connections of this process a server refuses because they are one user's."""
    told = answered(path, connections, **settings)
    assert set(told) <= {b"404", b"429"}
    return told.count(b"429")


def answered(path: Path, connections: int, **settings: Any) -> list[bytes]:
    """What a server says to some connections of this process, one after another."""

    async def ask() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server = BoundedServer(web.Application([]), **settings)
        server.add_socket(bind_unix_socket(str(path)))
        held = [socket.socket(socket.AF_UNIX) for _ in range(connections)]
        statuses = []
        for one in held:
            one.setblocking(False)
            await loop.sock_connect(one, str(path))
            await loop.sock_sendall(one, b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
            statuses.append((await loop.sock_recv(one, 65536)).split()[1])
        for one in held:
            one.close()
        server.stop()
        await server.close_all_connections()
        return statuses

    return asyncio.run(ask())


def test_whatever_others_have_open_our_own_user_comes_in(tmp_path: Path) -> None:
    whose = iter([*["pod"] * 50, "", ""])
    told = answered(tmp_path / "a", 52, most_connections=50, most_per_user=50, tenant_of=lambda _: next(whose))
    assert told == [*[b"404"] * 49, b"503", b"404", b"503"]


def test_a_pod_may_have_the_connections_of_one_user_whoever_it_runs_as(tmp_path: Path) -> None:
    """The daemon's own user id is root's, and so is that of many containers."""
    assert refused(tmp_path / "a", 6, most_connections=8) == 0
    assert refused(tmp_path / "b", 6, most_connections=8, tenant_of=lambda _: "pod") == 2
    assert refused(tmp_path / "c", 6, most_connections=8, most_per_user=1, tenant_of=lambda _: "pod") == 5
