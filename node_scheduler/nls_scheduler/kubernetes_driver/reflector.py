"""Follows one kind of object: list, watch, and list again when the server has forgotten. It never gives up.

What it knows stays known while the API server is away; `trouble` says since when and why.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.written import mapping, text
from nls_scheduler.units.clock import boottime_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    Params = Mapping[str, str]

Record = TypeVar("Record")
GONE: Final = 410
_NOT_FOUND: Final = 404
_DEFECT: Final = 500
UNAUTHORIZED: Final = 401
REFUSED: Final = 403
_AWAY: Final = (0, UNAUTHORIZED, 429, 502, 503)
"""A token may be between two: its bearer has been refused nothing."""
_DELETED_KEPT: Final = 1024
_SEVERAL: Final = 3
_ENDED_SOON: Final = "the API server, or what stands before it, ends each watch at once, so that news come late"
log = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused, failed or could not be reached.

    Attributes:
        status: HTTP status; 0: there was no answer, or half of one.
        retry_after_s: how long the server asks to be left alone; `None`: it does not say.
    """

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def retriable(self) -> bool:
        """Whether it says nothing of what was asked: the same is to be asked once more."""
        return self.status in _AWAY


class Api(Protocol):
    """What the driver needs of an API server. Everything raises ApiError, and nothing else."""

    async def list(self, path: str, params: Params) -> tuple[list[dict[str, Any]], str]:
        """The objects of a collection, of all its pages, and its resourceVersion."""

    def watch(self, path: str, params: Params, timeout_s: float) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch, until the server or the time ends it."""

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create one object."""

    async def close(self) -> None:
        """Give the connections back."""


def uid_of(written: Mapping[str, Any]) -> str:
    """The UID that the API server gave an object."""
    return text(mapping(written, "metadata").get("uid"))


