"""Whether the API server still answers: a watch on which nothing comes looks the same when nothing happens.

One small read every few seconds, which the daemon's role allows: this node's pods from the server's cache, one at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nls_scheduler.kubernetes_driver.pace import Pace, Rounds
from nls_scheduler.kubernetes_driver.reflector import Api, ApiError, Reflector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Heartbeat:
    """Tells the reflectors whether what they do not hear is silence or nothing new."""

    def __init__(
        self, api: Api, path: str, params: Mapping[str, str], reflectors: Sequence[Reflector[Any]], pace: Pace
    ) -> None:
        """`path` and `params`: a list that may be read."""
        self._api = api
        self._path = path
        self._params = {**params, "resourceVersion": "0", "limit": "1"}
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
