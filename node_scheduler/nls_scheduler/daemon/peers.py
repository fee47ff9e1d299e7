"""Who asks, as the socket says and never as the client says; and the leases that end with a process."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nls_scheduler.processes.proc import look_up
from nls_scheduler.requests.queue_access import Who
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.ids import ProcessId, WorkloadId
    from nls_scheduler.core.model.workload import Workload

SO_PEERPIDFD: Final = 77  # Linux 6.5; no constant in Python
SO_PEERGROUPS: Final = 59  # Linux 4.13; no constant in Python
_UCRED: Final = struct.Struct("iII")
_GID_BYTES: Final = 4
_FEW_GROUPS: Final = 256
_MOST_GROUPS: Final = 65536


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end.

    Attributes:
        uid: effective user when it connected.
        process: `None` when it lives in a pid namespace that cannot be seen from here.
        pidfd: stays valid after its end; whoever holds the Peer closes it.
        administrator: whether it may act on everybody's workloads: root, the daemon's own user, the configured group.
        gids: its groups.
        tenant: see `WorkloadSpec.tenant`.
    """

    uid: int
    process: ProcessId | None
    pidfd: int
    administrator: bool
    gids: frozenset[int] = frozenset()
    tenant: str = ""

    @classmethod
    def of(cls, connection: socket.socket, admin_gid: int | None = None) -> Peer:
        """The peer of a Unix socket connection. Raises Problem when it has ended already."""
        pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        try:
            pidfd = _open_pidfd(connection, pid)
        except ProcessLookupError as error:
            raise Problem(403, "Unknown caller", "The process that opened this connection has ended.") from error
        record = look_up(pid) if pid > 0 else None
        if has_ended(pidfd):
            os.close(pidfd)
            raise Problem(403, "Unknown caller", "The process that opened this connection has ended.")
        gids = frozenset((gid, *_groups(connection)))
        administrator = uid in (0, os.geteuid()) or (admin_gid is not None and admin_gid in gids)
        # The pidfd shows that the process still lives, so the pid has not been given to another one meanwhile.
        return cls(uid, record.id if record is not None else None, pidfd, administrator, gids)

    @property
    def who(self) -> Who:
        """Its user, for the queues."""
        return Who(self.uid, self.gids, self.administrator)

    @property
    def user(self) -> tuple[int, str]:
        """Its user, for the bounds of each."""
        return self.uid, self.tenant

    def close(self) -> None:
        """Give the pidfd back."""
        os.close(self.pidfd)

    def require(self, workload: Workload) -> None:
        """Raises Problem unless it may act on `workload`."""
        if not self.administrator and not self.owns(workload):
            whose = f"The workload {workload.id} belongs to another user"
            raise Problem(403, "Not your workload", f"{whose}: only its user and administrators may act on it.")

    def owns(self, workload: Workload) -> bool:
        """Whether the workload is its own user's."""
        return (workload.spec.owner, workload.spec.tenant) == (self.uid, self.tenant)

    def role(self, workload: Workload) -> str:
        """Who acts on `workload`, for its user to read."""
        return "its user" if self.owns(workload) else "an administrator"

    def require_administrator(self) -> None:
        """Raises Problem unless it may act on the node itself."""
        if not self.administrator:
            detail = "Only administrators may do that: root, the daemon's own user, and the group set as admin_group."
            raise Problem(403, "Not an administrator", detail)


def _groups(connection: socket.socket) -> tuple[int, ...]:
    """The peer's supplementary groups when it connected; none where the kernel does not tell them."""
    for most in (_FEW_GROUPS, _MOST_GROUPS):
        try:
            groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, most * _GID_BYTES)
        except OSError as error:
            if error.errno == errno.ERANGE:
                continue
            if error.errno == errno.ENOPROTOOPT:
                return ()
            raise
        return struct.unpack(f"{len(groups) // _GID_BYTES}I", groups)
    return ()


def _open_pidfd(connection: socket.socket, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL, errno.ENODATA):
            raise ProcessLookupError from error
        if error.errno != errno.ENOPROTOOPT:
            raise
    return _pidfd_of(pid)


def _pidfd_of(pid: int) -> int:
    """Raises ProcessLookupError, also where only a thread has that number by now."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            raise ProcessLookupError from error
        raise


def has_ended(pidfd: int) -> bool:
    """Whether the process behind `pidfd` has ended (perhaps without having been waited for)."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


class Leases:
    """Which process looks after which workload. A lease ends when its pidfd says so, and never by silence."""

    def __init__(self, ended: Callable[[WorkloadId], None]) -> None:
        """`ended` is called once, in the loop, when the holder of a workload's lease has ended."""
        self._ended = ended
        self._pidfds: dict[WorkloadId, int] = {}
        self._holders: dict[WorkloadId, ProcessId | None] = {}

    def take(self, workload: WorkloadId, peer: Peer) -> None:
        """`peer` looks after `workload` from now on."""
        self._hold(workload, os.dup(peer.pidfd), peer.process)

    def holder(self, workload: WorkloadId) -> ProcessId | None:
        """Who looks after `workload`; `None`: nobody, or a process in a pid namespace that cannot be seen from here."""
        return self._holders.get(workload)

    def retake(self, workload: WorkloadId, holder: ProcessId) -> bool:
        """After a restart: `holder` goes on looking after `workload`, if it still lives."""
        try:
            pidfd = _pidfd_of(holder.pid)
        except ProcessLookupError:
            return False
        record = look_up(holder.pid)
        if record is None or record.id != holder or has_ended(pidfd):
            os.close(pidfd)
            return False
        self._hold(workload, pidfd, holder)
        return True

    def _hold(self, workload: WorkloadId, pidfd: int, holder: ProcessId | None) -> None:
        self.drop(workload)
        self._pidfds[workload] = pidfd
        self._holders[workload] = holder
        asyncio.get_running_loop().add_reader(pidfd, self._on_end, workload)

    def drop(self, workload: WorkloadId) -> None:
        """Nobody needs to look after `workload` any more. Idempotent."""
        pidfd = self._pidfds.pop(workload, None)
        self._holders.pop(workload, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        """Drop all leases; nothing is ended."""
        for workload in tuple(self._pidfds):
            self.drop(workload)

    def _on_end(self, workload: WorkloadId) -> None:
        self.drop(workload)
        self._ended(workload)
