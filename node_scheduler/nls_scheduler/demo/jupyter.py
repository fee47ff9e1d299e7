"""A real Jupyter Server and real notebooks on it, driven over Jupyter's own REST API and kernel WebSocket."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence, Set
    from pathlib import Path

    from tornado.websocket import WebSocketClientConnection

START_TIMEOUT_S = 60.0
CELL_TIMEOUT_S = 120.0
LATE_OUTPUT_S = 5.0


class CellFailed(Exception):  # noqa: N818 - says what happened
    """A cell raised; `ename` and `evalue` are the notebook's, `outputs` what it put out before."""

    def __init__(self, ename: str, evalue: str, outputs: Outputs) -> None:
        super().__init__(f"{ename}: {evalue}")
        self.ename = ename
        self.evalue = evalue
        self.outputs = outputs


@dataclass(slots=True)
class Outputs:
    """What one cell put out.

    Attributes:
        stdout, stderr: streams, joined.
        result: the text of Out[n], if there was one.
        displays: every display and update of a display, as text.
        document: nbformat outputs, as a frontend would store them.
    """

    stdout: str = ""
    stderr: str = ""
    result: str | None = None
    displays: list[str] = field(default_factory=list)
    document: list[dict[str, Any]] = field(default_factory=list)

    def take(self, message: Mapping[str, Any]) -> None:
        """Add one iopub message."""
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "clear_output":
            self.document.clear()
        elif kind == "stream":
            setattr(self, content["name"], getattr(self, content["name"]) + content["text"])
            self._add_stream(content["name"], content["text"])
        elif kind in ("display_data", "update_display_data"):
            self.displays.append(content["data"].get("text/plain", ""))
            if kind == "display_data":
                self._add(kind, data=content["data"], metadata=content.get("metadata", {}))
        elif kind == "execute_result":
            self.result = content["data"].get("text/plain", "")
            count = content["execution_count"]
            self._add(kind, data=content["data"], metadata=content.get("metadata", {}), execution_count=count)
        elif kind == "error":
            self._add(kind, ename=content["ename"], evalue=content["evalue"], traceback=content["traceback"])

    def _add(self, kind: str, **fields: Any) -> None:
        self.document.append({"output_type": kind, **fields})

    def _add_stream(self, name: str, text: str) -> None:
        if self.document and self.document[-1].get("name") == name:
            self.document[-1]["text"] += text
        else:
            self._add("stream", name=name, text=text)


