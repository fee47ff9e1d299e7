"""What freezing a process takes of a GPU driver, and the order in which it is asked; each driver implements the port.

The driver's own states are `cuCheckpointProcess…`'s (CUDA driver API, "CUDA Checkpointing"): running -lock-> locked
-checkpoint-> checkpointed -restore-> locked -unlock-> running. Whatever goes wrong on the way, a process is never left
locked: it is unlocked, or restored and unlocked, before anything else is done with it. Everything here blocks.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.ids import ProcessId


class State(StrEnum):
    """Where a process is, as its driver says."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"


class CheckpointFailed(Exception):  # noqa: N818 - says what happened
    """The driver refused one step; the message is a clause that says why."""


class ProcessEnded(CheckpointFailed):
    """There is no such process any more."""


class NotFrozen(Exception):  # noqa: N818
    """The process goes on as before. The message is a clause for its user."""


class NotThawed(Exception):  # noqa: N818
    """The driver still holds the process, locked or checkpointed: it stands still, and must not be killed."""


class ProcessLost(Exception):  # noqa: N818
    """The driver has given the process up (or that has ended): it is of no more use, and may be killed."""


class Checkpoints(Protocol):
    """One way to freeze processes. All calls block and are made from one thread."""

    def refusal(self, process: ProcessId | None) -> str | None:
        """Why `process` cannot be frozen now, as a clause for its user; `None`: nothing is known against it.

        Without a process: why none can be here, by a trial on this node's driver.
        """

    def state(self, process: ProcessId) -> State:
        """Where it is now. Raises ProcessEnded, and CheckpointFailed where the driver does not say it."""

    def lock(self, process: ProcessId, timeout_s: float) -> None:
        """Have it wait before its next call of the driver. Raises CheckpointFailed, and it is running then."""

    def checkpoint(self, process: ProcessId) -> int | None:
        """Take a locked process's memory to host memory. Returns the bytes, if known. Raises CheckpointFailed."""

    def restore(self, process: ProcessId) -> None:
        """Bring a checkpointed process's memory back to where it was; it is locked then. Raises CheckpointFailed."""

    def unlock(self, process: ProcessId) -> None:
        """Let a locked process go on. Raises CheckpointFailed."""


def freeze(
    driver: Checkpoints, process: ProcessId, timeout_s: float, clock: Callable[[], float] = time.monotonic
) -> int | None:
    """Freeze `process` within `timeout_s`. Returns the bytes that are in host memory now, if the driver tells.

    The driver knows no time-out beyond the lock's: what was frozen too late goes on again. Raises NotFrozen; NotThawed,
    where that could not be undone; and ProcessLost.
    """
    deadline = clock() + timeout_s
    if (why := driver.refusal(process) or _why_unknown(driver, process)) is not None:
        raise NotFrozen(why)
    try:
        driver.lock(process, timeout_s)
        frozen_bytes = driver.checkpoint(process)
    except CheckpointFailed as error:
        thaw(driver, process)
        raise NotFrozen(str(error)) from error
    if clock() > deadline:
        thaw(driver, process)
        raise NotFrozen(f"it took longer than {timeout_s:.1f} s")
    return frozen_bytes


def thaw(driver: Checkpoints, process: ProcessId) -> None:
    """Whatever was begun with `process`, it goes on. Raises NotThawed, and ProcessLost."""
    try:
        _let_go(driver, process)
    except ProcessEnded as error:
        raise ProcessLost(str(error)) from error
    except CheckpointFailed as error:
        if _state(driver, process) is State.FAILED:
            raise ProcessLost(str(error)) from error
        raise NotThawed(str(error)) from error


def unlock_only(driver: Checkpoints, process: ProcessId) -> State | None:
    """For who is about to end `process`: a locked one is unlocked, any other is left as it is.

    Returns its state; `None` where the driver does not say it.
    """
    state = _state(driver, process)
    if state is not State.LOCKED:
        return state
    try:
        driver.unlock(process)
    except CheckpointFailed:
        return _state(driver, process)
    return State.RUNNING


def _let_go(driver: Checkpoints, process: ProcessId) -> None:
    state = driver.state(process)
    if state is State.FAILED:
        raise CheckpointFailed("the driver has given the process up")
    if state is State.CHECKPOINTED:
        driver.restore(process)
    if state is not State.RUNNING:
        driver.unlock(process)


def _state(driver: Checkpoints, process: ProcessId) -> State | None:
    """`None`: the driver does not say it, as while an earlier call goes on: nobody may kill it for that."""
    try:
        return driver.state(process)
    except CheckpointFailed:
        return None


def _why_unknown(driver: Checkpoints, process: ProcessId) -> str | None:
    """Nothing is begun with a process of which the driver cannot say where it is: without CUDA in use, for example."""
    try:
        driver.state(process)
    except ProcessEnded as error:
        raise ProcessLost(str(error)) from error
    except CheckpointFailed as error:
        return str(error)
    return None
