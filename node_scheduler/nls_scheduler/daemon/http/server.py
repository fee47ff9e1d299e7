"""The daemon as a process: its lock, its socket, its signals and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.daemon import state_folder
from nls_scheduler.daemon.daemon import Daemon
from nls_scheduler.daemon.http.api import application
from nls_scheduler.daemon.http.connections import BoundedServer, affordable
from nls_scheduler.daemon.http.listening import Listening
from nls_scheduler.daemon.http.observed import Observed
from nls_scheduler.daemon.http.ownership import AlreadyRunning, Ownership
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.processes.whose_files import make_private
from nls_scheduler.units.clock import awake_s
from nls_scheduler.wire.errors import Problem
from nls_scheduler.wire.holder import holder_of, lock_of
from nls_scheduler.wire.locate import SYSTEM_SOCKET
from nls_scheduler.wire.protocol import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from nls_scheduler.daemon.cluster import Cluster
    from nls_scheduler.daemon.ports import Driver
    from nls_scheduler.daemon.settings import DaemonSettings

# The handlers refuse bodies above MAX_BODY_BYTES with a problem object; beyond this tornado hangs up.
READ_LIMIT_BYTES: Final = 64 * MAX_BODY_BYTES
HEADER_LIMIT_BYTES: Final = 32 * 1024
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
LOOK_S: Final = 1.0
"""How often the daemon looks whether its socket, its locks and its key are still there."""
MANY_OBJECTS: Final = 10_000
"""As many new objects are looked through for garbage at the next look: a few milliseconds."""
LEFT_ALONE_S: Final = 60.0
"""So long garbage is kept where there is less of it."""
log = logging.getLogger(__name__)


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
    # Until it serves it ends as if it were killed: a driver that hangs would keep it from anything else.
    for number in _ENDS:
        signal.signal(number, signal.SIG_DFL)
    # Everybody must reach the system daemon's socket; nobody but its user another's.
    listening = Listening(path, everybody=path == SYSTEM_SOCKET or cluster is not None)
    listening.make_directory()
    kept = f"Another daemon keeps its journal in {journal_path.parent}: end it with `nls down`, or use --state-dir."
    with ExitStack() as held:
        owned = [held.enter_context(Ownership(lock_of(path), lambda: _served(path)))]
        with suppress(OSError):  # where no lock can be made no journal can: that one tells, and goes on in memory
            make_private(journal_path.parent)
            state_folder.check(journal_path.parent)
            # Nobody else can lock the file; the folder's lock stays where what is in it is removed.
            places = (journal_path.with_name(state_folder.LOCK_NAME), journal_path.parent)
            owned.extend(held.enter_context(Ownership(place, lambda: kept)) for place in places)
        daemon = Daemon(make_driver(), settings, Journal(journal_path), cluster, reload)
        asyncio.run(_serve(listening, owned, daemon, settings, idle_exit_s, ready, reload))


def _served(path: Path) -> str:
    """Why no second daemon serves `path`."""
    holder = holder_of(path)
    if holder is not None and (holder.stopped or not path.exists()):
        return f"A daemon already serves {path}: {holder}."
    return f"A daemon already serves {path}: `nls status` shows it; end it with `nls down`, or use --socket."


async def _serve(
    listening: Listening,
    owned: Sequence[Ownership],
    daemon: Daemon,
    settings: DaemonSettings,
    idle_exit_s: float | None,
    ready: Callable[[], None],
    reload: Callable[[Mapping[str, Any] | None], DaemonSettings],
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, _reload, daemon, reload, settings)
    most = affordable(settings.max_connections)
    if most < settings.max_connections:
        of_files = f"{most} connections at most instead of {settings.max_connections}: it may open too few files"
        log.warning("%s (ulimit -n; LimitNOFILE= of a systemd unit)", of_files)
    server = BoundedServer(
        application(daemon, settings.client_timeout_s),
        most_connections=most,
        most_per_user=settings.bounds.connections,
        tenant_of=daemon.tenant_of,
        max_body_size=READ_LIMIT_BYTES,
        max_header_size=HEADER_LIMIT_BYTES,
        idle_connection_timeout=settings.client_timeout_s,
        body_timeout=settings.client_timeout_s,
    )
    observed = Observed(daemon)
    await daemon.start()
    for number in _ENDS:
        loop.add_signal_handler(number, stopped.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))  # `nls up` has held it back until now
    # What is loaded and recovered is no garbage.
    gc.collect()
    gc.freeze()
    listening.open(server)
    keeping = asyncio.create_task(_keep(listening, server, owned, daemon))
    keeping.add_done_callback(lambda _: stopped.set())
    collecting = asyncio.create_task(_collect_garbage())
    try:
        log.info("serving %s", listening)
        if settings.observe_address:
            observed.start_on(settings.observe_address)
        _notify_systemd("READY=1")
        ready()
        await _until_the_end(daemon, stopped, idle_exit_s)
    finally:
        _notify_systemd("STOPPING=1")
        server.stop()
        observed.stop()
        listening.remove()
        keeping.cancel()
        collecting.cancel()
        await daemon.close()
        await server.close_all_connections()
        await observed.close_all_connections()
        log.info("ended")
        with suppress(asyncio.CancelledError):
            await collecting
        with suppress(asyncio.CancelledError):
            await keeping


async def _collect_garbage() -> None:
    """Between steps, and not in one of them, until this is cancelled: there it would hold up one in a hundred."""
    gc.disable()
    since_s = 0.0
    try:
        while True:
            await asyncio.sleep(LOOK_S)
            since_s += LOOK_S
            if gc.get_count()[0] > MANY_OBJECTS or since_s >= LEFT_ALONE_S:
                gc.collect()
                since_s = 0.0
    finally:
        gc.enable()


async def _keep(listening: Listening, server: BoundedServer, owned: Sequence[Ownership], daemon: Daemon) -> None:
    """Keep what only one daemon may have, and the key of the secrets, until it is cancelled.

    Raises AlreadyRunning once another daemon has it: two would share the same GPUs out, and the clients of the one that
    ends come to the other.
    """
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            listening.make_directory()
            listening.require_ours()
            for each in owned:
                each.keep()
        except AlreadyRunning as error:
            log.error("a lock was removed and another daemon has it now, so this one ends: %s", error)  # noqa: TRY400 - the sentence says it all
            raise
        except OSError as error:
            listening.tell(f"what was removed cannot be made again: {error}")
        else:
            listening.look(server)
        daemon.keep_key()


def _reload(
    daemon: Daemon, reload: Callable[[Mapping[str, Any] | None], DaemonSettings], at_start: DaemonSettings
) -> None:
    """SIGHUP: other settings, or the old ones and the reason in the log and the status."""
    try:
        settings = reload(daemon.cluster_values)
        daemon.reconfigure(settings)
    except (ValueError, Problem) as error:
        why = str(error).rstrip(".")
        daemon.refused_configuration = f"The new configuration is refused and the old one stays: {why}."
        log.error("%s", daemon.refused_configuration)  # noqa: TRY400 - the sentence says it all
    else:
        log.info("the configuration has been read again")
        later = settings.read_at_start.items() - at_start.read_at_start.items()
        if later:
            names = ", ".join(sorted(name for name, _ in later))
            log.warning("%s: read at the start only, so what it says now holds from the next start on", names)


def _notify_systemd(message: str) -> None:
    """As sd_notify(3), where systemd started us with Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify, suppress(OSError):
        # Not being able to tell is no reason not to serve: systemd itself then reports the time-out.
        notify.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)


async def _until_the_end(daemon: Daemon, stopped: asyncio.Event, idle_exit_s: float | None) -> None:
    while True:
        left_s = None
        if idle_exit_s is not None:
            left_s = idle_exit_s if not daemon.idle else daemon.active_at + idle_exit_s - awake_s()
            if left_s <= 0:
                log.info("nobody has used this daemon for %g s", idle_exit_s)
                return
        try:
            async with asyncio.timeout(left_s):
                await stopped.wait()
            return
        except TimeoutError:
            continue
