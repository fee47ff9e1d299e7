"""The folder of the daemon's own files. What a daemon does follows from them, as root to everybody's processes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from nls_scheduler.processes.whose_files import others_write

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL_NAME: Final = "journal.db"
KEY_NAME: Final = "adoption.key"
LOCK_NAME: Final = "daemon.lock"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_DO_ANYTHING: Final = stat.S_IRWXG | stat.S_IRWXO


def check(folder: Path) -> None:
    """Raises ValueError with one sentence where others could have written what lies in `folder`, or could put it there.

    Neither it nor what leads there is anybody's but the daemon's own user's and root's. Into it only its owner may
    write; to what leads there also a group that nobody else is in, and, where nobody can rename what is another's as in
    /tmp, everybody. An access control list shows in a mode as its mask, which stands for the group.
    """
    ours = {0, os.geteuid()}
    for place in (folder, *folder.absolute().parents):
        if place.is_symlink() and place.lstat().st_uid not in ours:
            raise _refused(folder, f"the link {place} is another user's")
    real = folder.resolve()
    # Who may write to where a link lies could put another one there.
    for place in dict.fromkeys((real, *real.parents, *folder.absolute().parents)):
        about = place.stat()
        if about.st_uid not in ours:
            raise _refused(folder, f"{place} belongs to another user")
        if place == real:
            is_open = bool(about.st_mode & _OTHERS_WRITE)
        else:
            is_open = not about.st_mode & stat.S_ISVTX and others_write(place, about)
        if is_open:
            raise _refused(folder, f"others may write to {place} (`chmod go-w {place}`)")
    for file in (*folder.glob(f"{JOURNAL_NAME}*"), *folder.glob(f"{KEY_NAME}*")):
        about = file.lstat()
        unwanted = _OTHERS_WRITE if file.name.startswith(JOURNAL_NAME) else _OTHERS_DO_ANYTHING
        if about.st_uid not in ours or not stat.S_ISREG(about.st_mode) or about.st_mode & unwanted:
            raise _refused(folder, f"{file} is another user's, or open to others, or no file")


def _refused(folder: Path, why: str) -> ValueError:
    return ValueError(f"The daemon's files cannot be in {folder}, as {why}: name a folder of its own with --state-dir.")
