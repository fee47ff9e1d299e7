"""Which cell the GPU process began last, in memory that outlives it.

A cell that was sent just before the process died can be sent to the next one, if the dead one never began it. Messages
cannot tell: what a process has said in its last moment may be lost with it.
"""

from __future__ import annotations

import hashlib

from nls_jupyter.between.shared_bytes import SharedBytes


class BegunCell(SharedBytes):
    """The GPU process writes, the kernel reads."""

    variable = "NLS_BEGUN_FD"
    size_bytes = 16

    def note(self, msg_id: str) -> None:
        """This cell begins now."""
        self.write(self._digest(msg_id))

    def is_last(self, msg_id: str) -> bool:
        """Whether this cell was the last that began."""
        return self.read() == self._digest(msg_id)

    def _digest(self, msg_id: str) -> bytes:
        return hashlib.blake2b(msg_id.encode(), digest_size=self.size_bytes).digest()
