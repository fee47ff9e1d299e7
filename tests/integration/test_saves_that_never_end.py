"""A GPU process whose main thread hangs in a save goes on as long as nobody is owed its GPU, and its user reads why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.kernel, pytest.mark.long("saves that nothing can stop")]

HANGS = """%%gpu
import ctypes, os, signal
from nls_jupyter import xp
class Hangs:
    def __reduce__(self):
        while os.path.exists({flag!r}):
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
            ctypes.CDLL(None).usleep(10_000)
        return Hangs, ()
hangs, hold = Hangs(), xp.ones(25 << 20)
"""
QUICK = ("suspend_timeout_s=1", "reclaim_deadline_s=3", "stop_grace_s=1", "cool_down_s=1")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    quick = [word for setting in QUICK for word in ("--set", setting)]
    with DaemonProcess(tmp_path, "1x256MiB", "--context-memory", "16MiB", *quick) as running:
        yield running


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    return tmp_path / "hangs"


@pytest.fixture
def hanging(tmp_path: Path, daemon: DaemonProcess, flag: Path) -> Iterator[AutoKernel]:
    """The next save hangs."""
    directory = tmp_path / "notebook"
    directory.mkdir()
    with AutoKernel(directory, daemon, "python3") as opened:
        opened.run(HANGS.format(flag=str(flag)))
        opened.run("%gpu save")
        flag.touch()
        yield opened


@pytest.fixture
def notebook(daemon: DaemonProcess, hanging: AutoKernel) -> AutoKernel:
    """Its user has suspended it, and it hangs in the save for that."""
    daemon.nls("suspend", hanging.name)
    hanging.entry(
        phase="running",
        reason="it could not be suspended, which is tried again: its variables were not saved within 1 s",
    )
    return hanging


def test_who_suspends_it_waits_for_as_long_as_it_is_being_saved(hanging: AutoKernel) -> None:
    hanging.run("%%local\nfrom nls_jupyter.supervisor import place\nplace._BEGINS_WITHIN_S = 0.5")
    told = hanging.run("%gpu suspend").text()
    assert told.startswith("Suspended: ")
    assert "not saved: hangs" in told


def test_its_user_s_suspend_ends_when_it_ends_and_loses_nothing(
    daemon: DaemonProcess, notebook: AutoKernel, flag: Path
) -> None:
    pid = notebook.entry()["pid"]
    flag.unlink()
    notebook.entry(phase="suspended")
    back = notebook.run("%%gpu\nfloat(hold[0])")
    assert "could not be saved" not in back.text("stderr")
    told = {entry["event"] for entry in json.loads(daemon.nls("history", "--json").stdout)}
    assert told >= {"suspend_failed", "suspended", "resumed"}
    assert told.isdisjoint({"evicted", "exited"})
    assert notebook.entry()["pid"] != pid


def test_who_is_owed_its_gpu_has_it_at_the_deadline_and_it_reads_that(
    daemon: DaemonProcess, notebook: AutoKernel, flag: Path
) -> None:
    training = daemon.start_nls("run", "--request", "0.5", "--name", "training", "--", "sleep", "600")
    notebook.entry(phase="suspended")
    flag.unlink()
    training.terminate()
    back = notebook.run("%%gpu\nkept = 1")
    assert "and what ran last could not be saved before: that did not end in time" in back.text("stderr")
