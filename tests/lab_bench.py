"""A daemon, a Jupyter Server with our extension, and pages on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from notebooks import PATIENCE_S, Bench
from pages import Answer, Page, ask, enable_extension
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AUTHORIZER = """
from jupyter_server.auth import Authorizer

class Some(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "nls_gpu" or action in {actions!r}

c.ServerApp.authorizer_class = Some
"""


class LabBench(Bench):
    """A bench whose server has the extension; pages can be opened and requests made."""

    def __init__(self, *arguments: Any, **variables: str) -> None:
        super().__init__(*arguments, **variables)
        self._pages: list[Page] = []
        self._again: subprocess.Popen[bytes] | None = None

    def __exit__(self, *error: object) -> None:
        self.wait(self._close_pages())
        if self._again is not None:
            # With a request under way Jupyter Server, asked to end, waits for ever for a thread of AnyIO's.
            self._again.kill()
            self._again.wait(PATIENCE_S)
        super().__exit__(*error)

    async def _close_pages(self) -> None:
        for page in self._pages:
            page.close()

    def __enter__(self) -> Self:
        super().__enter__()
        # The server tells its address a moment before it accepts connections.
        self.wait(eventually(self._answers, PATIENCE_S))
        return self

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return (await ask(self._server, "GET", "status")).code in (200, 403)
        return False

    def restart_server(self) -> None:
        """Killed, and started again at its old address, as a service manager does after a crash."""
        (written,) = (self._directory / "runtime").glob("jpserver-*.json")
        pid, port = int(written.stem.partition("-")[2]), json.loads(written.read_text())["port"]
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
        variables = [line.partition("=") for line in Path(f"/proc/{pid}/environ").read_text().split("\0") if line]
        os.kill(pid, signal.SIGKILL)
        written.unlink()
        command = [f"--ServerApp.port={port}" if word == "--ServerApp.port=0" else word for word in words]
        environment = {name: value for name, _, value in variables}
        with (self._directory / "jupyter.log").open("ab") as log:
            self._again = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.wait(eventually(self._answers, PATIENCE_S))

    def page(self, headers: dict[str, str] | None = None) -> Page:
        """Open one. Raises HTTPClientError when refused."""
        self._pages.append(self.wait(Page().open(self._server, headers)))
        return self._pages[-1]

    def until(self, page: Page, holds: Any, timeout_s: float = 30.0) -> Any:
        """Follow `page` until its state is so."""
        return self.wait(page.until(holds, timeout_s))

    def ask(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
        """One request below `nls/api/`."""
        return self.wait(ask(self._server, method, path, body, headers))

    def raw(self, **fields: Any) -> Any:
        """Any request of the server, for what only cookies can do."""
        path = fields.pop("path")
        request = HTTPRequest(self._server.url + path, follow_redirects=False, **fields)
        return self.wait(AsyncHTTPClient(force_instance=True).fetch(request, raise_error=False))

    async def listen(self) -> Any:
        """Jupyter's event bus."""
        url = f"{self._server.url}/api/events/subscribe".replace("http://", "ws://", 1)
        return await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {self.token}"}))

    @property
    def url(self) -> str:
        """Of the server, without a trailing slash."""
        return self._server.url

    @property
    def token(self) -> str:
        """The server's."""
        return self._server.token


@contextlib.contextmanager
def lab_bench(
    directory: Path, simulate: str = "2x256MiB", settings: str = "", daemon: Sequence[str] = ()
) -> Iterator[LabBench]:
    """`settings`: lines for the server's configuration file; `daemon`: further words for `nls up`."""
    enable_extension(directory, settings)
    with LabBench(directory, simulate, *daemon) as bench:
        yield bench
