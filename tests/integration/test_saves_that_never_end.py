"""A GPU process whose main thread hangs in a save is ended in time, and its user reads why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kernel, pytest.mark.long("saves that nothing can stop")]

HANGS = """%%gpu
import ctypes, os, signal
class Hangs:
    def __reduce__(self):
        if os.path.exists({flag!r}):
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
            ctypes.CDLL(None).sleep(600)
        return Hangs, ()
hangs = Hangs()
"""


def test_a_suspend_whose_save_never_ends_ends_at_its_deadline_and_says_so(tmp_path: Path) -> None:
    flag = tmp_path / "hangs"
    with DaemonProcess(tmp_path, "1x256MiB", "--context-memory", "16MiB", "--set", "suspend_timeout_s=1") as daemon:
        directory = tmp_path / "notebook"
        directory.mkdir()
        with AutoKernel(directory, daemon, "python3") as notebook:
            notebook.run(HANGS.format(flag=str(flag)))
            notebook.run("%gpu save")
            flag.touch()
            daemon.nls("suspend", notebook.name)
            notebook.entry(phase="suspended")
            flag.unlink()
            back = notebook.run("%%gpu\nkept = 1")
            assert "suspended by its user, and what ran last could not be saved before: that did not end in time" in (
                back.text("stderr")
            )
