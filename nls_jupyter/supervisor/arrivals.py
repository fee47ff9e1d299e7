"""The files that a GPU process hands to its kernel, until the message that names their number is read."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from typing import TYPE_CHECKING

from nls_jupyter.between.state_socket import none_free
from nls_jupyter.saved_state import SavedStateDamagedError, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nls_jupyter.between.state_socket import StateSocket
    from nls_jupyter.saved_state import Manifest

_log = logging.getLogger(__name__)


class Arrivals:
    """Takes files in as they come. Belongs to the event loop's thread in which it was made.

    Args:
        states: the kernel's end; closed with this.
        on_save_point: gets the descriptors (the callee's to close) and the manifest of each save that no message
            announces: those in mid-cell, and those of a copy of the process.
    """

    def __init__(self, states: StateSocket, on_save_point: Callable[[tuple[int, ...], Manifest], None] | None) -> None:
        self._states = states
        self._on_save_point = on_save_point
        self._arrived: dict[int, tuple[int, ...]] = {}
        self._numbers = itertools.count(1)
        self._refused: tuple[int, int] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(states.fileno(), self.take)

    def send(self, descriptors: Sequence[int]) -> int:
        """Hand copies of descriptors to the process; the number by which a message names them. Raises OSError."""
        number = next(self._numbers)
        self._states.send(number, descriptors)
        return number

    def sent(self, number: int) -> tuple[int, ...]:
        """What the process has sent under this number, the caller's to close. Raises OSError."""
        self.take()
        for earlier in [n for n in self._arrived if n < number]:
            _close_all(self._arrived.pop(earlier))  # of requests that were given up
        try:
            descriptors = self._arrived.pop(number)
        except KeyError:
            raise OSError("the GPU process did not send the file that it announced") from None
        return self._accepted(descriptors)

    def refuse(self, descriptors: Sequence[int]) -> None:
        """Take nothing over any more that lies in these files."""
        self._refused = _identity(descriptors)

    def _accepted(self, descriptors: tuple[int, ...]) -> tuple[int, ...]:
        """The same. Raises OSError; then those of a refused file are closed."""
        if not descriptors:
            raise none_free()
        if _identity(descriptors) == self._refused:
            _close_all(descriptors)
            raise OSError("memory became short meanwhile")
        return descriptors

    def take(self) -> None:
        """Those that no message names are taken over at once; the others wait for it."""
        try:
            for number, announced, descriptors in self._states.arrived():
                if announced:
                    self._arrived[number] = descriptors
                elif self._on_save_point is None:
                    _close_all(descriptors)
                else:
                    self._take_save_point(descriptors, self._on_save_point)
        except OSError:  # the process is gone, which is told by its guardian
            self._loop.remove_reader(self._states.fileno())

    def _take_save_point(
        self, descriptors: tuple[int, ...], on_save_point: Callable[[tuple[int, ...], Manifest], None]
    ) -> None:
        """One that cannot be taken over leaves the one before, and the next ones come as they did."""
        try:
            accepted = self._accepted(descriptors)
            try:
                manifest = read_manifest(accepted)
            except BaseException:
                _close_all(accepted)
                raise
        except (OSError, SavedStateDamagedError) as error:
            why = getattr(error, "strerror", None) or error
            _log.warning("A save that the GPU process sent could not be taken over: %s", why)
            return
        on_save_point(accepted, manifest)

    def close(self) -> None:
        """Take what the process sent last, and let go of the rest."""
        self.take()
        self._loop.remove_reader(self._states.fileno())
        self._states.close()
        while self._arrived:
            _close_all(self._arrived.popitem()[1])


def _identity(descriptors: Sequence[int]) -> tuple[int, int]:
    """Of the files that begin with this one."""
    status = os.fstat(descriptors[0])
    return status.st_dev, status.st_ino


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
