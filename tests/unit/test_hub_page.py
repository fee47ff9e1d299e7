"""The page in the hub: what it shows to whom, and what it never does."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from traitlets.config import Config

from daemon_process import ROOT
from nls_jupyter_server.hub import asked_as
from nls_jupyter_server.hub.node import Node, NotShownError, Seen
from nls_jupyter_server.hub.page import page, shown

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
GPU = {
    "uuid": "a", "index": 0, "name": "Test", "memory_total_bytes": 16 * GIB, "memory_used_bytes": 3 * GIB,
    "utilisation": None, "unplaced_bytes": GIB, "healthy": False, "unhealthy_reason": "it has <vanished>",
}  # fmt: skip


def workload(name: str, owner: int) -> dict[str, Any]:
    return {
        "id": name, "name": name, "owner": owner, "phase": "running", "position": None, "gpus": ["GPU 0"],
        "current": ["a"], "request_bytes": 4 * GIB, "limit_bytes": 8 * GIB, "memory_used_bytes": 5 * GIB,
        "reason": "at home & well",
    }  # fmt: skip


ENTRY = {
    "time": "2026-11-24T12:00:00.000+00:00", "name": "x.ipynb", "event": "start_failed", "from": None, "to": "GPU 0",
    "reason": "<why>",
}  # fmt: skip
STATUS = {
    "simulated": True, "message": None, "gpus": [GPU],
    "workloads": [workload("<script>alert(1)</script>", 7), workload("another user's notebook", 8)],
}  # fmt: skip


def text(seen: Seen | None, why_not: str = "") -> str:
    return page(seen, why_not, lambda uid: f"user{uid}", "the-nonce").decode()


def test_an_administrator_sees_everybody_with_whose_it_is_and_what_happened() -> None:
    told = text(Seen(STATUS, [ENTRY], None))
    assert "<td>user7</td>" in told
    assert "<td>user8</td>" in told
    assert "start failed GPU 0" in told
    assert told.count("<rect") == 6  # guaranteed and burst of two, unplaced, and a bit that is free
    assert "These GPUs are simulated." in told


def test_what_is_guaranteed_on_each_of_several_gpus_is_no_sum() -> None:
    both = workload("both", 7) | {"gpus": ["GPU 0", "GPU 1"]}
    told = text(Seen(STATUS | {"workloads": [both]}, [], None))
    assert "<td>5 GiB</td><td>2 x 4 GiB</td><td>2 x 8 GiB</td>" in told


def test_what_happened_has_its_day_and_the_time_of_this_place_s_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        told = text(Seen(STATUS, [ENTRY, ENTRY | {"time": "2026-11-24T20:30:00.000+00:00"}], None))
    time.tzset()
    assert ">24 Nov 21:00:00</time>" in told
    assert ">25 Nov 05:30:00</time>" in told


def test_a_user_sees_their_own_only() -> None:
    seen = Seen(STATUS, [], 8)
    assert [each["owner"] for each in shown(seen)] == [8]
    told = text(seen)
    assert "<td>another user&#x27;s notebook</td>" in told
    assert "<td>&lt;script&gt;" not in told
    assert "user7" not in told
    assert "You have none." in text(Seen(STATUS, [], 9))


def test_nothing_that_somebody_named_is_markup() -> None:
    told = text(Seen(STATUS, [ENTRY], None))
    assert "<script" not in told
    assert "<vanished>" not in told
    assert "<why>" not in told
    assert "style=" not in told  # the policy allows the one style with its nonce
    assert '<style nonce="the-nonce">' in told


def test_where_nothing_can_be_shown_it_says_why() -> None:
    told = text(None, "No <daemon>.")
    assert 'role="alert">No &lt;daemon&gt;.</p>' in told
    assert "<table" not in told


@pytest.mark.parametrize(
    ("template", "name", "says"),
    [("{username}", "nobody-of-this-name", "no user 'nobody-of-this-name'"),
     ("{username}", "root", "administrators only"),
     ("jupyter-{username}", "root", "no user 'jupyter-root'"), ("{username}", "{username.__class__}", "no user")],
)  # fmt: skip
def test_a_name_of_the_hub_is_no_other_user_of_this_machine(template: str, name: str, says: str) -> None:
    with pytest.raises(NotShownError, match=says):
        asyncio.run(Node(None, template).for_user(name))


def test_a_service_without_the_right_asks_in_nobodys_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    other = next(user.pw_name for user in pwd.getpwall() if user.pw_uid not in (0, 4242))
    with pytest.raises(NotShownError, match="may not ask in your name"):
        asyncio.run(Node(None, "{username}").for_user(other))


def test_a_daemon_that_is_slow_is_asked_once_however_many_pages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Node] = []

    async def story() -> None:
        answers = asyncio.Event()

        async def ask(node: Node) -> Seen:
            asked.append(node)
            await answers.wait()
            return Seen(STATUS, [], None)

        monkeypatch.setattr(Node, "_as_service", ask)
        monkeypatch.setattr("nls_jupyter_server.hub.node.KEPT_S", -1.0)
        node = Node(None, "{username}")
        pages = [asyncio.create_task(node.for_administrator()) for _ in range(3)]
        await asyncio.sleep(0)
        answers.set()
        assert await asyncio.gather(*pages) == [Seen(STATUS, [], None)] * 3
        assert len(asked) == 1
        await node.for_administrator()
        assert len(asked) == 2

    asyncio.run(story())


@pytest.mark.parametrize("own", [False, True])
def test_the_daemon_is_asked_with_the_rights_of_the_user_groups_too(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hub that is no root asks for its own user only, who is that already."""
    user = next(user for user in pwd.getpwall() if user.pw_uid != 0)
    taken: list[Any] = []
    for step in ("initgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, step, lambda *given: taken.append(given[0]))
    monkeypatch.setattr(os, "geteuid", lambda: user.pw_uid if own else 0)
    monkeypatch.setattr(sys, "argv", ["asked_as", f"{user.pw_uid}", f"{user.pw_gid}", "--socket", f"{tmp_path}/none"])
    assert asked_as.main() == 1
    assert "No daemon answers" in capsys.readouterr().err
    assert taken == ([] if own else [user.pw_name, user.pw_gid, user.pw_uid])


def test_what_the_guide_adds_to_a_hub_s_configuration_leaves_what_is_there() -> None:
    guide = (ROOT / "docs" / "jupyterhub.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    c = Config({"JupyterHub": {"services": [{"name": "cull-idle"}], "load_roles": [{"name": "culler"}]}})
    exec(written, {"c": c})
    assert [service["name"] for service in c.JupyterHub.services] == ["cull-idle", "gpus"]
    assert [role["name"] for role in c.JupyterHub.load_roles] == ["culler", "user"]
    _, flag, module = c.JupyterHub.services[1]["command"]
    assert flag == "-m"
    assert importlib.util.find_spec(module) is not None
