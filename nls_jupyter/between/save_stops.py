"""How the kernel has its GPU process stop a save: no message could be read in the middle of one, and no signal may.

A signal would reach what else runs in the process's group, such as a server that a cell started, and would end the save
between any two of its steps. A number in shared memory is read by the save itself, where it can stop.

So does it learn that the kernel has dropped what it saved before: the save after that is a whole one.
"""

from __future__ import annotations

import struct

from nls_jupyter.between.shared_bytes import SharedBytes

_NUMBERS = struct.Struct("=QQ")


class SaveStops(SharedBytes):
    """Saves are numbered from 1. The kernel writes up to which one they are to stop, the GPU process reads it."""

    variable = "NLS_SAVE_STOPS_FD"
    size_bytes = _NUMBERS.size

    def stop(self, number: int) -> None:
        """Have this save stop, and all before it: now, or as soon as it begins. Those after it are not concerned."""
        last, drops = self._both()
        self.write(_NUMBERS.pack(max(number, last), drops))

    def asked(self, number: int) -> bool:
        """Whether this save is to stop; asked now and then by the save itself."""
        return number <= self._both()[0]

    def drop(self) -> None:
        """What the process has saved so far is as if it had never been: the kernel empties the files."""
        last, drops = self._both()
        self.write(_NUMBERS.pack(last, drops + 1))

    def drops(self) -> int:
        """How often the kernel has dropped what was saved."""
        return self._both()[1]

    def _both(self) -> tuple[int, int]:
        last, drops = _NUMBERS.unpack(self.read())
        return last, drops
