"""Kubernetes Events: `kubectl describe pod` says why a notebook moved. They never delay anything and may get lost."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.kubernetes_driver.reflector import Api, ApiError, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.kubernetes_driver.pods import PodRecord

COMPONENT: Final = "nls-scheduler"
REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "moved": ("GpuMoved", "Normal"),
    "suspended": ("GpuSuspended", "Normal"),
    "evicted": ("GpuEvicted", "Warning"),
    "interrupted": ("GpuCellInterrupted", "Warning"),
    "frozen": ("GpuCellFrozen", "Normal"),
    "thawed": ("GpuCellThawed", "Normal"),
    "failed": ("GpuFailed", "Warning"),
    "lost": ("GpuVariablesLost", "Warning"),
}
"""The reason and the type of the Event for an entry of the history; others are of no interest to a cluster."""
_WAITING: Final = 256
_WAITING_OF_A_POD: Final = 10
"""The newest: a pod that goes to and fro costs no other pod an Event."""
_TOLD: Final = 1024
_MESSAGE_LIMIT: Final = 1000
"""The API server refuses more than 1,024 characters."""
_PAUSE_S: Final = 0.1
_CONFLICT: Final = 409
_BUSY: Final = 429
_NO_RIGHT: Final = "cannot create resource"
"""As the API server says of a role. It forbids also what comes into a namespace that ends, or beyond a quota."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    """An Event that is not written yet: when it was told first and last, and how often."""

    pod: PodRecord
    reason: str
    message: str
    kind: str
    first: datetime
    last: datetime
    count: int = 1


class EventWriter:
    """Writes Events one after another. What more waits than may, or is refused, is counted in `lost`."""

    def __init__(self, api: Api, node: str, pace: Pace | None = None) -> None:
        self._api = api
        self._node = node
        self._pace = pace or Pace()
        self._waiting: dict[tuple[str, str, str], _Waiting] = {}
        self._something_waits = asyncio.Event()
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._complained = False
        self.written = 0
        self.lost = 0
        self.trouble: str | None = None
        """Why none can be written, where somebody has to grant it."""

    def entry(self, pod: PodRecord, entry: Mapping[str, Any]) -> None:
        """An entry of the history about a workload of `pod`."""
        told = REASONS.get(entry["event"])
        if told is None:
            return
        where = " ".join(f"{word} {entry[word]}" for word in ("from", "to") if entry.get(word))
        self._put(
            pod, told[0], f"{entry['name']}: {entry['event']} {where}".rstrip() + f" because {entry['reason']}", told[1]
        )

    def once(self, pod: PodRecord, reason: str, message: str) -> None:
        """A warning about `pod` that is said one time for as long as it is the same."""
        message = shortened(message, _MESSAGE_LIMIT)
        key = (pod.uid, reason, message)
        if key in self._told:
            return
        self._told[key] = None
        while len(self._told) > _TOLD:
            self._told.popitem(last=False)
        log.warning("pod %s: %s: %s", pod.key, reason, message)
        self._put(pod, reason, message, "Warning")

    @property
    def waiting(self) -> int:
        """How many Events are still to be written."""
        return len(self._waiting)

    def _put(self, pod: PodRecord, reason: str, message: str, kind: str) -> None:
        message = shortened(message, _MESSAGE_LIMIT)
        key = (pod.uid, reason, message)
        if (known := self._waiting.get(key)) is not None:
            known.last = _now()
            known.count += 1
            return
        of_the_pod = [each for each in self._waiting if each[0] == pod.uid]
        if len(of_the_pod) >= _WAITING_OF_A_POD:
            self.lost += self._waiting.pop(of_the_pod[0]).count
        if len(self._waiting) >= _WAITING:
            self.lost += 1
            return
        self._waiting[key] = _Waiting(pod, reason, message, kind, now := _now(), now)
        self._something_waits.set()

    async def run(self) -> None:
        """Write until cancelled."""
        later_again = 0
        while True:
            await self._something_waits.wait()
            self._something_waits.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                first = self._waiting.pop(key)
                later = await self._write(f"/api/v1/namespaces/{first.pod.namespace}/events", self._body(first))
                if later is None:
                    later_again = 0
                    await asyncio.sleep(_PAUSE_S)
                    continue
                # It may be this one's namespace alone that may have none at the moment: the others come first.
                self._waiting[key] = _together(first, self._waiting.pop(key, None))
                later_again += 1
                await asyncio.sleep(self._pace.pause_s(later_again, later.retry_after_s))

    async def _write(self, path: str, body: Mapping[str, Any]) -> ApiError | None:
        """One Event, again and again while there is no answer; the answer, where it is to come later."""
        for failures in count(1):
            try:
                await self._api.create(path, body)
                break
            except Exception as error:
                if failures > 1 and isinstance(error, ApiError) and error.status == _CONFLICT:
                    break  # one of those without an answer had arrived
                if not self._complained:
                    unforeseen = None if isinstance(error, ApiError) else error
                    log.warning("Kubernetes Events cannot be written: %s", error, exc_info=unforeseen)
                self._complained = True
                if isinstance(error, ApiError) and _NO_RIGHT in str(error):
                    self.trouble = f"Kubernetes Events are refused: grant create in the daemon's role ({error})"
                    return error
                if not isinstance(error, ApiError) or not error.retriable:
                    self.lost += 1
                    return None
                if error.status == _BUSY:
                    return error
                await asyncio.sleep(self._pace.pause_s(failures, error.retry_after_s))
        self.written += 1
        self._complained, self.trouble = False, None
        return None

    def _body(self, waiting: _Waiting) -> dict[str, Any]:
        pod = waiting.pod
        about = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:200].rstrip('-.')}.{secrets.token_hex(8)}", "namespace": pod.namespace},
            "involvedObject": about,
            "reason": waiting.reason,
            "message": waiting.message,
            "type": waiting.kind,
            "count": waiting.count,
            "firstTimestamp": _written(waiting.first),
            "lastTimestamp": _written(waiting.last),
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
        }


def _together(earlier: _Waiting, later: _Waiting | None) -> _Waiting:
    """What was told first, and what was told of the same since."""
    return earlier if later is None else replace(later, first=earlier.first, count=earlier.count + later.count)


def _now() -> datetime:
    return datetime.now(tz=UTC)


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
