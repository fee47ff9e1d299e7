"""A trial of a node's driver: a process with a little GPU memory is frozen and thawed, and finds its bytes as before.

Drivers differ in what they can do, and in what they break (NVIDIA/cuda-checkpoint, issues 25, 44, 53, 58): nothing is
frozen on a node where this has not passed. Its result is kept for as long as the driver is the same one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.drivers.checkpoints import CheckpointFailed, NotFrozen, NotThawed, ProcessLost, State, freeze, thaw
from nls_scheduler.processes.proc import look_up

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import ProcessId
    from nls_scheduler.drivers.checkpoints import Checkpoints

TIMEOUT_S: Final = 20.0
_VERSION_FILE: Final = Path("/proc/driver/nvidia/version")
SUBJECT: Final = """
import sys
from cuda.bindings import driver

def check(answer):
    if int(answer[0]):
        sys.exit(f"{answer[0].name}")
    return answer[1] if len(answer) == 2 else answer[1:]

check(driver.cuInit(0))
device = check(driver.cuDeviceGet(0))
context = check(driver.cuDevicePrimaryCtxRetain(device))
check(driver.cuCtxSetCurrent(context))
size = 1 << 20
written, found = bytes(range(256)) * (size // 256), bytearray(size)
memory = check(driver.cuMemAlloc(size))
check(driver.cuMemcpyHtoD(memory, written, size))
print("ready", flush=True)
while sys.stdin.readline():
    check(driver.cuMemcpyDtoH(found, memory, size))
    print("same" if bytes(found) == written else "changed", flush=True)
"""
"""A process with a context and 1 MiB, which says for each line that it reads whether that is what it was."""


def why_it_fails(driver: Checkpoints, cache: Path | None = None, subject: str = SUBJECT) -> str | None:
    """Why nothing can be frozen on this node, as a clause; `None`: the trial passed, now or with this driver before."""
    kept = _cache() if cache is None else cache
    if (result := known(kept)) is not None:
        return result.failed
    failed = _try(driver, subject)
    with suppress(OSError):  # the next one tries again
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_name(f".{kept.name}.{os.getpid()}")
        draft.write_text(json.dumps({"driver": _driver_version(), "failed": failed}), encoding="utf-8")
        draft.replace(kept)
    return failed


@dataclass(frozen=True, slots=True)
class Known:
    """The result of a trial on the driver that is here now. `failed`: why, as a clause; `None`: it passed."""

    failed: str | None


def known(cache: Path | None = None) -> Known | None:
    """What this user's last trial has found; `None`: there was none on this driver. Starts and changes nothing."""
    version = _driver_version()
    with suppress(OSError, ValueError, KeyError, TypeError):
        result = json.loads((_cache() if cache is None else cache).read_text(encoding="utf-8"))
        if version and result["driver"] == version:
            return Known(None if result["failed"] is None else str(result["failed"]))
    return None


def _cache() -> Path:
    """For who has no home directory it is nowhere: nothing is found or kept there."""
    try:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        folder = os.devnull
    return Path(folder) / "nls-jupyter" / f"checkpoint-trial-{os.uname().nodename}.json"


def _driver_version() -> str:
    try:
        return _VERSION_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _try(driver: Checkpoints, subject: str) -> str | None:
    command = [sys.executable, "-c", subject]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - they are pipes
        try:
            if process.stdout.readline().strip() != "ready":
                return "a trial on this node's driver failed: its process could not use the GPU"
            record = look_up(process.pid)
            if record is None:
                return "a trial on this node's driver failed: its process ended"
            _freeze_and_thaw(driver, record.id)
            process.stdin.write("\n")
            process.stdin.flush()
            came_back = process.stdout.readline().strip()
        except (NotFrozen, NotThawed, ProcessLost, CheckpointFailed, OSError) as error:
            return f"a trial on this node's driver failed: {error}"
        finally:
            process.stdin.close()
    return None if came_back == "same" else "a trial on this node's driver failed: its memory came back changed"


def _freeze_and_thaw(driver: Checkpoints, process: ProcessId) -> None:
    freeze(driver, process, TIMEOUT_S)
    if driver.state(process) is not State.CHECKPOINTED:
        raise CheckpointFailed(f"its process was {driver.state(process)} when it should have been checkpointed")
    thaw(driver, process)
    if driver.state(process) is not State.RUNNING:
        raise CheckpointFailed(f"its process was {driver.state(process)} when it should have gone on")
