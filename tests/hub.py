"""Two users as on The Littlest JupyterHub: one system daemon, and each user's own Jupyter Server under their own id.

The users get one capability, to read files: Python itself may lie where only root may read. Whose process it is, which
is all that the daemon goes by, it does not change.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from daemon_process import DaemonProcess
from lab_bench import LabBench
from pages import enable_extension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ANNA, BERT = 65533, 65534
CANNOT = None if os.geteuid() == 0 and shutil.which("setpriv") else "only root can become other users, by setpriv"


class UsersBench(LabBench):
    """One user's server on a daemon that is there already."""

    def __init__(self, directory: Path, daemon: DaemonProcess, uid: int) -> None:
        super().__init__(directory, "1x1GiB", HOME=str(directory))
        self.daemon = RunningDaemon(daemon)
        reads = "--inh-caps=-all,+dac_read_search"
        self.before = (
            *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
            *(reads, "--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search"),
        )
        for made in ("notebooks", "runtime", "data", "ipython"):
            (directory / made).mkdir(exist_ok=True)
        # `access`, which Jupyter asks, heeds no capability.
        for parent in directory.parents:
            if parent.stat().st_uid == 0:
                parent.chmod(parent.stat().st_mode | 0o011)
        for path in (directory, *directory.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)

    def __exit__(self, *error: object) -> None:
        asyncio.set_event_loop(self.loop)  # the other user's, which was closed first, has left none
        super().__exit__(*error)


class RunningDaemon(DaemonProcess):
    """A daemon that somebody else starts and stops."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.__dict__.update(vars(daemon))

    def __enter__(self) -> RunningDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        """Others use it still."""


@contextlib.contextmanager
def hub(
    make: Callable[[str], Path], simulate: str, prepare: Callable[[Path], None] = lambda _: None, settings: str = ""
) -> Iterator[tuple[UsersBench, UsersBench]]:
    """Anna's and Bert's servers.

    Args:
        make: a new directory by name.
        prepare: is called with each user's directory before it becomes theirs.
        settings: lines for the servers' configuration files.
    """
    shared = make("d")
    with DaemonProcess(shared, simulate, "--context-memory", "16MiB", "--set", "show_names=admins") as daemon:
        daemon.open_to_everybody()
        with contextlib.ExitStack() as stack:
            benches = []
            for uid in (ANNA, BERT):
                directory = make("u")
                enable_extension(directory, settings)
                prepare(directory)
                benches.append(stack.enter_context(UsersBench(directory, daemon, uid)))
            yield benches[0], benches[1]
