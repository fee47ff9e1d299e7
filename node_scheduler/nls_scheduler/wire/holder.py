"""Who holds the lock of a socket: a daemon that does not answer may be there all the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from nls_scheduler.processes.proc import STOPPED, status_of


@dataclass(frozen=True, slots=True)
class Holder:
    """A daemon's process.

    Attributes:
        stopped: by a signal or a debugger; it does nothing until it is told to go on.
    """

    pid: int
    stopped: bool

    def __str__(self) -> str:
        """For the user: what it is, and what to do if anything can be done."""
        if self.stopped:
            return f"its process {self.pid} is stopped, and `kill -CONT {self.pid}` has it go on"
        return f"its process {self.pid} runs, and listens there within seconds unless it is ending"


def lock_of(path: Path) -> Path:
    """The lock beside a socket."""
    return path.with_name(path.name + ".lock")


def holder_of(path: Path) -> Holder | None:
    """The daemon that holds the lock of the socket `path`; `None`: nobody, or nobody whom this process can see."""
    return locked_by(lock_of(path))


def locked_by(lock: Path) -> Holder | None:
    """The process of the owner of `lock`, a file or a folder, or of root's that holds it; others count as nobody.

    It is read from /proc/locks, as proc(5) describes it: a lock that one tried would refuse a daemon that starts now.
    """
    try:
        about = lock.stat()
        device = _file_system_of(lock)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        # Other file systems count their files from 1, too.
        if words[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and words[5] == f"{device}:{about.st_ino}":
            try:
                process = status_of(Path(f"/proc/{words[4]}"))
            except OSError:
                continue
            # The real user: whoever runs `su` is not root yet.
            if int(process["Uid"][0]) in (about.st_uid, 0):
                return Holder(int(words[4]), process["State"][0] in STOPPED)
    return None


def _file_system_of(path: Path) -> str:
    """The number of its file system as /proc/locks has it; stat(2) tells another one on Btrfs and the like.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        device = os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
    number = f"{os.major(device)}:{os.minor(device)}"
    mount = next((words[1] for line in told if (words := line.split())[0] == "mnt_id:"), None)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[0] == mount:
            number = words[2]
    major, minor = number.split(":")
    return f"{int(major):02x}:{int(minor):02x}"
