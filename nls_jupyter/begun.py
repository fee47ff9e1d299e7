"""Which cell the GPU process began last, in memory that outlives it.

A cell that was sent just before the process died can be sent to the next one, if the dead one never began it. Messages
cannot tell: what a process has said in its last moment may be lost with it.
"""

from __future__ import annotations

import hashlib
import mmap
import os

# Names the descriptor that the GPU process inherits.
VARIABLE = "NLS_BEGUN_FD"
_SIZE = 16


class BegunCell:
    """One file in memory that both processes have mapped. The GPU process writes, the kernel reads."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` stays open, and is closed by `close`."""
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._at_the_end = b""

    @classmethod
    def create(cls) -> BegunCell:
        """The kernel's end, before the process is launched. Raises `OSError`."""
        descriptor = os.memfd_create("nls-begun", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, _SIZE)
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def inherited(cls) -> BegunCell:
        """The GPU process's end. Raises `KeyError` where no kernel started the process."""
        descriptor = int(os.environ.pop(VARIABLE))
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only signature
        return cls(descriptor)

    def note(self, msg_id: str) -> None:
        """This cell begins now."""
        self._memory[:] = _digest(msg_id)

    def is_last(self, msg_id: str) -> bool:
        """Whether this cell was the last that began."""
        last = self._at_the_end if self._memory.closed else self._memory[:]
        return last == _digest(msg_id)

    def close(self) -> None:
        """Idempotent; what was noted last stays known."""
        if not self._memory.closed:
            self._at_the_end = self._memory[:]
            self._memory.close()
            os.close(self.descriptor)


def _digest(msg_id: str) -> bytes:
    return hashlib.blake2b(msg_id.encode(), digest_size=_SIZE).digest()
