"""Where the daemon's socket is, and how a client starts a per-user daemon when none runs. Blocking calls."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from nls_scheduler.processes import debuggers
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE, variable_of, words_of
from nls_scheduler.processes.whose_files import make_private
from nls_scheduler.units.clock import monotonic_s
from nls_scheduler.wire import trust
from nls_scheduler.wire.errors import DaemonUnreachable, out_of_files
from nls_scheduler.wire.holder import Holder, holder_of, locked_by
from nls_scheduler.wire.protocol import VISIBLE_VARIABLE

SOCKET_VARIABLE: Final = "NLS_SOCKET"
SIMULATE_VARIABLE: Final = "NLS_SIMULATE"
SYSTEM_SOCKET: Final = trust.SYSTEM_SOCKET
PATH_LIMIT: Final = 107
IDLE_EXIT_S: Final = 600
BY_ITSELF: Final = ("up", "--background", "--idle-exit", str(IDLE_EXIT_S))
"""How a client starts a daemon that nobody has asked for."""
STARTS_BY_ITSELF: Final = "the first GPU cell or `nls run` starts one; `nls up` does so now"
ELSEWHERE: Final = (
    "set XDG_RUNTIME_DIR, for Jupyter and for `nls`, to a directory of yours that can be written, or NLS_SOCKET to the "
    "socket of a daemon that serves you"
)
"""What helps whom has no place for a daemon."""
START_TIMEOUT_S: Final = 30.0
OTHERS_START_S: Final = 1.0
"""In which another client has mostly started the daemon: until then nothing is said."""
_LOOK_AGAIN_S: Final = 0.05
CONNECT_TIMEOUT_S: Final = 2.0
_LOG_TAIL: Final = 1500
LOG_NAME: Final = "nls.log"
"""Where a daemon that was started in the background goes on telling, beside its socket."""
_LOG_LIMIT: Final = 2**20


class NoHome(DaemonUnreachable):
    """This user has no place for a daemon of their own."""


def per_user_socket() -> Path:
    """The default path of a user's own daemon. Raises NoHome, also where it is too long for a socket."""
    try:
        return checked(Path(_runtime_directory()) / "nls" / "nls.sock")
    except RuntimeError as error:  # as pathlib tells it
        told = f"No daemon is running here, and this user has no home directory for one: set HOME; or {ELSEWHERE}."
        raise NoHome(told) from error
    except DaemonUnreachable as error:
        raise NoHome(str(error)) from None


