"""Has the GPU driver freeze a notebook's GPU process and let it go on, through a helper that a call may block.

A call of the driver cannot be cancelled, and needs CUDA initialised: neither is for the kernel's process. The helper
(`nls_scheduler.drivers.checkpoint_helper`) is started when it is first needed, and ends with this kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state import MachineRoom
from nls_jupyter.supervisor.own_code import OWN_CODE
from nls_scheduler.drivers.simulated_memory import SIMULATION_VARIABLE
from nls_scheduler.processes import debuggers, signals
from nls_scheduler.processes.proc import MARK_VARIABLE, WORKLOAD_VARIABLE
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_jupyter.supervisor.channel import GpuProcess

TEST_WITHIN_S: Final = 60.0
PUT_RIGHT_WITHIN_S: Final = 30.0
"""What was begun too late is undone in this time, or the driver is stuck."""
_END_WITHIN_S: Final = 5.0
_MODULE: Final = "nls_scheduler.drivers.checkpoint_helper"


class NotDone(Exception):  # noqa: N818 - says what happened
    """The process is as it was before, running or standing still; the message is a clause for its user."""


class Lost(Exception):  # noqa: N818
    """The driver has given the process up: it is of no more use, and may be ended."""


class Stuck(Exception):  # noqa: N818
    """The driver does not answer, or does not let go of the process, which may be locked and is left alone."""


class Freezer:
    """One GPU process after another; everything runs in the loop's thread, one call at a time."""

    def __init__(self, room: MachineRoom | None = None) -> None:
        self._room = MachineRoom() if room is None else room
        self._helper: asyncio.subprocess.Process | None = None
        self._silent: list[asyncio.subprocess.Process] = []
        self._environment: Mapping[str, str] = {}
        self._turn = asyncio.Lock()
        self._touched: GpuProcess | None = None

    def holds(self, process: GpuProcess) -> bool:
        """Whether the driver was told to freeze it, and has not let it go since: it must not be killed then."""
        return self._touched is process

    def serve(self, environment: Mapping[str, str]) -> None:
        """The next calls are for processes with these variables of the daemon's."""
        self._environment = environment

    async def why_not(self) -> str | None:
        """Why nothing can be frozen on this node, as a clause; `None`: a trial on its driver has passed."""
        try:
            answer = await self._ask({"do": "test"}, TEST_WITHIN_S)
        except (Stuck, NotDone, OSError) as error:
            return f"the trial on this node's driver could not be made: {error}"
        refusal: str | None = answer["refusal"]
        return refusal

    async def freeze(self, process: GpuProcess, timeout_s: float, held_bytes: int, beside_bytes: int = 0) -> int:
        """Returns what is in host memory now. Raises NotDone, Lost, Stuck.

        `held_bytes` has to fit into host memory beside what others may take there at the same time.
        """
        self._check_room(held_bytes, beside_bytes)
        self._touched = process
        try:
            answer = await self._of(process, {"do": "freeze", "timeout_s": timeout_s}, timeout_s + PUT_RIGHT_WITHIN_S)
        except (NotDone, Lost):
            self._touched = None
            raise
        frozen_bytes: int | None = answer["bytes"]
        return held_bytes if frozen_bytes is None else frozen_bytes

    def _check_room(self, held_bytes: int, beside_bytes: int) -> None:
        try:
            left_bytes = self._room.memory_bytes()
        except OSError as error:
            raise NotDone(f"nobody can tell what host memory has left: {error.strerror}") from error
        if held_bytes + beside_bytes <= left_bytes:
            return
        others = f", and others that are to stand still {format_bytes(beside_bytes)}" if beside_bytes else ""
        held = f"and it holds {format_bytes(held_bytes)}{others}"
        raise NotDone(f"host memory has {format_bytes(left_bytes)} left, {held}")

    async def thaw(self, process: GpuProcess, timeout_s: float) -> None:
        """Raises NotDone, and it stands still as before; Lost, Stuck."""
        try:
            await self._of(process, {"do": "thaw"}, timeout_s)
        except Lost:
            self._touched = None
            raise
        self._touched = None

    async def go_on(self, process: GpuProcess) -> None:
        """Whatever was begun with it, it runs then. Raises NotDone, and the driver holds it still; Lost, Stuck."""
        if self._touched is process:
            try:
                await self._of(process, {"do": "thaw"}, PUT_RIGHT_WITHIN_S)
            except Lost:
                self._touched = None
                raise
            self._touched = None

    async def unlock(self, process: GpuProcess) -> None:
        """For who ends it in any case: a locked process is unlocked first, if the driver answers soon."""
        if self._touched is process:
            with contextlib.suppress(NotDone, Lost, Stuck):
                await self._of(process, {"do": "unlock"}, _END_WITHIN_S)
            self._touched = None

    async def close(self) -> None:
        """Its kernel ends."""
        helpers, self._helper, self._silent = [*self._silent, self._helper], None, []
        await asyncio.gather(*(_ended(helper) for helper in helpers if helper is not None))

    async def _of(self, process: GpuProcess, order: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        named = {**order, "pid": process.pid, "start_time": process.start_time}
        try:
            answer = await self._ask(named, within_s)
        except OSError as error:
            raise NotDone(f"the helper that asks the driver could not be started: {error}") from error
        if answer["ok"]:
            return answer
        held = answer["error"] == "not_thawed" and order["do"] == "freeze"
        raise (Stuck if held else Lost if answer["error"] == "lost" else NotDone)(str(answer["why"]))

    async def _ask(self, order: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        async with self._turn:
            helper = await self._started()
            assert helper.stdin is not None and helper.stdout is not None  # noqa: S101, PT018 - they are pipes
            try:
                async with asyncio.timeout(within_s):
                    helper.stdin.write(json.dumps(order).encode() + b"\n")
                    line = await helper.stdout.readline()
            except TimeoutError:
                # What it says later answers nobody; it unlocks what it can, and ends.
                helper.stdin.close()
                self._silent.append(helper)
                self._helper = None
                raise Stuck(f"the driver did not answer within {within_s:.0f} s") from None
            except (BrokenPipeError, ConnectionResetError):
                line = b""
            if line:
                answer: dict[str, Any] = json.loads(line)
                return answer
            self._helper = None
        if order["do"] != "freeze":
            raise NotDone("the helper that asks the driver ended")
        # What became of the process is not known: another helper puts it right.
        try:
            answer = await self._ask({**order, "do": "thaw"}, PUT_RIGHT_WITHIN_S)
        except NotDone as error:
            raise Stuck(str(error)) from error
        if answer["ok"]:
            raise NotDone("the helper that asks the driver ended")
        return answer

    async def _started(self) -> asyncio.subprocess.Process:
        if self._helper is None or self._helper.returncode is not None:
            simulation = self._environment.get(SIMULATION_VARIABLE)
            arguments = ["--simulation", simulation] if simulation else []
            environment = {**os.environ, **self._environment}
            if simulation:  # it has no GPU memory of its own that would have to be somebody's
                environment = {k: v for k, v in environment.items() if k not in (WORKLOAD_VARIABLE, MARK_VARIABLE)}
            with debuggers.not_followed(), signals.ctrl_c_waits():
                self._helper = await asyncio.create_subprocess_exec(
                    sys.executable, *OWN_CODE.module(_MODULE), *arguments,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
                    start_new_session=True, pass_fds=OWN_CODE.descriptors,
                )  # fmt: skip
        return self._helper


async def _ended(helper: asyncio.subprocess.Process) -> None:
    assert helper.stdin is not None  # noqa: S101 - it is a pipe
    helper.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_WITHIN_S):
            await helper.wait()
            return
    with contextlib.suppress(ProcessLookupError):
        helper.kill()  # it is blocked by the driver; nothing of anybody's is in it
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_WITHIN_S):
            await helper.wait()
