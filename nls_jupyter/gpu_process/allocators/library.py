"""What the follower and the allocator of one library know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nls_jupyter.gpu_process.allocators.asking import Answer


class LacksError(Exception):
    """What a library's allocator cannot do; its text is a sentence for the user."""


class Library(Protocol):
    """One library's allocator. Every method may be called from any thread, also while a cell runs."""

    def held_bytes(self, device: int) -> int:
        """What it has taken from the device, in use or cached; never creates a context."""

    def follow(self) -> None:
        """Hold it to what is left for it now."""

    def trim(self) -> int:
        """Give back what it caches. Returns the bytes."""

    def devices(self) -> set[int]:
        """Where it has taken memory."""

    def explain(self, error: BaseException) -> None:
        """Say in `error`, which is about to be shown, why there is no memory, unless it says so already."""


class Allowance(Protocol):
    """What a library's allocator asks of the follower."""

    allowance_bytes: int | None

    def left_bytes(self, library: Library, device: int) -> int | None:
        """What `library` may have taken from `device` in all; `None`: no bound."""

    def grew(self, library: Library) -> None:
        """`library` has taken more from a device."""

    def failed(self, library: str, error: Exception) -> None:
        """Tell the user what a library cannot be held to."""

    def ask(self, device: int, size_bytes: int) -> Answer:
        """Ask the daemon for what `device` did not have; see `Asking.ask`."""


def explained(message: str, answer: Answer) -> str:
    """A library's own message about an allocation that failed, with what the scheduler says about it."""
    return f"{message.rstrip()} [scheduler] {answer.reason[0].upper()}{answer.reason[1:].rstrip('.')}."
