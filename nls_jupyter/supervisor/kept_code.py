"""Code that frontends send unseen before a notebook's first cell: it runs in each new GPU process, and starts none.

Editors set up a kernel so as soon as it answers: the notebook's file name, search paths, how figures are drawn. They
mark such a request as silent or as not stored. The notebook's kernel answers it, as some of them read what it shows:
without the version of ipywidgets VS Code draws no widgets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nls_jupyter.supervisor.launch import GpuProcessDied

if TYPE_CHECKING:
    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.notices import NoticeLog

_MOST_REQUESTS = 100
_MOST_BYTES = 1 << 20
# A process that waits for more than this is not ready for the notebook in any reasonable time.
_WITHIN_S = 30.0


class KeptCode:
    """What one notebook's frontends sent, in order. Everything runs in the loop's thread."""

    def __init__(self, log: NoticeLog) -> None:
        self._log = log
        self._codes: dict[str, None] = {}
        self._open = True
        self._full_told = False

    def take(self, code: str) -> bool:
        """Keep `code`, if there is room. False: the notebook has had a GPU process, which such requests go to."""
        if not self._open or code in self._codes or not code.strip():
            return self._open  # one that is sent again and again sets up the same
        size_bytes = sum(len(kept.encode()) for kept in (*self._codes, code))
        if len(self._codes) >= _MOST_REQUESTS or size_bytes > _MOST_BYTES:
            if not self._full_told:
                self._full_told = True
                self._log.add(
                    "Hidden code of the frontend ran in the notebook's kernel alone: no more than "
                    f"{_MOST_REQUESTS} requests and {_MOST_BYTES >> 20} MiB are kept for GPU processes."
                )
            return True
        self._codes[code] = None
        return True

    async def run_in(self, process: GpuProcess) -> None:
        """Run all of it in a process that is new: before variables are restored, which then are as the user left them.

        Raises GpuProcessDied; the code in which that happened is not kept any longer.
        """
        ran: set[str] = set()
        try:
            async with asyncio.timeout(_WITHIN_S):
                while codes := [code for code in self._codes if code not in ran]:  # more may come meanwhile
                    ran.add(codes[0])
                    await self._run(process, codes[0])
        except TimeoutError:
            process.interrupt()
            self._log.add(f"Hidden code of the frontend was interrupted in the GPU process after {_WITHIN_S:g} s.")
        self._open = False

    async def _run(self, process: GpuProcess, code: str) -> None:
        try:
            reply = await process.execute(code, silent=True, store_history=False)
        except GpuProcessDied as died:
            del self._codes[code]
            self._log.add(f"Hidden code of the frontend ended the GPU process, which {died.status.describe()}.")
            raise
        content = reply["content"]
        if content["status"] == "error":
            self._log.add(
                f"Hidden code of the frontend failed in the GPU process: {content['ename']}: {content['evalue']}."
            )
