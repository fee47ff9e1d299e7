"""The folder of the daemon's own files. What a daemon does follows from them, as root to everybody's processes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL_NAME: Final = "journal.db"
KEY_NAME: Final = "adoption.key"


def check(folder: Path) -> None:
    """Raises ValueError with one sentence where others could have written what lies in `folder`, or could put it there.

    Neither it nor what leads there is anybody's but the daemon's own user's and root's, nor open to all. In a folder
    like /tmp, where nobody can rename what is another's, a folder of one's own is fine.
    """
    ours = {0, os.geteuid()}
    for place in (folder, *folder.absolute().parents):
        if place.is_symlink() and place.lstat().st_uid not in ours:
            raise _refused(folder, f"the link {place} is another user's")
    real = folder.resolve()
    for place in (real, *real.parents):
        about = place.stat()
        if about.st_uid not in ours:
            raise _refused(folder, f"{place} belongs to another user")
        everybody = about.st_mode & stat.S_IWOTH or (place == real and _is_of_a_group(about))
        if everybody and not (about.st_mode & stat.S_ISVTX and place != real):
            raise _refused(folder, f"others may write to {place}")
    for file in (*folder.glob(f"{JOURNAL_NAME}*"), *folder.glob(f"{KEY_NAME}*")):
        about = file.lstat()
        if about.st_uid not in ours or not stat.S_ISREG(about.st_mode) or about.st_mode & stat.S_IWOTH:
            raise _refused(folder, f"{file} is another user's, or open to others, or no file")


def _is_of_a_group(about: os.stat_result) -> bool:
    """Whether a group may write there that is more than a user's own."""
    return bool(about.st_mode & stat.S_IWGRP) and about.st_gid not in {0, os.getegid()}


def _refused(folder: Path, why: str) -> ValueError:
    return ValueError(f"The daemon's files cannot be in {folder}, as {why}: name a folder of its own with --state-dir.")
