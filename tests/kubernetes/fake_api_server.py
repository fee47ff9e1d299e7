"""A small API server: list, watch with bookmarks, 410, Events, and faults on demand. Same calls as for a real one.

Runs in a thread of its own, so that tests and benchmarks are plain functions and the daemon a real process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import threading
import uuid
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from api_rules import invalid_event, refusal, unaccepted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HISTORY_KEPT = 10_000


@dataclass
class Faults:
    """What goes wrong at the moment. Each entry of `answers` is used up by one request.

    `deaf`: watches are silent. `gateway`: what stands before the server has none, and says so with this status.
    `page`: so many objects at most are in an answer. `null_items`: an empty list is written as Go writes one.
    """

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    frozen: bool = False
    deaf: bool = False
    gateway: int | None = None
    page: int | None = None
    null_items: bool = False
    no_watch_after_accept: bool = False


@dataclass
class _Change:
    version: int
    path: str
    kind: str
    written: dict[str, Any]


class FakeApiServer:
    """Use as a context manager. `put` and `delete` take an object with its collection's path."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.created: list[dict[str, Any]] = []
        self.authorizations: set[str | None] = set()
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._changes: list[_Change] = []
        self._version = 100
        self._oldest = 100
        self._watchers: set[_Watcher] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-api-server")
        self.kinds = {
            "/api/v1/pods",
            "/api/v1/nodes",
            "/api/v1/configmaps",
            "/apis/scheduling.run.ai/v1alpha2/bindrequests",
            "/apis/resource.k8s.io/v1/resourceslices",
            "/apis/resource.k8s.io/v1/resourceclaims",
        }

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Callable[[], Any]) -> Any:
        """Run a coroutine function in the server's thread."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)

    async def _start(self, port: int = 0) -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._listen(port)

    async def _listen(self, port: int) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", port)
        await self._site.start()
        self.port = self._site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def _stop(self) -> None:
        self._end_watches()
        await self._runner.cleanup()

    # What tests do to it -----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, directory: Path, *, administrator: bool = False) -> Path:
        """A kubeconfig that leads here; who comes by it makes no difference."""
        del administrator
        path = directory / "kubeconfig"
        cluster = {"name": "fake", "cluster": {"server": self.url}}
        context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
        users = [{"name": "fake", "user": {"token": "secret"}}]
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": users}
        path.write_text(json.dumps({**config, "current-context": "fake"}))
        return path

    def service_account(self, directory: Path) -> dict[str, str]:
        """The files that a pod finds, into `directory`, and the variables that it has; TLS from then on as well."""
        key, certificate = directory / "key.pem", directory / "ca.crt"
        extensions = ["subjectAltName=IP:127.0.0.1", "keyUsage=digitalSignature,keyCertSign"]
        added = [word for each in extensions for word in ("-addext", each)]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=fake"]
        command = ["openssl", "req", "-x509", *kind, *added, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        (directory / "token").write_text("secret\n")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)

        async def work() -> int:
            site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            port: int = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
            return port

        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.do(work))}

    def put(self, collection: str, written: dict[str, Any]) -> dict[str, Any]:
        """Create or replace an object; returns it with its UID and version."""

        async def work() -> dict[str, Any]:
            return self._put(collection, written)

        return self.do(work)

    def delete(self, collection: str, written: dict[str, Any]) -> None:
        """Delete an object. One that is not there stays away."""

        async def work() -> None:
            key = _key(collection, written)
            gone = self._objects.pop(key, None)
            if gone is not None:
                self._record(collection, "DELETED", gone)

        self.do(work)

    def clear(self, collection: str) -> None:
        """Delete all objects of a collection."""
        for (where, _, _), written in list(self._objects.items()):
            if where == collection:
                self.delete(collection, written)

    def remove_kind(self, path: str) -> None:
        """From now on there is no such kind of object; nobody is told that its objects are gone."""

        async def work() -> None:
            self.kinds.discard(path)
            self._objects = {key: written for key, written in self._objects.items() if key[0] != path}
            self._end_watches()

        self.do(work)

    def add_kind(self, path: str) -> None:
        """From now on there is that kind of object."""
        self.kinds.add(path)

    def refuse(self, collection: str) -> None:
        """The daemon may not read that collection any more."""
        self.faults.refused[collection] = 403

    def permit(self, collection: str) -> None:
        """It may again."""
        self.faults.refused.pop(collection, None)

    def forget(self) -> None:
        """Compact: every version from before is answered with 410."""

        async def work() -> None:
            self._version += 1
            self._changes.clear()
            self._oldest = self._version

        self.do(work)

    def bookmark(self) -> None:
        """Send a bookmark to everybody who watches."""

        async def work() -> None:
            self._version += 1
            for watcher in (each for each in self._watchers if each.since < self._version):
                metadata = {"resourceVersion": str(self._version)}
                watcher.queue.put_nowait({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": metadata}})

        self.do(work)

    def say(self, line: bytes, *, to: str | None = None, then_end: bool = True) -> None:
        """Send these bytes, whatever they are, to everybody who watches, or who watches that collection."""

        async def work() -> None:
            for watcher in (each for each in self._watchers if to in (None, each.collection)):
                watcher.queue.put_nowait(line)
                if then_end:
                    watcher.queue.put_nowait(None)

        self.do(work)

    def end_watches(self) -> None:
        """As a server does after timeoutSeconds."""

        async def work() -> None:
            self._end_watches()

        self.do(work)

    def restart(self) -> None:
        """Away, and back on the same port with all versions forgotten."""

        async def work() -> None:
            await self._stop()
            self._changes.clear()
            self._version += 1000
            self._oldest = self._version
            await self._start(self.port)

        self.do(work)

    def backup(self) -> tuple[int, dict[tuple[str, str, str], dict[str, Any]]]:
        """Everything that is stored, as etcd's snapshot has it."""
        return self._version, deepcopy(self._objects)

    def restore(self, backup: tuple[int, dict[tuple[str, str, str], dict[str, Any]]]) -> None:
        """As after etcd was restored: objects and versions of then, and nobody is told what has come or gone since."""

        async def work() -> None:
            await self._stop()
            self._version, self._objects = backup
            self._changes, self._oldest = [], self._version
            await self._start(self.port)

        self.do(work)

    @property
    def watching(self) -> int:
        """How many watches stand."""
        return len(self._watchers)

    def watching_for(self, collection: str) -> bool:
        """Whether a watch of that collection stands."""
        return any(watcher.collection == collection for watcher in tuple(self._watchers))

    # What the API's clients do -----------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        watch = request.query.get("watch") in ("1", "true")
        self.requests["WATCH" if watch else request.method, path] += 1
        self.authorizations.add(request.headers.get("Authorization"))
        if self.faults.frozen:
            await asyncio.sleep(3600)
        if self.faults.gateway is not None:
            return web.Response(status=self.faults.gateway, text="<html>Bad Gateway</html>", content_type="text/html")
        if self.faults.answers:
            status, headers = self.faults.answers.pop(0)
            return _status(status, "a fault on demand", headers)
        if path in self.faults.refused:
            return _status(self.faults.refused[path], refusal(request.method, path), {})
        collection, namespace = _collection(path)
        if request.method == "POST":
            body = await request.json()
            if (why := invalid_event(body, namespace)) is not None:
                return _status(422, why, {})
            self.created.append(body)
            return web.json_response(body, status=201)
        if collection not in self.kinds:
            return _status(404, "the server could not find the requested resource", {})
        if (why := unaccepted(request.query, collection)) is not None:
            return _status(400, why, {})
        if watch:
            return await self._watch(request, collection, namespace)
        return self._list(request, collection, namespace)

    def _list(self, request: web.Request, collection: str, namespace: str | None) -> web.Response:
        items = [o for (c, _, _), o in self._objects.items() if c == collection and _selected(request, namespace, o)]
        at, _, version = request.query.get("continue", f"0/{self._version}").partition("/")
        if int(version) < self._oldest:
            return _status(410, "The provided continue parameter is too old", {})
        first, page = int(at), self.faults.page or len(items)
        metadata = {"resourceVersion": version}
        if first + page < len(items):
            metadata["continue"] = f"{first + page}/{version}"
        shown = items[first : first + page] or (None if self.faults.null_items else [])
        return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": shown})

    async def _watch(self, request: web.Request, collection: str, namespace: str | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        since = int(request.query.get("resourceVersion") or 0)
        watcher = _Watcher(collection, since, lambda o: _selected(request, namespace, o))
        if since < self._oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            watcher.queue.put_nowait({"type": "ERROR", "object": gone})
            watcher.queue.put_nowait(None)
        for change in self._changes:
            watcher.tell(change)
        self._watchers.add(watcher)
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds") or 300)):
                while (said := await watcher.queue.get()) is not None:
                    if self.faults.deaf:
                        continue
                    await response.write(said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n")
        except (TimeoutError, ConnectionResetError):
            pass
        finally:
            self._watchers.discard(watcher)
        with contextlib.suppress(ConnectionResetError):
            await response.write_eof()
        return response

    def _put(self, collection: str, written: dict[str, Any]) -> dict[str, Any]:
        key = _key(collection, written)
        metadata = written.setdefault("metadata", {})
        known = self._objects.get(key)
        metadata.setdefault("uid", known["metadata"]["uid"] if known else str(uuid.uuid4()))
        kind = "MODIFIED" if known is not None and known["metadata"]["uid"] == metadata["uid"] else "ADDED"
        stored = json.loads(json.dumps(written))
        self._objects[key] = stored
        self._record(collection, kind, stored)
        return stored

    def _record(self, collection: str, kind: str, written: dict[str, Any]) -> None:
        self._version += 1
        written["metadata"]["resourceVersion"] = str(self._version)
        change = _Change(self._version, collection, kind, json.loads(json.dumps(written)))
        self._changes = [*self._changes[-HISTORY_KEPT:], change]
        for watcher in self._watchers:
            watcher.tell(change)

    def _end_watches(self) -> None:
        for watcher in self._watchers:
            watcher.queue.put_nowait(None)


class _Watcher:
    """Hears what is newer than `since`, which may be a version that is still to come: until then it hears nothing."""

    def __init__(self, collection: str, since: int, selected: Callable[[dict[str, Any]], bool]) -> None:
        self.collection = collection
        self.since = since
        self.selected = selected
        self.queue: asyncio.Queue[dict[str, Any] | bytes | None] = asyncio.Queue()

    def tell(self, change: _Change) -> None:
        if change.path == self.collection and change.version > self.since and self.selected(change.written):
            self.queue.put_nowait({"type": change.kind, "object": change.written})


def _collection(path: str) -> tuple[str, str | None]:
    """`/api/v1/namespaces/NS/pods` -> `/api/v1/pods`, NS."""
    head, found, rest = path.partition("/namespaces/")
    if not found:
        return path, None
    namespace, _, name = rest.partition("/")
    return f"{head}/{name}", namespace


def _key(collection: str, written: dict[str, Any]) -> tuple[str, str, str]:
    metadata = written["metadata"]
    return (collection, metadata.get("namespace", ""), metadata["name"])


def _selected(request: web.Request, namespace: str | None, written: dict[str, Any]) -> bool:
    metadata = written["metadata"]
    if namespace is not None and metadata.get("namespace") != namespace:
        return False
    labels = (term.partition("=") for term in filter(None, request.query.get("labelSelector", "").split(",")))
    if any(metadata.get("labels", {}).get(name) != wanted for name, _, wanted in labels):
        return False
    for term in filter(None, request.query.get("fieldSelector", "").split(",")):
        field_name, _, wanted = term.partition("=")
        value: Any = written
        for part in field_name.split("."):
            value = value.get(part, "") if isinstance(value, dict) else ""
        if value != wanted:
            return False
    return True


def _status(code: int, message: str, headers: dict[str, str]) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return web.json_response(body, status=code, headers=headers)
