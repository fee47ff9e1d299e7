"""Who may write to a file: its owner, a group, everybody; and folders that are their owner's alone."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_ACCESS_LIST: Final = "system.posix_acl_access"


def make_private(folder: Path) -> None:
    """Make `folder`, and what is missing above it, for our user alone, whatever the umask. Raises OSError."""
    for missing in reversed([place for place in folder.parents if not place.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def others_write(place: Path | int, about: os.stat_result) -> bool:
    """Whether others than this process's user and root may write to `place`, a path or a descriptor, by its modes."""
    is_groups = about.st_mode & stat.S_IWGRP
    return bool(about.st_mode & stat.S_IWOTH or (is_groups and (_has_list(place) or not _is_ours(about.st_gid))))


def _has_list(place: Path | int) -> bool:
    """Whether an access control list (acl(5)) may name anybody there."""
    try:
        return bool(os.getxattr(place, _ACCESS_LIST))
    except OSError:
        return False


def _is_ours(gid: int) -> bool:
    """Whether nobody is in that group but our user and root: it has one's name, or is known to have no other.

    Where users come from a directory that lists them not, only the name tells; for root's own it has to.
    """
    ours = {name for uid in {0, os.geteuid()} if (name := name_of(uid)) is not None}
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        name, members = "", set()
    else:
        name, members = group.gr_name, set(group.gr_mem)
    listed = {user.pw_name: user.pw_gid for user in pwd.getpwall()}
    if name not in ours and (os.geteuid() == 0 or not ours <= listed.keys()):
        return False
    members |= {user for user, first in listed.items() if first == gid}
    return members <= ours


def name_of(uid: int) -> str | None:
    """The user's name; `None` where this machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
