"""A family that hides from whoever wants to end it: own sessions, orphans, emptied environments, another user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leftovers import living
from nls_scheduler.processes import guardian
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

# Takes `file`, into which each of them writes its pid.
CODE = """
import os, subprocess
tell = "echo $$; exec sleep 600"
with open(file, "a") as pids:
    subprocess.Popen(["sh", "-c", tell], stdout=pids, start_new_session=True)
    subprocess.Popen(["env", "-i", "setsid", "sh", "-c", tell], stdout=pids)
    subprocess.run(["env", "-i", "setsid", "sh", "-c", f"trap '' TERM; (setsid sh -c '{tell}' &)"], stdout=pids)
    subprocess.run(["setsid", "sh", "-c", f"(env -i setsid sh -c '{tell}' &)"], stdout=pids)
    if os.geteuid() == 0:
        subprocess.run(["env", "-i", "setsid", "sh", "-c", f"(setsid sh -c '{tell}' &)"], stdout=pids, user=65534)
"""
SIZE = 5 if os.geteuid() == 0 else 4


def code(file: Path, then: str) -> str:
    """Starts the family, then does `then`."""
    return f"file = {str(file)!r}\n{CODE}\n{then}\n"


class HiddenFamily:
    """All that is below `top`, which has started a guardian for a command with such a family.

    Attributes:
        members: start time by pid: both guardians, the command, its family.
        outer: pid of the guardian above, and `inner` of the one below it.
    """

    def __init__(self, file: Path, top: int) -> None:
        """Waits for the family."""
        wait_until(lambda: file.exists() and len(file.read_text().splitlines()) == SIZE)
        self.top = top
        self.members = guardian.descendants(top)
        assert {int(pid) for pid in file.read_text().splitlines()} < self.members.keys()
        self.outer, self.inner = (pid for pid in self.members if guardian.is_guardian(pid))
        if parent_of(self.inner) != self.outer:
            self.outer, self.inner = self.inner, self.outer
        assert parent_of(self.inner) == self.outer

    def living(self) -> list[str]:
        """What is left of it; the guardians too."""
        return living(self.members)


def parent_of(pid: int) -> int:
    """Of a living process."""
    stat = guardian.read_stat(pid)
    assert stat is not None
    return stat[0]
