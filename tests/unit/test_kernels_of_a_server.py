"""Which notebook a workload is shown as, where several sessions of a server share its kernel."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("jupyter_server")

from nls_jupyter_server.kernels import Kernels
from nls_scheduler.core.model.ids import WorkloadId

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

W = WorkloadId("w")


def shown(*sessions: tuple[str, str]) -> str | None:
    """The path that is shown where these sessions, by path and kind, have been opened one after the other."""

    async def listed() -> list[dict[str, Any]]:
        return [{"path": path, "type": kind, "kernel": {"id": "k"}} for path, kind in sessions]

    places = asyncio.run(kernels(listed).places([{"id": W}], {W: os.getpid()}))
    assert places[W][0] == "k"
    return places[W][1]


def kernels(sessions: Callable[[], Awaitable[list[dict[str, Any]]]]) -> Kernels:
    """Those of a server with one kernel, which is this process."""
    kernel = SimpleNamespace(provisioner=SimpleNamespace(pid=os.getpid()))
    manager: Any = SimpleNamespace(list_kernel_ids=lambda: ["k"], get_kernel=lambda _: kernel)
    return Kernels(manager, cast("Any", SimpleNamespace(list_sessions=sessions)))


def test_the_notebook_that_was_there_first_gives_the_name() -> None:
    assert shown(("a.ipynb", "notebook"), ("b.ipynb", "notebook")) == "a.ipynb"
    assert shown(("b.ipynb", "notebook")) == "b.ipynb"
    assert shown() is None


def test_a_console_gives_it_only_where_there_is_no_notebook() -> None:
    assert shown(("a.ipynb", "notebook"), ("console-1", "console")) == "a.ipynb"
    assert shown(("console-1", "console"), ("a.ipynb", "notebook")) == "a.ipynb"
    assert shown(("console-1", "console")) == "console-1"


@pytest.mark.parametrize("own", [True, False])
def test_anothers_process_is_no_kernel_of_ours_whatever_its_number_is_here(own: bool) -> None:
    async def none() -> list[dict[str, Any]]:
        return []

    # As a daemon numbers it that sees other processes than this server does.
    entry = {"id": W, "owner": os.geteuid(), "own": own, "supervisor_pid": os.getpid(), "pid": None}
    assert asyncio.run(kernels(none).places([entry], {})) == ({W: ("k", None)} if own else {})


def test_a_server_without_kernels_of_this_machine_asks_nobody_for_its_sessions() -> None:
    async def asked() -> list[dict[str, Any]]:
        raise AssertionError("a gateway would be asked about each of its sessions")

    elsewhere = SimpleNamespace(provisioner=None)
    manager: Any = SimpleNamespace(list_kernel_ids=lambda: ["k"], get_kernel=lambda _: elsewhere)
    of_a_gateway = Kernels(manager, cast("Any", SimpleNamespace(list_sessions=asked)))
    assert asyncio.run(of_a_gateway.places([{"id": W}], {W: os.getpid()})) == {}
