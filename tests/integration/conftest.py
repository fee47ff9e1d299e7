"""What all integration tests share: nothing of a test may outlive it."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leftovers import MARK, marked_processes, named_or_socket, wait_until_none
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.link import SupervisorLink
from notebooks import Bench
from openapi_contract import check_response, check_schema

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from tornado.httpclient import HTTPResponse


@pytest.fixture(autouse=True)
def contract_of_the_interface() -> Iterator[None]:
    """Whatever a client in this process and a daemon tell each other is held against the OpenAPI file."""
    outcome, take, post = DaemonClient._outcome, SupervisorLink._take, SupervisorLink._post

    async def checked_outcome(
        self: DaemonClient, fetch: asyncio.Future[HTTPResponse], received: bytearray | None = None
    ) -> HTTPResponse:
        try:
            return await outcome(self, fetch, received)
        finally:
            answer = fetch.result() if fetch.exception() is None else getattr(fetch.exception(), "response", None)
            if answer is not None and answer.code != 599 and answer.request.streaming_callback is None:
                request = answer.request
                check_response(request.method, request.url, answer.code, answer.headers, answer.body or b"")

    def checked_take(self: SupervisorLink, text: str | bytes) -> None:
        check_schema("#/components/schemas/DaemonMessage", json.loads(text), f"the daemon sent {text!r:.200}")
        take(self, text)

    def checked_post(self: SupervisorLink, *texts: str, **options: float) -> None:
        for text in texts:
            check_schema("#/components/schemas/SupervisorEvent", json.loads(text), f"a supervisor sent {text:.200}")
        post(self, *texts, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DaemonClient, "_outcome", checked_outcome)
        patch.setattr(SupervisorLink, "_take", checked_take)
        patch.setattr(SupervisorLink, "_post", checked_post)
        yield


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Notebooks on a GPU of their own, for one file's tests."""
    with Bench(tmp_path_factory.mktemp("bench"), "1x256MiB") as running:
        yield running


@pytest.fixture
def mark() -> str:
    """In the environment of each process that the test starts."""
    return uuid.uuid4().hex


@pytest.fixture(autouse=True)
def no_leftovers(
    mark: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Each test has its own runtime, temporary and IPython directories, and leaves no process, socket or memory."""
    tmp_path_factory.getbasetemp()  # made while the temporary directory is still everybody's
    with tempfile.TemporaryDirectory(prefix="nt-", ignore_cleanup_errors=True) as home:
        for variable in ("XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR", "IPYTHONDIR"):
            directory = Path(home) / variable.lower()[:3]
            directory.mkdir(mode=0o700)
            monkeypatch.setenv(variable, str(directory))
        monkeypatch.setattr(tempfile, "tempdir", os.environ["TMPDIR"])
        monkeypatch.setenv(MARK, mark)
        before = named_or_socket(Path("/dev/shm"))
        yield
        wait_until_none("processes", lambda: marked_processes(mark))
        wait_until_none("files", lambda: named_or_socket(Path(home)))
        wait_until_none("shared memory", lambda: named_or_socket(Path("/dev/shm")) - before)