def _runtime_directory() -> str:
    """Raises RuntimeError for who has no home."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and why_not_used(runtime) is None:
        return runtime
    # Slow to import, and needed only here.
    from jupyter_core.paths import jupyter_runtime_dir

    return jupyter_runtime_dir()


def why_not_used(runtime: str) -> str | None:
    """Why it is no runtime directory of ours, as a predicate. What root makes in a user's is in that one's way."""
    if not os.access(runtime, os.W_OK | os.X_OK):
        return "cannot be written"
    return None if Path(runtime).stat().st_uid in (0, os.geteuid()) else "is another user's"


def why_not_at(path: Path) -> str | None:
    """Why this user can start no daemon at `path`, as a clause; `None`: nothing is in the way, as far as that shows."""
    folder = next(parent for parent in path.parents if os.access(parent, os.F_OK))
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"


def default_places() -> list[Path]:
    """Where daemons are looked for: the node's, and this user's own, for whom there is a place."""
    try:
        return [SYSTEM_SOCKET, per_user_socket()]
    except NoHome:
        return [SYSTEM_SOCKET]


def checked(path: Path) -> Path:
    """`path` made absolute. Raises DaemonUnreachable where the kernel could not make a socket of it."""
    try:
        path = path.absolute()
    except FileNotFoundError:
        raise DaemonUnreachable(
            f"{path} is nowhere, as the current directory was removed: name a socket's whole path with --socket or "
            "NLS_SOCKET."
        ) from None
    if path.name in ("", ".."):
        raise DaemonUnreachable(f"{path} is no path for a socket: name another one with --socket or NLS_SOCKET.")
    length = len(os.fsencode(path))
    if length > PATH_LIMIT:
        raise DaemonUnreachable(
            f"The socket path {path} has {length} bytes, and Linux allows {PATH_LIMIT}: "
            "name a shorter one with --socket or NLS_SOCKET, or set XDG_RUNTIME_DIR to a shorter directory."
        )
    return path


def find(named: Path | None = None) -> Path:
    """The socket of a daemon that answers: `named` or `$NLS_SOCKET` alone if given, else the default places.

    Raises DaemonUnreachable with what to do. Never starts a daemon.
    """
    named = named or _named_in_environment()
    if named is not None:
        if not answers(checked(named)):
            raise silent(checked(named), f"start one with `nls up --socket {named}`")
        return checked(named)
    places = default_places()
    for path in places:
        if answers(path):
            return path
    for path in places:
        if (away := silent(path, "start one with `nls up`")).may_come:
            raise away
    raise DaemonUnreachable(f"No daemon is running on this node: {how_one_starts()}.")


def how_one_starts() -> str:
    """What to do for a daemon where none runs. Raises NoHome."""
    path = per_user_socket()
    why = why_not_at(path)
    return STARTS_BY_ITSELF if why is None else f"none can be started at {path}, as {why}; {ELSEWHERE}"


def find_or_start(named: Path | None = None) -> Path:
    """`find`; with no socket named and no daemon running, starts this user's own and waits until it answers.

    Raises DaemonUnreachable with what to do, the end of the new daemon's log included; one that may come where another
    client is starting it.
    """
    if named is not None or _named_in_environment() is not None:
        return find(named)
    for candidate in default_places():
        if answers(candidate) and (not _simulates_otherwise(candidate) or _answers_in_its_place(candidate)):
            return candidate
    # None is started beside one that comes back. A socket that this user's own daemon left is no reason to wait.
    advice = "have its administrator remove that socket, or start one of your own with `nls up`"
    if (away := silent(SYSTEM_SOCKET, advice)).may_come:
        raise away
    path = per_user_socket()
    _start_unless_there(path)
    return path


def has_come_unasked(holder: Holder) -> bool:
    """Whether the daemon that holds a socket's lock is one that a client has started by itself."""
    return b"\0".join(map(str.encode, BY_ITSELF)) in b"\0".join(words_of(holder.pid))


def _simulates_otherwise(path: Path) -> bool:
    """Whether a daemon has come unasked there that simulates nothing, or other Gpus than this client is told to use."""
    wanted = os.environ.get(SIMULATE_VARIABLE)
    holder = holder_of(path) if wanted else None
    if not wanted or holder is None or holder.stopped or not has_come_unasked(holder):
        return False
    return os.fsencode(wanted) not in words_of(holder.pid)


def _answers_in_its_place(path: Path) -> bool:
    """Start one that takes its place, as `nls up` does where nobody uses it; else it stays. Whether either answers."""
    with suppress(DaemonUnreachable, OSError), path.with_name("start.lock").open("w") as lock:
        if _taken(lock):
            _start(path)
    return answers(path)


def start_again(path: Path) -> None:
    """Start such a daemon anew where it was killed: then it has left its socket at `path`, and nobody serves there.

    Nothing where it has ended by itself. Raises DaemonUnreachable as `find_or_start`.
    """
    if path.is_socket():
        _start_unless_there(path)


def _start_unless_there(path: Path) -> None:
    try:
        make_private(path.parent)
        with path.with_name("start.lock").open("w") as lock:
            patience_ends = monotonic_s() + OTHERS_START_S
            while not (ours := _taken(lock)) and not answers(path):
                # Who holds it may be stopped, and this thread cannot be interrupted.
                if monotonic_s() >= patience_ends:
                    raise _being_started(path, Path(lock.name))
                time.sleep(_LOOK_AGAIN_S)
            if ours and not answers(path):
                if holder_of(path) is not None:
                    raise silent(path, "")
                _start(path)
    except OSError as error:
        helps = "" if why_not_at(path) is None else f"; {ELSEWHERE}"
        raise DaemonUnreachable(f"No daemon is running and none can be started at {path}: {error}{helps}.") from error


