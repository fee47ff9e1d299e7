"""A notebook's new name: told once, again where no daemon answered, and never instead of one that its user chose."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("jupyter_server")

from nls_jupyter_server import renames
from nls_jupyter_server.renames import Renames
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

W = WorkloadId("w")


class Node:
    """A server with one kernel, and a daemon that knows its workload."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path: str | None = "a/Untitled.ipynb"
        self.name = "Untitled.ipynb"
        self.asked: list[str] = []
        self.away = self.ended = False
        self.renames = Renames(self, self.client)  # type: ignore[arg-type]
        monkeypatch.setattr(renames, "variable_of", lambda _pid, _name: "a/Untitled.ipynb")

    async def places(self, workloads: object, found: dict[WorkloadId, int]) -> dict[str, tuple[str, str | None]]:
        del workloads
        return dict.fromkeys(found, ("kernel", self.path))

    async def client(self) -> Node:
        if self.away:
            raise DaemonUnreachable("it is away")
        return self

    async def explain(self, workload: str) -> dict[str, str]:
        self.asked.append(workload)
        if self.ended:
            raise Problem(404, "Unknown workload", "It has ended.", "unknown-workload")
        return {"name": self.name}

    async def patch(self, workload: str, *, name: str) -> None:
        assert workload == W
        self.name = name

    def look(self) -> str:
        asyncio.run(self.renames.look({W: 42}))
        return self.name


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_a_new_name_is_told_once_and_the_next_one_too(node: Node) -> None:
    assert (node.look(), node.asked) == ("Untitled.ipynb", [])
    node.path = "b/thesis.ipynb"
    assert [node.look(), node.look()] == ["thesis.ipynb"] * 2
    node.path = "b/thesis 2.ipynb"
    assert [node.look(), node.look()] == ["thesis 2.ipynb"] * 2
    node.path = "a/Untitled.ipynb"
    assert node.look() == "Untitled.ipynb"
    assert len(node.asked) == 3


def test_another_folder_is_no_other_name_and_neither_is_none(node: Node) -> None:
    for node.path in ("elsewhere/Untitled.ipynb", None, ""):
        node.look()
    assert node.asked == []


def test_a_name_that_its_user_has_chosen_stays(node: Node) -> None:
    node.name, node.path = "training", "a/thesis.ipynb"
    assert [node.look(), node.look()] == ["training"] * 2
    assert len(node.asked) == 1


def test_a_daemon_that_is_away_is_told_later_and_what_has_ended_is_not_asked_about_again(node: Node) -> None:
    node.path, node.away = "a/thesis.ipynb", True
    assert node.look() == "Untitled.ipynb"
    node.away = False
    assert node.look() == "thesis.ipynb"
    node.path, node.ended = "a/other.ipynb", True
    assert [node.look(), node.look()] == ["thesis.ipynb"] * 2
    assert len(node.asked) == 2
