"""Objects that no watch of this node shows: each is asked for by its name when it is first wanted."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nls_scheduler.kubernetes_driver.reflector import REFUSED, Api, ApiError
from nls_scheduler.units.clock import awake_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Record = TypeVar("Record")
_ASKED_S: Final = 1.0
log = logging.getLogger(__name__)


class ByName(Generic[Record]):
    """The objects of one kind that are wanted, by `namespace/name`. Lives in the daemon's loop.

    What follows after another slash says for whom: each of those asks anew.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        convert: Callable[[Mapping[str, Any]], Record | None],
        changed: Callable[[], None],
        *,
        again_s: float = 0.0,
    ) -> None:
        """`path`: of the collection in all namespaces; `changed` is called in the loop after each answer.

        `again_s`: so long is waited before one is asked for again; then the answer is the newest there is, not the
        API server's cache's.
        """
        self._api = api
        self._root, _, self._plural = path.rpartition("/")
        self._convert = convert
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._again_s = again_s
        self._again: asyncio.TimerHandle | None = None
        self._answers: dict[str, Record | None] = {}
        self._asked_at: dict[str, float] = {}
        self._asked_for: set[str] = set()
        self.trouble: str | None = None
        """Why they cannot be read, where somebody has to grant it."""

    @property
    def records(self) -> dict[str, Record]:
        """What is known of those that are wanted."""
        return {key: record for key, record in self._answers.items() if record is not None}

    @property
    def asked_for(self) -> frozenset[str]:
        """Of which there has been no answer yet."""
        return frozenset(self._asked_for)

    def want(self, keys: Collection[str], stale: Collection[str] = ()) -> None:
        """From now on these are wanted, and no others; `stale`: what is known of these, if anything, is of no use."""
        at = awake_s()
        self._answers = {key: record for key, record in self._answers.items() if key in keys}
        self._asked_at = {key: since for key, since in self._asked_at.items() if key in keys}
        for key in keys - self._answers.keys():
            self._answers[key] = None
            self._asked_for.add(key)
            self._begin(key, at)
        for key in stale:
            if at >= self._asked_at[key] + self._again_s:
                self._begin(key, at)
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if stale:
            again_at = min(self._asked_at[key] for key in stale) + self._again_s
            self._again = asyncio.get_running_loop().call_later(again_at - at, self._changed)

    def _begin(self, key: str, at: float) -> None:
        self._asked_at[key] = at
        task = asyncio.get_running_loop().create_task(self._ask(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, key: str) -> None:
        namespace, name = key.split("/")[:2]
        path = f"{self._root}/namespaces/{namespace}/{self._plural}"
        params = {"fieldSelector": f"metadata.name={name}", **({} if self._again_s else {"resourceVersion": "0"})}
        record: Record | None = None
        trouble = None
        try:
            async with asyncio.timeout(_ASKED_S):
                found, _ = await self._api.list(path, params)
            record = next((each for written in found if (each := self._convert(written)) is not None), None)
        except (ApiError, TimeoutError) as error:
            log.info("%s %s cannot be read: %s", self._plural, key, error)
            if isinstance(error, ApiError) and error.status == REFUSED:
                trouble = f"{path}: the API server refuses it (HTTP {error.status}): grant list in the daemon's role"
        except Exception as error:
            log.exception("DEFECT: %s %s cannot be read", self._plural, key)
            trouble = f"{path}: a defect, please report it: {type(error).__name__}: {error}"
        self.trouble = trouble
        self._asked_for.discard(key)
        if key in self._answers:
            self._answers[key] = record
        self._changed()

    async def close(self) -> None:
        """Ask no more."""
        if self._again is not None:
            self._again.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
