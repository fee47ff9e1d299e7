"""Whether the API server still answers: a watch on which nothing comes looks the same when nothing happens.

One small read every few seconds, which the daemon's role allows: the objects of a name that none can have, from the
server's cache. It is no use to ask for one at most: what comes from the cache has no limit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.kubernetes_driver.pace import Pace, Rounds
from nls_scheduler.kubernetes_driver.reflector import Api, ApiError, Reflector

if TYPE_CHECKING:
    from collections.abc import Sequence

_NO_NAME: Final = "metadata.name=_"


class Heartbeat:
    """Tells the reflectors whether what they do not hear is silence or nothing new."""

    def __init__(self, api: Api, path: str, selector: str, reflectors: Sequence[Reflector[Any]], pace: Pace) -> None:
        """`path` and `selector`: a list that may be read, and by which of its fields the server finds objects soon."""
        self._api = api
        self._path = path
        self._params = {"fieldSelector": f"{selector},{_NO_NAME}", "resourceVersion": "0"}
        self._reflectors = reflectors
        self._pace = pace
        self._rounds = Rounds("Asking whether the API server still answers", pace)

    @property
    def trouble(self) -> str | None:
        """Why nobody asks at the moment."""
        return self._rounds.trouble

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._rounds.go_on(self._beat)

    async def _beat(self) -> None:
        await asyncio.sleep(self._pace.beat_s)
        answers = await self._answers()
        for reflector in self._reflectors:
            reflector.server_answers(answers)

    async def _answers(self) -> bool:
        """A refusal is an answer too."""
        try:
            async with asyncio.timeout(self._pace.answer_s):
                await self._api.list(self._path, self._params)
        except TimeoutError:
            return False
        except ApiError as error:
            return error.status != 0
        return True