class Reflector(Generic[Record]):
    """The objects of one collection as they are now, by UID."""

    def __init__(
        self,
        api: Api,
        path: str,
        params: Params,
        convert: Callable[[Mapping[str, Any]], Record | None],
        changed: Callable[[], None],
        *,
        pace: Pace | None = None,
        optional: bool = False,
        uid: Callable[[Mapping[str, Any]], str] = uid_of,
    ) -> None:
        """`changed` is called in the loop after each change; `convert` gives `None` for what is of no interest.

        `optional`: a cluster without this kind of object is no fault. `uid`: of an object; empty: it has none.
        """
        self._api = api
        self._path = path
        self._params = dict(params)
        self._convert = convert
        self._changed = changed
        self._pace = pace or Pace()
        self._optional = optional
        self._uid = uid
        self._version: str | None = None
        self._failures = 0
        self._ended_soon = 0
        self._connected = False
        self._heard_at: float | None = None
        self._since = boottime_s()
        self._silent = False
        self._refused_since: float | None = None
        self._why: str | None = None
        self._unreadable: dict[str, str] = {}
        self._deleted: dict[str, str | None] = {}
        self.records: dict[str, Record] = {}
        self.synced = False
        """Whether the first list has come, or this cluster has no such objects."""
        self.refused = False
        """Whether the API server refuses the first list: there will be none until somebody grants it."""
        self.lists = 0
        """How many lists there have been: one per start of the server is normal."""

    @property
    def settled(self) -> bool:
        """Whether it has been listed, or nobody may or can list it."""
        return self.synced or self.refused

    @property
    def age_s(self) -> float | None:
        """How old what is known may be: 0 while a watch stands and its server answers; `None` before the first list."""
        if self._connected and not self._silent:
            return 0.0
        return None if self._heard_at is None else boottime_s() - self._heard_at

    @property
    def unheard_s(self) -> float | None:
        """`age_s`, and where nothing was ever heard since when that is so; `None`: this cluster has no such objects."""
        age_s = self.age_s
        return boottime_s() - self._since if age_s is None and not self.synced else age_s

    @property
    def trouble(self) -> str | None:
        """Why nothing new comes at the moment, with the age of what is known; `None` while a watch stands."""
        why = self._why
        if self._connected:
            unreadable = next(iter(self._unreadable.values()), None)
            why = "the API server has stopped answering" if self._silent else unreadable
        elif why is None and self._ended_soon >= _SEVERAL:
            why = _ENDED_SOON
        if why is None:
            return None
        age_s = self.age_s
        known = "nothing is known yet" if age_s is None else f"what is known is {age_s:.0f} s old"
        return f"{self._path}: {why} ({known})"

    def server_answers(self, answers: bool) -> None:  # noqa: FBT001 - it is all that is said
        """Somebody has asked the server whether it is still there."""
        if not self._connected:
            return
        if answers:
            self._heard_at = boottime_s()
        elif not self._silent:
            log.warning("%s: the API server has stopped answering; the last known state stays", self._path)
        self._silent = not answers

    async def run(self) -> None:
        """Follow until cancelled."""
        await asyncio.sleep(random.random() * self._pace.spread_s)  # noqa: S311 - spreads load, keeps no secret
        while True:
            pause_s = 0.0
            try:
                if self._version is None:
                    await self._list()
                # A server that ends each watch at once must not be asked without end.
                pause_s = 0.0 if await self._watch() else self._after_its_end()
            except ApiError as error:
                pause_s = self._after(error)
            except Exception as error:
                why = f"a defect, please report it: {type(error).__name__}: {error}"
                if why != self._why:
                    log.exception("DEFECT: following %s failed; it begins anew", self._path)
                pause_s = self._after(ApiError(_DEFECT, why))
            finally:
                self._connected = self._silent = False
            await asyncio.sleep(pause_s)

    async def _list(self) -> None:
        """Everything as it is now; what has gone meanwhile is dropped, what is the same stays the same.

        Only the first may come from the API server's cache, which can be older than what another one has told.
        """
        cached = {} if self.lists else {"resourceVersion": "0"}
        objects, version = await self._api.list(self._path, {**self._params, **cached})
        self.lists += 1
        self._unreadable, self._deleted = {}, {}
        read = ((uid, self._read(uid, written)) for written in objects if (uid := self._uid(written)))
        records = {uid: record for uid, record in read if record is not None}
        self._version, self._heard_at = version, boottime_s()
        news = records != self.records or not self.synced
        self.records, self.synced, self.refused = records, True, False
        if news:
            self._changed()

    async def _watch(self) -> bool:
        """One watch; whether it has stood for long enough not to count as one that failed."""
        seconds = self._pace.watch_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, keeps no secret
        params = {
            **self._params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "0",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        stands_at = boottime_s() + min(self._pace.stands_s, seconds)
        try:
            async for event in self._api.watch(self._path, params, seconds + self._pace.slack_s):
                self._established()
                if event.get("type") != "CONNECTED":
                    self._apply(event)
        finally:
            stood = self._connected and boottime_s() >= stands_at
            if stood:
                self._failures = self._ended_soon = 0
        if not self._silent:
            self._heard_at = boottime_s()
        return stood

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, written = event.get("type"), event.get("object")
        if not isinstance(written, dict):
            raise ApiError(_DEFECT, "an event without an object")
        if kind == "ERROR":
            code = written.get("code")
            raise ApiError(
                code if isinstance(code, int) else _DEFECT, shortened(str(written.get("message", "an error event")))
            )
        self._heard_at = boottime_s()
        uid, version = self._uid(written), _version(written)
        if uid and kind != "DELETED" and _is_older(version, self._deleted.get(uid)):
            return
        if version is not None:
            self._version = version
        if kind == "BOOKMARK" or not uid:
            return
        before = self.records.get(uid)
        self._unreadable.pop(uid, None)
        record = None if kind == "DELETED" else self._read(uid, written)
        if kind == "DELETED" and before is not None:
            self._deleted[uid] = version
            while len(self._deleted) > _DELETED_KEPT:
                del self._deleted[next(iter(self._deleted))]
        if record is None:
            self.records.pop(uid, None)
        else:
            self.records[uid] = record
        if record != before:
            self._changed()

    def _read(self, uid: str, written: Mapping[str, Any]) -> Record | None:
        """The record of one object. One that cannot be read costs no other, and what was known of it stays."""
        try:
            return self._convert(written)
        except Exception as error:
            metadata = mapping(written, "metadata")
            name = "/".join(filter(None, (text(metadata.get("namespace")), text(metadata.get("name")))))
            log.exception("DEFECT: %s of %s cannot be read", name, self._path)
            self._unreadable[uid] = f"{name} cannot be read, please report it: {type(error).__name__}: {error}"
            return self.records.get(uid)

    def _established(self) -> None:
        self._connected, self._silent = True, False
        if self._why is not None:
            log.info("%s can be followed again", self._path)
            self._why = None

    def _after(self, error: ApiError) -> float:
        """What is to be done about `error`, and how long to wait before."""
        self._ended_soon = 0
        if not error.retriable:
            # It may be our version that the server does not accept, and then never will: a list mends that.
            self._version = None
        if error.status == GONE:
            # At once, unless the last one did not help.
            again, pause_s = self._failures > 0, self._back_off()
            return pause_s if again else 0.0
        if error.status == _NOT_FOUND and self._optional:
            return self._absent()
        why = str(error)
        if error.status == UNAUTHORIZED:
            why = f"the API server does not accept this daemon's credentials (HTTP {error.status})"
        if error.status == REFUSED:
            why = f"the API server refuses it (HTTP {error.status}): grant list and watch in the daemon's role"
        self._tell(why)
        pause_s = self._back_off(error.retry_after_s)
        return min(pause_s, self._pace.refused_s) if self._is_being_refused(error) else pause_s

    def _is_being_refused(self, error: ApiError) -> bool:
        """Whether it has been for no longer than a server that starts may refuse; then it is refused."""
        if error.status != REFUSED or self.synced or self.refused:
            self._refused_since = None
            return False
        if self._refused_since is None:
            self._refused_since = boottime_s()
        self.refused = boottime_s() >= self._refused_since + self._pace.refused_s
        if self.refused:
            self._changed()
        return not self.refused

    def _after_its_end(self) -> float:
        """A watch has ended before it stood; how long to wait before the next."""
        self._ended_soon += 1
        if self._ended_soon == _SEVERAL:
            log.warning("%s: %s", self._path, _ENDED_SOON)
        return self._back_off()

    def _absent(self) -> float:
        """This cluster has no such objects. Where it has just had some, their kind may be back in a moment."""
        news = bool(self.records) or not self.synced
        self.records, self.synced = {}, True
        heard_at = self._heard_at
        lately = heard_at is not None and boottime_s() - heard_at < self._pace.absent_s
        if lately:
            self._tell("the API server no longer knows this kind of object")
        else:
            self._why = None
        if news:
            self._changed()
        return self._back_off() if lately else self._pace.absent_s

    def _tell(self, why: str) -> None:
        if self._why != why:
            log.warning("%s cannot be followed: %s", self._path, why)
            self._why = why

    def _back_off(self, asked_s: float | None = None) -> float:
        self._failures += 1
        return self._pace.pause_s(self._failures, asked_s)


def shortened(text: str, limit: int = 1000) -> str:
    """`text` with no more than `limit` characters; one that was cut says so."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _version(written: Mapping[str, Any]) -> str | None:
    return text(mapping(written, "metadata").get("resourceVersion")) or None


def _is_older(version: str | None, than: str | None) -> bool:
    """Whether one resourceVersion comes before another; those that are no numbers cannot be compared."""
    if version is None or than is None or not (version.isdecimal() and than.isdecimal()):
        return False
    return int(version) < int(than)
