"""The files that a GPU process hands to its kernel, until the message that names their number is read."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from typing import TYPE_CHECKING

from nls_jupyter.between.state_socket import none_free
from nls_jupyter.saved_state import read_manifest

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
        if not descriptors:
            raise none_free()
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
            if not descriptors:
                raise none_free()
            manifest = read_manifest(descriptors)
        except OSError as error:
            _close_all(descriptors)
            _log.warning("A save that the GPU process sent could not be taken over: %s", error.strerror or error)
            return
        on_save_point(descriptors, manifest)

    def close(self) -> None:
        """Take what the process sent last, and let go of the rest."""
        self.take()
        self._loop.remove_reader(self._states.fileno())
        self._states.close()
        while self._arrived:
            _close_all(self._arrived.popitem()[1])


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
