"""The API server over HTTP. Raw JSON: no typed models."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from nls_scheduler.kubernetes_driver import access
from nls_scheduler.kubernetes_driver.access import OLD_CA_VARIABLE, Access
from nls_scheduler.kubernetes_driver.reflector import GONE, UNAUTHORIZED, ApiError, shortened
from nls_scheduler.kubernetes_driver.written import mapping, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

_CALL_TIMEOUT_S: Final = 30.0
_CONNECT_TIMEOUT_S: Final = 10.0
_QUIET_S: Final = 90.0
"""Bookmarks come about each minute: a watch on which not a byte has come for so long has lost its connection, or waits
for a version that its server does not have yet."""
_LINE_LIMIT_BYTES: Final = 16 * 2**20
_MESSAGE_LIMIT: Final = 1000
_STRICT: Final = ("does not include key usage", "Missing Authority Key Identifier", "Basic Constraints of CA cert")
_OLD_CA: Final = (
    "the cluster's CA certificate is older than what Python 3.13 accepts (RFC 5280 wants more extensions in it): give "
    f"the cluster a new CA, or set {OLD_CA_VARIABLE}=1 for the daemon, which then checks them as Python 3.12 does"
)
_UNREADABLE: Final = 500
"""The status of an event that nobody can get over: the next watch from there would have it again."""
_OK: Final = range(200, 300)
_OF_GATEWAYS: Final = (502, 503, 504)
_BROKEN: Final = (aiohttp.ClientError, OSError, ValueError)
"""What aiohttp raises; ValueError for what it cannot send or read."""
_TURNS_TO_CLOSE: Final = 5
_MOST_CONNECTIONS: Final = 100
_BUFFER_BYTES: Final = 2 * 2**20
"""One event may be as large as an object can be."""


class KubernetesApi:
    """Reads collections, follows them, and creates Events. Raises ApiError only."""

    def __init__(self, way: Access, most_connections: int = _MOST_CONNECTIONS) -> None:
        """In the loop that is to use it. Each watch takes a connection; 0: no bound."""
        self._way = way
        connector = aiohttp.TCPConnector(limit=most_connections, ssl=way.context)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=way.by_proxy, read_bufsize=_BUFFER_BYTES)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> KubernetesApi:
        """By `kubeconfig`, else as the pod, else by the usual kubeconfig. Raises access.NoClusterError."""
        return cls(await access.find(kubeconfig))

    async def list(self, path: str, params: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        """See `reflector.Api`."""
        items, version, following = _page(await self._call("GET", path, params))
        while following:
            # The version of all pages is that of the first, and may not be given again.
            more = {name: value for name, value in params.items() if name != "resourceVersion"}
            page, _, following = _page(await self._call("GET", path, {**more, "continue": following}))
            items += page
        return items, version

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        """See `reflector.Api`."""
        await self._call("POST", path, {}, body)

    async def watch(self, path: str, params: Mapping[str, str], timeout_s: float) -> AsyncIterator[dict[str, Any]]:
        """See `reflector.Api`; begins with `{"type": "CONNECTED"}` once the server has accepted."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=_CONNECT_TIMEOUT_S, sock_read=_QUIET_S)
        response = await self._answer("GET", path, params, None, timeout)
        try:
            yield {"type": "CONNECTED", "object": {}}
            pending = b""
            async for chunk in response.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                if len(pending) > _LINE_LIMIT_BYTES:
                    raise ApiError(_UNREADABLE, "an event that has no end")
                for line in lines:
                    if line.strip():
                        yield _parsed(line, _UNREADABLE)
            if pending.strip():
                raise ApiError(0, "the watch broke off in the middle of an event")
        except aiohttp.ServerTimeoutError as error:
            # A server that was restored from a backup is silent too, until it comes to the version that it was asked.
            raise ApiError(GONE, f"nothing has come for {_QUIET_S:.0f} s, not even a bookmark") from error
        except TimeoutError:
            # The server should have ended it by then: what it has not said is found by the next watch.
            return
        except _BROKEN as error:
            raise ApiError(0, _sentence(error)) from error
        finally:
            response.close()

    async def close(self) -> None:
        """See `reflector.Api`."""
        await self._session.close()
        for _ in range(_TURNS_TO_CLOSE):
            # A connection with TLS is closed in the loop's next turns, and this may be its last one.
            await asyncio.sleep(0)

    async def _call(
        self, method: str, path: str, params: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=_CALL_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        response = await self._answer(method, path, params, body, timeout)
        try:
            with _failures_named():
                return _parsed(await response.read())
        finally:
            response.close()

    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Mapping[str, Any] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> aiohttp.ClientResponse:
        """As `_request`, whose head is there soon also where its body goes on for long. Raises ApiError only."""
        with _failures_named():
            async with asyncio.timeout(_CALL_TIMEOUT_S):
                return await self._request(method, path, params, body, timeout)

    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Mapping[str, Any] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> aiohttp.ClientResponse:
        """The answer with its head read and its body not; raises ApiError for a refusal."""

        async def send(header: str | None) -> aiohttp.ClientResponse:
            headers = {"Accept": "application/json", **({"Authorization": header} if header else {})}
            return await self._session.request(
                method, url, params=params, json=body, headers=headers, timeout=timeout, **self._way.more
            )

        url, header = self._way.url + path, await self._authorization()
        response = await send(header)
        if response.status == UNAUTHORIZED:
            await response.read()
            self._way.refused()
            another = await self._authorization()
            if another != header:
                response = await send(another)
        if response.status in _OK:
            return response
        try:
            text = (await response.read()).decode("utf-8", "replace")
        finally:
            response.close()
        raise _error(response, text)

    async def _authorization(self) -> str | None:
        try:
            return await self._way.authorization()
        except Exception as error:
            # A kubeconfig's may be any program's.
            raise ApiError(0, f"there are no credentials: {_sentence(error)}") from error


def _page(answer: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str, str]:
    """The objects of a list, its resourceVersion, and by what its next page is asked for; empty: there is none."""
    # Go writes an empty list as null.
    items = [] if answer.get("items", ...) is None else answer.get("items")
    metadata = mapping(answer, "metadata")
    version = metadata.get("resourceVersion")
    if not isinstance(items, list) or not isinstance(version, str):
        raise ApiError(0, "a list without items or resourceVersion")
    return [item for item in items if isinstance(item, dict)], version, text(metadata.get("continue"))


def _parsed(text: bytes, status: int = 0) -> dict[str, Any]:
    """The object; one that cannot be read is an ApiError with that `status`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError(status, "what came is not JSON") from error
    if not isinstance(value, dict):
        raise ApiError(status, "what came is no object")
    return value


@contextmanager
def _failures_named() -> Iterator[None]:
    """Raises ApiError for an answer that does not come, or breaks off."""
    try:
        yield
    except TimeoutError as error:
        raise ApiError(0, f"no answer within {_CALL_TIMEOUT_S:.0f} s") from error
    except _BROKEN as error:
        raise ApiError(0, _sentence(error)) from error


def _error(response: aiohttp.ClientResponse, text: str) -> ApiError:
    """What is no success. A load balancer that reaches no API server answers itself, and never with a Status."""
    if response.status in _OF_GATEWAYS and not _is_status(text):
        why = f"no answer of the API server: what stands before it says HTTP {response.status}"
        return ApiError(0, why, _retry_after_s(response))
    return ApiError(response.status, f"HTTP {response.status}: {_message(text)}", _retry_after_s(response))


def _is_status(text: str) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("kind") == "Status"


def _message(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return shortened(text, _MESSAGE_LIMIT)
    return shortened(str(value.get("message", "")), _MESSAGE_LIMIT) if isinstance(value, dict) else ""


def _retry_after_s(response: aiohttp.ClientResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _sentence(error: Exception) -> str:
    """For the log and the status; with what to do where Python itself says only what it misses."""
    text = f"{type(error).__name__}: {error}"
    if any(words in text for words in _STRICT):
        text = f"{_OLD_CA} ({text})"
    return shortened(text, _MESSAGE_LIMIT)
