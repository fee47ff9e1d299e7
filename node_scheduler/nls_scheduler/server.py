"""The daemon as a process: its lock, its socket, its signals and its end."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from nls_scheduler.api import application
from nls_scheduler.clock import boottime_s
from nls_scheduler.daemon import Daemon
from nls_scheduler.locate import SYSTEM_SOCKET
from nls_scheduler.protocol import MAX_BODY_BYTES

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nls_scheduler.daemon import DaemonSettings
    from nls_scheduler.ports import Driver

IDLE_TIMEOUT_S: Final = 300.0
BODY_TIMEOUT_S: Final = 30.0
# The handlers refuse bodies above MAX_BODY_BYTES with a problem object; beyond this tornado hangs up.
READ_LIMIT_BYTES: Final = 8 * MAX_BODY_BYTES
log = logging.getLogger(__name__)


class AlreadyRunning(Exception):  # noqa: N818 - says what happened
    """Another daemon serves this socket."""


@contextmanager
def sole_owner(path: Path) -> Iterator[None]:
    """Hold the socket's lock, so that one daemon at most serves it. Raises AlreadyRunning, OSError."""
    lock_path = path.with_name(path.name + ".lock")
    lock = _lock(lock_path)
    if lock is None:
        raise AlreadyRunning(f"A daemon already serves {path}: `nls status` shows it; stop it first, or use --socket.")
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
    idle_exit_s: float | None,
    ready: Callable[[], None],
) -> None:
    """Serve `path` until SIGTERM, SIGINT or SIGHUP, or until idle. `ready` is called once the socket answers.

    Raises AlreadyRunning, and what `make_driver` raises; OSError when the socket cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with sole_owner(path):
        asyncio.run(_serve(path, make_driver(), settings, idle_exit_s, ready))


async def _serve(
    path: Path, driver: Driver, settings: DaemonSettings, idle_exit_s: float | None, ready: Callable[[], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    daemon = Daemon(driver, settings)
    server = HTTPServer(
        application(daemon),
        max_body_size=READ_LIMIT_BYTES,
        idle_connection_timeout=IDLE_TIMEOUT_S,
        body_timeout=BODY_TIMEOUT_S,
    )
    await daemon.start()
    listening = _listen(path)
    try:
        server.add_socket(listening)
        log.info("serving %s", path)
        ready()
        await _until_the_end(daemon, stopped, idle_exit_s)
    finally:
        server.stop()
        _remove(path)
        await daemon.close()
        await server.close_all_connections()
        log.info("ended")


def _listen(path: Path) -> socket.socket:
    """The socket; one that a killed daemon left behind is replaced. Many users share the system daemon's."""
    return bind_unix_socket(str(path), mode=0o666 if path == SYSTEM_SOCKET else 0o600, backlog=1024)


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
