"""Python as our packages meet it where there is no Linux: loaded at the start of each process of `test_elsewhere.py`.

Only they are shown another platform, without the modules that Unix has: the machine below, and everybody else's code,
are what they are.
"""

import builtins
import os
import sys
from types import ModuleType

PLATFORM = os.environ["TEST_PLATFORM"]
OURS = ("nls_jupyter", "nls_scheduler")
UNIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
MISSING_IN = {"win32": UNIX_ONLY, "darwin": {"ossaudiodev"}}[PLATFORM]
LINUX_ONLY = {"pidfd_open", "memfd_create", "sched_getaffinity", "eventfd", "splice"}


class Elsewhere(ModuleType):
    """A module with another platform's name, or without what only Linux has."""

    def __init__(self, real: ModuleType) -> None:
        super().__init__(real.__name__)
        self._real = real

    def __getattr__(self, name: str) -> object:
        if name == "platform":
            return PLATFORM
        if name in LINUX_ONLY:
            raise AttributeError(name)
        return getattr(self._real, name)


real_import = builtins.__import__
shown = {"sys": Elsewhere(sys), "os": Elsewhere(os)}


def import_elsewhere(name, globals=None, locals=None, fromlist=(), level=0):  # noqa: A002 - Python's names
    if globals and str(globals.get("__name__")).startswith(OURS) and level == 0:
        if name in MISSING_IN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in shown and not fromlist:
            return shown[name]
    return real_import(name, globals, locals, fromlist, level)


builtins.__import__ = import_elsewhere
