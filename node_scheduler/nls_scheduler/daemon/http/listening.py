"""The daemon's socket: made by us and bound again where somebody removes it, or passed by systemd."""

from __future__ import annotations

import errno
import logging
import os
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from nls_scheduler.wire import trust
from nls_scheduler.wire.errors import DaemonUnreachable

if TYPE_CHECKING:
    from pathlib import Path

    from nls_scheduler.daemon.http.connections import BoundedServer

BACKLOG: Final = 1024
_FIRST_PASSED: Final = 3
log = logging.getLogger(__name__)


class Listening:
    """One socket path, and what listens there."""

    def __init__(self, path: Path, *, everybody: bool) -> None:
        """`everybody`: users other than ours must reach it. Raises ValueError where systemd passes another socket."""
        self.path = path
        self._everybody = everybody
        self._passed = passed_by_systemd(path)
        self._open: socket.socket | None = None
        self._place: os.stat_result | None = None
        self._told = ""

    def __str__(self) -> str:
        """Where it is, and for whom."""
        if self._passed is not None:
            return f"{self.path}, which systemd has made"
        return f"{self.path}, for {'all users' if self._everybody else 'our own user and root alone'}"

    def make_directory(self) -> None:
        """The directory of the socket; nobody but our user needs one that is not everybody's. Raises OSError."""
        missing = [place for place in self.path.parents if not place.is_dir()]
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)
            if self._everybody:
                place.chmod(0o711)  # to enter; who could list it could lock it

    def require_ours(self) -> None:
        """Raises OSError where the directory is another user's by now, or a link: who could say what is made there?"""
        try:
            trust.check_place(self.path)
        except DaemonUnreachable as error:
            raise PermissionError(str(error)) from None

    def open(self, server: BoundedServer) -> None:
        """Listen; a socket that a killed daemon left behind is replaced. Raises OSError."""
        before, self._open = self._open, self._passed or self._bound()
        if self._passed is not None:
            self._place = self._seen()
        server.add_socket(self._open)
        if before is not None:
            server.forget_socket(before)

    def look(self, server: BoundedServer) -> None:
        """Listen again where the socket was removed or replaced; who is connected stays so. Failures are logged."""
        if self._is_ours():
            self._told = ""
        elif self._passed is not None:
            self.tell(f"systemd's socket {self.path} was removed: `systemctl restart nls.socket` makes it again")
        else:
            try:
                self.open(server)
            except OSError as error:
                self.tell(f"the socket {self.path} was removed, and cannot be made again: {error}")
            else:
                log.warning("the socket %s was removed and is there again", self.path)

    def remove(self) -> None:
        """At the end: our own socket, and no other one that is there by now."""
        if self._passed is None and self._is_ours():
            self.path.unlink(missing_ok=True)

    def _bound(self) -> socket.socket:
        with ExitStack() as on_failure:
            listening = on_failure.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            if self.path.is_socket():
                self.path.unlink()
            elif os.path.lexists(self.path):
                raise FileExistsError(errno.EEXIST, "something else than a socket is there, and stays", str(self.path))
            # As it is to be from the beginning: a mode that is changed later may be that of what is there by then.
            mode = 0o666 if self._everybody else 0o600
            os.fchmod(listening.fileno(), mode)
            before = os.umask(0o777 & ~mode)
            try:
                listening.bind(str(self.path))
            finally:
                os.umask(before)
            place = self._seen()
            listening.listen(BACKLOG)
            listening.settimeout(0)
            on_failure.pop_all()
        self._place = place
        return listening

    def _seen(self) -> os.stat_result | None:
        with suppress(OSError):
            return self.path.lstat()
        return None

    def _is_ours(self) -> bool:
        seen = self._seen()
        return seen is not None and self._place is not None and os.path.samestat(seen, self._place)

    def tell(self, text: str) -> None:
        """Once, not at every look."""
        if text != self._told:
            self._told = text
            log.error("%s", text)


def passed_by_systemd(path: Path) -> socket.socket | None:
    """The listening socket that systemd made at `path`, as sd_listen_fds(3) says; `None`: it has passed none.

    Raises ValueError when it passes others: whoever connects to one of those would wait for ever.
    """
    pid, count, _ = (os.environ.pop(f"LISTEN_{name}", "") for name in ("PID", "FDS", "FDNAMES"))
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) == 0:
        return None
    try:
        passed = [socket.socket(fileno=_FIRST_PASSED + number) for number in range(int(count))]
    except OSError as error:
        raise ValueError(f"LISTEN_FDS={count} says that systemd passes sockets that are not there ({error}).") from None
    for each in passed:
        each.set_inheritable(False)
        each.settimeout(0)
    if [_listens_at(each) for each in passed] != [str(path)]:
        names = " and ".join(str(each.getsockname()) for each in passed)
        raise ValueError(f"systemd passes {names}, and not one socket at {path}: correct ListenStream= or --socket.")
    return passed[0]


def pass_on(parent: int) -> None:
    """What systemd has passed to the process that forked this one is this one's."""
    if os.environ.get("LISTEN_PID") == str(parent):
        os.environ["LISTEN_PID"] = str(os.getpid())


def _listens_at(passed: socket.socket) -> str | None:
    return passed.getsockname() if passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) else None
