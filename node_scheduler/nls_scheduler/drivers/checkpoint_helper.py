"""Freezes and thaws processes for one supervisor, in a process of its own that a driver's call may block.

Started as `python -m nls_scheduler.drivers.checkpoint_helper [--simulation DIRECTORY]`. Each line on standard input is
an order, `{"do": "freeze", "pid": 7, "start_time": 8, "timeout_s": 9.5}`, and gets one line on standard output:
`{"ok": true, ...}`, or `{"ok": false, "error": KIND, "why": CLAUSE}`. The end of standard input ends it; what it has
locked and not checkpointed is unlocked first. CUDA is initialised once, for the first order that needs it: that is
most of what a restore costs otherwise.
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.ids import ProcessId
from nls_scheduler.drivers import checkpoints
from nls_scheduler.drivers.checkpoints import (
    CheckpointFailed,
    NotFrozen,
    NotThawed,
    ProcessEnded,
    ProcessLost,
    State,
)
from nls_scheduler.processes.guardian import name_while_held

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.drivers.checkpoints import Checkpoints

_KINDS: Final[Mapping[type[Exception], str]] = {
    NotFrozen: "not_frozen",
    NotThawed: "not_thawed",
    ProcessLost: "lost",
    CheckpointFailed: "failed",
}


class Helper:
    """Carries out one order after another."""

    def __init__(self, driver: Checkpoints) -> None:
        self._driver = driver
        self._touched: set[ProcessId] = set()
        self._held: dict[ProcessId, socket.socket] = {}

    def answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Do what `order` says; a refusal is an answer as well."""
        try:
            return {"ok": True, **self._do(order)}
        except tuple(_KINDS) as error:
            return {"ok": False, "error": _KINDS[type(error)], "why": str(error)}

    def _do(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if order["do"] == "test":
            return {"refusal": self._driver.refusal(None)}
        process = ProcessId(order["pid"], order["start_time"])
        self._touched.add(process)
        self._hold(process)
        try:
            done = self._do_with(process, order)
        except NotThawed:
            self._let_go_unless_locked(process)
            raise
        except (NotFrozen, ProcessLost, CheckpointFailed):
            self._let_go(process)
            raise
        if order["do"] == "unlock":
            self._let_go_unless_locked(process)
        else:
            self._let_go(process)
        return done

    def _do_with(self, process: ProcessId, order: Mapping[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "freeze":
                return {"bytes": checkpoints.freeze(self._driver, process, order["timeout_s"])}
            case "thaw":
                checkpoints.thaw(self._driver, process)
            case "unlock":
                state = checkpoints.unlock_only(self._driver, process)
                return {"state": None if state is None else state.value}
            case other:
                raise ValueError(f"there is no order {other!r}")
        return {}

    def _hold(self, process: ProcessId) -> None:
        """Whoever wants to kill it sees from now on that the driver may have it locked."""
        if process not in self._held:
            self._held[process] = held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            with suppress(OSError):  # a helper before this one says so still
                held.bind("\0" + name_while_held(process.pid, process.start_time))

    def _let_go(self, process: ProcessId) -> None:
        """Running or checkpointed, it may be killed as any other."""
        self._held.pop(process).close()

    def _let_go_unless_locked(self, process: ProcessId) -> None:
        try:
            locked = self._driver.state(process) is State.LOCKED
        except ProcessEnded:
            locked = False
        except CheckpointFailed:
            locked = True
        if not locked:
            self._let_go(process)

    def close(self) -> None:
        """Nobody is left who could unlock them."""
        for process in self._touched:
            with suppress(CheckpointFailed):
                checkpoints.unlock_only(self._driver, process)


def serve(driver: Checkpoints, orders: Iterable[str]) -> None:
    """Until `orders` end."""
    helper = Helper(driver)
    for line in orders:
        sys.stdout.write(json.dumps(helper.answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    helper.close()


def _driver(arguments: list[str]) -> Checkpoints:
    # Each imports what the other one does not need.
    if arguments[:1] == ["--simulation"]:
        from nls_scheduler.drivers.simulated_checkpoints import SimulatedCheckpoints

        return SimulatedCheckpoints(Path(arguments[1]))
    from nls_scheduler.drivers.cuda_checkpoints import CudaCheckpoints

    return CudaCheckpoints()


if __name__ == "__main__":
    serve(_driver(sys.argv[1:]), sys.stdin)
