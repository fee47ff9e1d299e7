"""The daemon as a process: its lock, its socket, its signals and its end."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tornado.netutil import bind_unix_socket

from nls_scheduler.daemon import state_folder
from nls_scheduler.daemon.daemon import Daemon
from nls_scheduler.daemon.http.api import application
from nls_scheduler.daemon.http.connections import BoundedServer, affordable
from nls_scheduler.daemon.http.observed import Observed
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.units.clock import boottime_s
from nls_scheduler.wire.errors import Problem
from nls_scheduler.wire.locate import SYSTEM_SOCKET
from nls_scheduler.wire.protocol import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from nls_scheduler.daemon.cluster import Cluster
    from nls_scheduler.daemon.daemon import DaemonSettings
    from nls_scheduler.daemon.ports import Driver

# The handlers refuse bodies above MAX_BODY_BYTES with a problem object; beyond this tornado hangs up.
READ_LIMIT_BYTES: Final = 64 * MAX_BODY_BYTES
HEADER_LIMIT_BYTES: Final = 32 * 1024
log = logging.getLogger(__name__)


class AlreadyRunning(Exception):  # noqa: N818 - says what happened
    """Another daemon serves this socket, or keeps its journal there."""


@contextmanager
def sole_owner(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock of a file, so that one daemon at most has it. Raises AlreadyRunning with `refusal`; OSError."""
    lock_path = path.with_name(path.name + ".lock")
    lock = _lock(lock_path)
    if lock is None:
        raise AlreadyRunning(refusal)
    try:
        yield
    finally:
        # Removed while it is still held: whoever waits for it sees another file at its path and opens that one.
        with suppress(FileNotFoundError):
            lock_path.unlink()
        os.close(lock)


def _lock(lock_path: Path) -> int | None:
    while True:
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if lock_path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def serve(
    path: Path,
    make_driver: Callable[[], Driver],
    settings: DaemonSettings,
    journal_path: Path,
    idle_exit_s: float | None,
    ready: Callable[[], None],
    reload: Callable[[Mapping[str, Any] | None], DaemonSettings],
    cluster: Cluster | None = None,
) -> None:
    """Serve `path` until SIGTERM or SIGINT, or until idle. `ready` is called once the socket answers.

    At SIGHUP `reload` reads the settings again; it raises ValueError for those that cannot be used, and the old stay.
    Its argument is what the `cluster` sets, if anything.

    Raises AlreadyRunning, and what `make_driver` raises; ValueError for a folder where others may have written the
    journal; OSError when the socket cannot be made.
    """
    # Everybody must reach the system daemon's socket; nobody but its user another's.
    everybody = path == SYSTEM_SOCKET or cluster is not None
    path.parent.mkdir(mode=0o755 if everybody else 0o700, parents=True, exist_ok=True)
    served = f"A daemon already serves {path}: `nls status` shows it; stop it first, or use --socket."
    kept = f"Another daemon keeps its journal in {journal_path.parent}: stop it first, or use --state-dir."
    with sole_owner(path, served), ExitStack() as locks:
        with suppress(OSError):  # where no lock can be made no journal can: that one tells, and goes on in memory
            journal_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            state_folder.check(journal_path.parent)
            locks.enter_context(sole_owner(journal_path, kept))
        daemon = Daemon(make_driver(), settings, Journal(journal_path), cluster, reload)
        asyncio.run(_serve(path, daemon, settings, idle_exit_s, ready, reload, everybody=everybody))


async def _serve(
    path: Path,
    daemon: Daemon,
    settings: DaemonSettings,
    idle_exit_s: float | None,
    ready: Callable[[], None],
    reload: Callable[[Mapping[str, Any] | None], DaemonSettings],
    *,
    everybody: bool,
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, daemon, reload)
    server = BoundedServer(
        application(daemon, settings.client_timeout_s),
        most_connections=affordable(settings.max_connections),
        max_body_size=READ_LIMIT_BYTES,
        max_header_size=HEADER_LIMIT_BYTES,
        idle_connection_timeout=settings.client_timeout_s,
        body_timeout=settings.client_timeout_s,
    )
    observed = Observed(daemon)
    await daemon.start()
    listening = _listen(path, everybody=everybody)
    try:
        server.add_socket(listening)
        log.info("serving %s", path)
        if settings.observe_address:
            observed.start_on(settings.observe_address)
        _notify_systemd("READY=1")
        ready()
        await _until_the_end(daemon, stopped, idle_exit_s)
    finally:
        _notify_systemd("STOPPING=1")
        server.stop()
        observed.stop()
        _remove(path)
        await daemon.close()
        await server.close_all_connections()
        await observed.close_all_connections()
        log.info("ended")


def _listen(path: Path, *, everybody: bool) -> socket.socket:
    """The socket; one that a killed daemon left behind is replaced. Many users share the system daemon's."""
    return bind_unix_socket(str(path), mode=0o666 if everybody else 0o600, backlog=1024)


def _reload(daemon: Daemon, reload: Callable[[Mapping[str, Any] | None], DaemonSettings]) -> None:
    """SIGHUP: other settings, or the old ones and the reason in the log and the status."""
    try:
        daemon.reconfigure(reload(daemon.cluster_values))
    except (ValueError, Problem) as error:
        daemon.refused_configuration = f"The new configuration is refused and the old one stays: {error}"
        log.error("%s", daemon.refused_configuration)  # noqa: TRY400 - the sentence says it all
    else:
        log.info("the configuration has been read again")


def _notify_systemd(message: str) -> None:
    """As sd_notify(3), where systemd started us with Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify, suppress(OSError):
        # Not being able to tell is no reason not to serve: systemd itself then reports the time-out.
        notify.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


async def _until_the_end(daemon: Daemon, stopped: asyncio.Event, idle_exit_s: float | None) -> None:
    while True:
        left_s = None
        if idle_exit_s is not None:
            left_s = idle_exit_s if not daemon.idle else daemon.active_at + idle_exit_s - boottime_s()
            if left_s <= 0:
                log.info("nobody has used this daemon for %g s", idle_exit_s)
                return
        try:
            async with asyncio.timeout(left_s):
                await stopped.wait()
            return
        except TimeoutError:
            continue
