"""Objects that no watch of this node shows: each is asked for by its name when it is first wanted."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nls_scheduler.kubernetes_driver.reflector import Api, ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Record = TypeVar("Record")
_ASKED_S: Final = 1.0
log = logging.getLogger(__name__)


class ByName(Generic[Record]):
    """The objects of one kind that are wanted, by `namespace/name`. Lives in the daemon's loop."""

    def __init__(
        self,
        api: Api,
        path: str,
        convert: Callable[[Mapping[str, Any]], Record | None],
        changed: Callable[[], None],
    ) -> None:
        """`path`: of the collection in all namespaces; `changed` is called in the loop after each answer."""
        self._api = api
        self._root, _, self._plural = path.rpartition("/")
        self._convert = convert
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[str, Record | None] = {}
        self._asked_for: set[str] = set()

    @property
    def records(self) -> dict[str, Record]:
        """What is known of those that are wanted."""
        return {key: record for key, record in self._answers.items() if record is not None}

    @property
    def asked_for(self) -> frozenset[str]:
        """Of which there is no answer yet."""
        return frozenset(self._asked_for)

    def want(self, keys: Collection[str]) -> None:
        """From now on these are wanted, and no others."""
        self._answers = {key: record for key, record in self._answers.items() if key in keys}
        for key in keys - self._answers.keys():
            self._answers[key] = None
            self._asked_for.add(key)
            task = asyncio.get_running_loop().create_task(self._ask(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        params = {"fieldSelector": f"metadata.name={name}", "resourceVersion": "0"}
        try:
            async with asyncio.timeout(_ASKED_S):
                found, _ = await self._api.list(f"{self._root}/namespaces/{namespace}/{self._plural}", params)
        except (ApiError, TimeoutError) as error:
            log.info("%s %s cannot be read: %s", self._plural, key, error)
            found = []
        self._asked_for.discard(key)
        record = next((record for written in found if (record := self._convert(written)) is not None), None)
        if key in self._answers:
            self._answers[key] = record
        self._changed()

    async def close(self) -> None:
        """Ask no more."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