class Notebook:
    """A notebook with a running kernel, as a browser would have it open."""

    def __init__(self, server: JupyterServer, path: str, session: Mapping[str, Any]) -> None:
        self.path = path
        self.kernel_id: str = session["kernel"]["id"]
        self._server = server
        self._session_id = uuid.uuid4().hex
        self._socket: WebSocketClientConnection | None = None
        self._cells: list[dict[str, Any]] = []

    async def run(self, code: str, timeout_s: float = CELL_TIMEOUT_S, outputs: Outputs | None = None) -> Outputs:
        """Execute a cell and return its outputs, which `outputs` has as they come.

        Raises:
            CellFailed: the cell raised.
            TimeoutError: it was not over in time, and goes on.

        Jupyter's sockets drop what comes too fast, the word that the cell is over too: the reply never.
        """
        outputs = Outputs() if outputs is None else outputs
        socket = await self._connected()
        msg_id = uuid.uuid4().hex
        await socket.write_message(json.dumps(self._execute_request(code, msg_id)))
        replied = idle = False
        reply: dict[str, Any] = {}
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while not (replied and idle):
                    text = await socket.read_message()
                    if text is None:
                        raise ConnectionError(f"the server closed the connection to {self.path}")
                    message = json.loads(text)
                    if message["parent_header"].get("msg_id") != msg_id:
                        continue
                    if message["channel"] == "iopub":
                        outputs.take(message)
                        idle = idle or message["content"].get("execution_state") == "idle"
                    elif message["header"]["msg_type"] == "execute_reply":
                        replied, reply = True, message["content"]
                        limit.reschedule(asyncio.get_running_loop().time() + LATE_OUTPUT_S)
        except TimeoutError:
            if not replied:
                raise
        self._remember(code, outputs, reply)
        if reply["status"] != "ok":
            raise CellFailed(reply.get("ename", reply["status"]), reply.get("evalue", ""), outputs)
        return outputs

    async def interrupt(self) -> None:
        """The Stop button."""
        await self._server.request("POST", f"/api/kernels/{self.kernel_id}/interrupt", {})

    async def restart(self) -> None:
        """Restart the kernel, as its menu does."""
        await self._server.request("POST", f"/api/kernels/{self.kernel_id}/restart", {})
        self.close()

    async def shut_down(self) -> None:
        """Close the notebook and end its kernel."""
        self.close()
        await self._server.request("DELETE", f"/api/kernels/{self.kernel_id}")

    async def save(self) -> None:
        """Store the document with its outputs."""
        content = {"cells": self._cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        body = {"type": "notebook", "format": "json", "content": content}
        await self._server.request("PUT", f"/api/contents/{self.path}", body)

    def close(self) -> None:
        """Close the connection; the kernel goes on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _connected(self) -> WebSocketClientConnection:
        if self._socket is None:
            url = f"{self._server.url}/api/kernels/{self.kernel_id}/channels?session_id={self._session_id}"
            headers = {"Authorization": f"token {self._server.token}"}
            request = HTTPRequest(url.replace("http://", "ws://", 1), headers=headers)
            self._socket = await websocket_connect(request, max_message_size=2**26)
        return self._socket

    def _execute_request(self, code: str, msg_id: str) -> dict[str, Any]:
        header = {
            "msg_id": msg_id,
            "username": "demo",
            "session": self._session_id,
            "msg_type": "execute_request",
            "version": "5.3",
            "date": "2026-01-01T00:00:00Z",
        }
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        return {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}

    def _remember(self, code: str, outputs: Outputs, reply: Mapping[str, Any]) -> None:
        self._cells.append(
            {
                "cell_type": "code",
                "id": uuid.uuid4().hex[:8],
                "metadata": {},
                "source": code,
                "execution_count": reply.get("execution_count"),
                "outputs": outputs.document,
            }
        )


class JupyterServer:
    """A running server; `url` without a trailing slash."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self.token = token

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call of Jupyter Server's REST API. Raises HTTPClientError."""
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        text = None if body is None else json.dumps(body)
        request = HTTPRequest(self.url + path, method=method, headers=headers, body=text, request_timeout=60.0)
        response = await AsyncHTTPClient().fetch(request)
        return json.loads(response.body) if response.body else None

    async def open(self, path: str) -> Notebook:
        """A new notebook at `path` with a kernel of its own."""
        empty: dict[str, Any] = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        await self.request("PUT", f"/api/contents/{path}", {"type": "notebook", "format": "json", "content": empty})
        kernel = {"name": "python3"}
        body = {"path": path, "name": path, "type": "notebook", "kernel": kernel}
        return Notebook(self, path, await self.request("POST", "/api/sessions", body))


@asynccontextmanager
async def serve(
    directory: Path, environment: Mapping[str, str], before: Sequence[str] = ()
) -> AsyncIterator[JupyterServer]:
    """A Jupyter Server of its own below `directory`, with none of the user's configuration; ended on leaving.

    Args:
        directory: for its documents, its configuration and its log; absolute.
        environment: beside this process's own.
        before: words before the command, such as those of `setpriv`, which becomes the command or passes SIGTERM on.
    """
    notebooks, runtime = directory / "notebooks", directory / "runtime"
    for made in (notebooks, runtime):
        made.mkdir(mode=0o700, exist_ok=True)
    token = secrets.token_hex(16)
    own = {
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_CONFIG_DIR": str(directory / "config"),
        "JUPYTER_DATA_DIR": str(directory / "data"),
        "IPYTHONDIR": str(directory / "ipython"),
        "JUPYTER_TOKEN": token,
    }
    command = [sys.executable, "-m", "jupyter_server", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0"]
    command += ["--ServerApp.open_browser=False", f"--ServerApp.root_dir={notebooks}", "--ServerApp.allow_root=True"]
    command += ["--KernelManager.transport=ipc"]
    known = _informations(runtime)
    with (directory / "jupyter.log").open("wb") as log:
        # A session of its own: a Ctrl-C in the terminal ends it through whoever serves, not in the middle of that.
        process = await asyncio.create_subprocess_exec(
            *before,
            *command,
            env={**os.environ, **environment, **own},
            cwd=directory,  # whatever is where its user is, or if that is gone
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        url = await _url(process, runtime, known, directory / "jupyter.log")
        yield JupyterServer(url, token)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _url(process: asyncio.subprocess.Process, runtime: Path, known: Set[Path], log: Path) -> str:
    """The address from the file that the server writes once it listens: one that was not `known` before."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while not (written := _informations(runtime) - known):
            if process.returncode is not None:
                raise ConnectionError(f"Jupyter Server did not start; its log {log} says why.")
            await asyncio.sleep(0.05)
        url = str(json.loads(written.pop().read_bytes())["url"])
        while not await _accepts(url):  # noqa: ASYNC110 - another process listens
            await asyncio.sleep(0.02)
    return url


async def _accepts(url: str) -> bool:
    """Whether somebody listens there: the file is written a moment before."""
    try:
        await AsyncHTTPClient().fetch(f"{url}api", raise_error=False)
    except ConnectionRefusedError:
        return False
    return True


def _informations(runtime: Path) -> set[Path]:
    """The files of servers that listen, or did, as far as they are written."""
    return {file for file in runtime.glob("jpserver-*.json") if file.read_bytes().strip()}
