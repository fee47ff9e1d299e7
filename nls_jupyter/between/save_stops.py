"""How the kernel has its GPU process stop a save: no message could be read in the middle of one, and no signal may.

A signal would reach what else runs in the process's group, such as a server that a cell started, and would end the save
between any two of its steps. A number in shared memory is read by the save itself, where it can stop.
"""

from __future__ import annotations

import struct

from nls_jupyter.between.shared_bytes import SharedBytes

_NUMBER = struct.Struct("=Q")


class SaveStops(SharedBytes):
    """Saves are numbered from 1. The kernel writes up to which one they are to stop, the GPU process reads it."""

    variable = "NLS_SAVE_STOPS_FD"
    size_bytes = _NUMBER.size

    def stop(self, number: int) -> None:
        """Have this save stop, and all before it: now, or as soon as it begins. Those after it are not concerned."""
        self.write(_NUMBER.pack(max(number, self._last())))

    def asked(self, number: int) -> bool:
        """Whether this save is to stop; asked now and then by the save itself."""
        return number <= self._last()

    def _last(self) -> int:
        last: int = _NUMBER.unpack(self.read())[0]
        return last
