"""Whose daemon it is: one's own, root's, or the administrator's, before anything is told to it or done for it."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final

from nls_scheduler.processes.whose_files import name_of
from nls_scheduler.wire.errors import DaemonUnreachable

SYSTEM_SOCKET: Final = Path("/run/nls/nls.sock")
UID_VARIABLE: Final = "NLS_DAEMON_UID"
"""A user whose daemon is used besides one's own and root's: where an administrator runs one elsewhere."""
_OVERFLOW: Final = Path("/proc/sys/kernel/overflowuid")
_MAPPED: Final = Path("/proc/self/uid_map")
_ALL_ARE_MAPPED: Final = ["0", "0", "4294967295"]
_UCRED: Final = struct.Struct("iII")


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket connection: who connected, or who listens."""
    return peer_ids(connection)[1]


def peer_ids(connection: socket.socket) -> tuple[int, int]:
    """The process and the user there."""
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def check_place(path: Path) -> None:
    """Raises DaemonUnreachable where others decide what `path` is: its directory is theirs, or open to them, or a link.

    What is not there yet is nobody's. A group that may only enter the directory decides nothing.
    """
    directory = path.parent
    try:
        about = directory.lstat()
        is_link = path.is_symlink()
    except OSError:
        return
    if stat.S_ISLNK(about.st_mode) or is_link:
        why = f"{path if is_link else directory} is a symbolic link"
    elif about.st_uid not in _trusted(path):
        why = f"its directory belongs to {_called(about.st_uid)}"
    elif about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):  # the group's also stands for an access control list's
        why = "others may write to its directory"
    else:
        return
    raise DaemonUnreachable(
        f"The daemon's socket {path} is not used, as {why}: another user could have put a daemon of theirs there. "
        f"Name one in a directory of your own or of root's, or tell {UID_VARIABLE} whose daemon it is."
    )


def check_daemon(connection: socket.socket, path: Path) -> None:
    """Raises DaemonUnreachable where somebody else than one's own user, root or the administrator listens at `path`."""
    uid = peer_uid(connection)
    if uid not in _trusted(path):
        raise DaemonUnreachable(
            f"The daemon at {path} is run by {_called(uid)}, who is neither you nor root, and is not used: what it "
            f"orders would be done in your name. If it is your administrator's, set {UID_VARIABLE}={uid}."
        )


def _trusted(path: Path) -> set[int]:
    """Whose daemon may be used at `path`; that of the node is run by whom root has given its directory."""
    uids = {os.geteuid(), 0, *named()}
    if path == SYSTEM_SOCKET and _is_roots(path.parent.parent):
        uids.add(path.parent.lstat().st_uid)
    return {uid for uid in uids if not _stands_for_many(uid)}


def named() -> set[int]:
    """Whom UID_VARIABLE names, if anybody. Raises DaemonUnreachable where that is no user's number."""
    number = os.environ.get(UID_VARIABLE, "").strip()
    if number and not (number.isascii() and number.isdecimal()):
        raise DaemonUnreachable(
            f"{UID_VARIABLE} is {number!r}, which is no user's number: set it to what `id -u` says of whom the "
            "daemon is, or unset it."
        )
    return {int(number)} if number else set()


def _is_roots(directory: Path) -> bool:
    about = directory.lstat()
    return about.st_uid == 0 and stat.S_ISDIR(about.st_mode) and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _stands_for_many(uid: int) -> bool:
    """Whether that is everybody who has no number in this user namespace (user_namespaces(7))."""
    try:
        overflow, mapped = int(_OVERFLOW.read_text()), _MAPPED.read_text().split()
    except (OSError, ValueError):
        return False
    return uid == overflow and mapped != _ALL_ARE_MAPPED


def _called(uid: int) -> str:
    if _stands_for_many(uid):
        return f"a user whom this user namespace does not know (uid {uid} is all of them)"
    name = name_of(uid)
    return f"the user with uid {uid}" if name is None else f"the user {name}"
