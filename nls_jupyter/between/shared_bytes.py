"""A few bytes that the kernel and its GPU process have both mapped: written and read without a message between them."""

from __future__ import annotations

import mmap
import os
from typing import ClassVar, Final, Self

# A kernel that keeps its own code starts none of these (`supervisor.own_code`): one of before does.
_OTHER_VERSION: Final = (
    "nls-jupyter was upgraded under this kernel, which has the saved variables: install the version before, and they "
    "come back. A kernel that is restarted begins without them."
)


class SharedBytes:
    """One file in memory. A subclass says which, and what the bytes mean.

    Attributes:
        variable: names the descriptor that the GPU process inherits.
        size_bytes: of the file.
        descriptor: the file's; closed by `close`.
    """

    variable: ClassVar[str]
    size_bytes: ClassVar[int]

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, self.size_bytes)
        self._at_the_end = b""

    @classmethod
    def create(cls) -> Self:
        """The kernel's end, before the process is launched. Raises `OSError`."""
        descriptor = os.memfd_create("nls-shared-bytes", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, cls.size_bytes)
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def inherited(cls) -> Self:
        """The GPU process's end. Raises `KeyError` where no kernel started the process."""
        descriptor = int(os.environ.pop(cls.variable))
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only signature
        return cls(descriptor)

    @classmethod
    def check(cls) -> None:
        """Ends a GPU process of another version than its kernel, before it says anything else."""
        try:
            size_bytes = os.fstat(int(os.environ[cls.variable])).st_size
        except (KeyError, OSError):
            size_bytes = None
        if size_bytes != cls.size_bytes:
            raise SystemExit(_OTHER_VERSION)

    def write(self, content: bytes) -> None:
        """All of them; nobody reads them any more once they are closed."""
        if not self._memory.closed:
            self._memory[:] = content

    def read(self) -> bytes:
        """All of them, as they are or as they were when this end was closed."""
        return self._at_the_end if self._memory.closed else self._memory[:]

    def close(self) -> None:
        """Idempotent; what was written last stays known."""
        if not self._memory.closed:
            self._at_the_end = self._memory[:]
            self._memory.close()
            os.close(self.descriptor)