def answers(path: Path) -> bool:
    """Whether a daemon accepts connections at `path`.

    Raises DaemonUnreachable where we may not connect, cannot, or somebody serves whose daemon is not to be trusted.
    """
    trust.check_place(path)
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        if (unasked := out_of_files(error)) is None:
            raise
        raise unasked from error
    with probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except PermissionError as error:
            raise DaemonUnreachable(f"You may not connect to the daemon at {path}: ask its administrator.") from error
        except BlockingIOError:
            return True  # so many wait for it already that no more can
        except OSError:
            return False
        trust.check_daemon(probe, path)
    return True


def silent(path: Path, advice: str) -> DaemonUnreachable:
    """What to say, and to do by `advice`, where nobody listens at `path`; a daemon may be on its way there."""
    holder = holder_of(path)
    if holder is not None:
        return DaemonUnreachable(f"The daemon at {path} does not answer: {holder}.", may_come=True)
    if not path.is_socket():
        return DaemonUnreachable(f"No daemon answers at {path}: {advice}.")
    left = "its daemon was killed or is being started, as one that ends removes its socket"
    return DaemonUnreachable(f"No daemon answers at {path}: {left}. Where none comes back, {advice}.", may_come=True)


def opened_log(path: Path, *, anew: bool = False) -> BinaryIO:
    """A daemon's log, to write at its end. It tells of all users: only the daemon's reads it. Raises OSError."""
    way = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if anew else 0)
    log = os.fdopen(os.open(path, way, 0o600), "ab")
    os.fchmod(log.fileno(), 0o600)  # one of an earlier version
    return log


def _named_in_environment() -> Path | None:
    named = os.environ.get(SOCKET_VARIABLE)
    return Path(named) if named else None


def _taken(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _being_started(path: Path, lock: Path) -> DaemonUnreachable:
    holder = locked_by(lock)
    awaited = f"{'somebody' if holder is None else f'process {holder.pid}'} starts the daemon at {path}"
    if holder is not None and holder.stopped:
        awaited += f" and is stopped, and `kill -CONT {holder.pid}` has it go on"
    return DaemonUnreachable(f"No daemon answers yet: {awaited}.", may_come=True, awaited=awaited)


def _environment_of_a_daemon() -> dict[str, str]:
    """Ours, without what a daemon has set for our workload: one that seemed to belong to it would be ended with it.

    Nor with the choice of Gpus that a cell has made, which is for its own notebook.
    """
    environment = dict(os.environ)
    environment.pop(VISIBLE_VARIABLE, None)
    if environment.pop(WORKLOAD_VARIABLE, None) is None:
        shown = variable_of(os.getpid(), VISIBLE_VARIABLE)
        environment |= {} if shown is None else {VISIBLE_VARIABLE: shown}
    return environment


def _start(path: Path) -> None:
    """Start a daemon in the background; it returns when the daemon answers. The daemon outlives us."""
    log_path = path.with_name(LOG_NAME)
    too_long = log_path.exists() and log_path.stat().st_size > _LOG_LIMIT
    command = [sys.executable, "-P", "-m", "nls_scheduler", "--socket", str(path), *BY_ITSELF]
    simulate = os.environ.get(SIMULATE_VARIABLE)
    if simulate:
        command += ["--simulate", simulate]
    environment = _environment_of_a_daemon()
    with opened_log(log_path, anew=too_long) as log:
        before = log.tell()
        try:
            with debuggers.not_followed():
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/",
                    timeout=START_TIMEOUT_S, check=False,
                )  # fmt: skip
            failure = None if done.returncode == 0 else f"it ended with code {done.returncode}"
        except subprocess.TimeoutExpired:
            failure = f"it was not ready after {START_TIMEOUT_S:g} s"
    if failure is not None:
        told = log_path.read_bytes()[before:][-_LOG_TAIL:].decode("utf-8", "replace").strip()
        said = f"says:\n{told}" if told else f"says nothing{_where_no_space_is_left(log_path)}."
        raise DaemonUnreachable(
            f"No daemon was running, and a new one did not start: {failure}. Its log {log_path} {said}"
        )


def _where_no_space_is_left(file: Path) -> str:
    disk = os.statvfs(file)
    full = min(disk.f_bavail, disk.f_favail if disk.f_files else 1) == 0
    return f", as no space is left in {file.parent}" if full else ""
