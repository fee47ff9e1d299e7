"""What stands in the way on this machine, for `nls doctor` and `%gpu doctor`: findings that say what to do.

`examine` blocks (up to a few seconds: a driver without persistence mode starts slowly) and changes nothing.
"""

from __future__ import annotations

import errno
import http.client
import importlib.metadata
import importlib.util
import json
import os
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from nls_scheduler import __version__
from nls_scheduler.core.model.topology import Link
from nls_scheduler.daemon.peers import SO_PEERPIDFD
from nls_scheduler.processes.guardian import OOM_SCORE
from nls_scheduler.processes.whose_files import name_of
from nls_scheduler.requests import enforcement
from nls_scheduler.units.counts import counted
from nls_scheduler.units.sizes import format_bytes
from nls_scheduler.wire import locate, trust
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.holder import holder_of
from nls_scheduler.wire.protocol import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Level = Literal["ok", "warning", "error"]
ANSWER_TIMEOUT_S: Final = 5.0
SMALL_SHM_BYTES: Final = 2**30
_LAST_SERVICE_ACCOUNT: Final = 999
"""`SYS_UID_MAX` of login.defs(5), as distributions have it: above are people."""
_LINKS: Final = {
    Link.NVLINK.value: "NVLink",
    Link.SWITCH.value: "a PCIe switch",
    Link.NUMA.value: "a NUMA node",
    Link.SYSTEM.value: "only the system",
}
_PR_GET_CHILD_SUBREAPER: Final = 37


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what, in a word or two.
        text: what was found.
        advice: what to do about it; `None` when nothing needs to be done.
    """

    check: str
    level: Level
    text: str
    advice: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """For programs."""
        return asdict(self)


def examine(named: Path | None, environ: Mapping[str, str]) -> list[Finding]:
    """All findings. `named`: the socket as given on the command line; `environ`: as in `os.environ`."""
    path, findings = _socket(named, environ)
    status: dict[str, Any] | None = None
    if path is not None:
        status, found = _daemon(path)
        findings += [found, *(permissions(path) if status is not None else ())]
        if status is not None:
            findings += topology(status["gpus"])
            findings += standing_cells(status["gpus"], environ, simulated=bool(status["simulated"]))
    if path != locate.SYSTEM_SOCKET:  # whom that one serves never starts a daemon
        findings += runtime_directory(environ)
    findings += driver(simulated=status is not None and bool(status["simulated"]))
    findings += libraries()
    findings += limits()
    findings += shared_memory(Path("/dev/shm"))  # noqa: S108 - looked at, not written to
    findings += kernel(environ)
    findings += out_of_memory(Path(OOM_SCORE))
    findings += lab_extension(_lab_extension_folders())
    findings += autoload([Path(sys.prefix) / "etc", Path("/usr/local/etc"), Path("/etc")], _ipython_directory(environ))
    return findings


def _socket(named: Path | None, environ: Mapping[str, str]) -> tuple[Path | None, list[Finding]]:
    """The socket of the daemon that a client would use, if one answers."""
    variable = environ.get(locate.SOCKET_VARIABLE)
    wanted = named or (Path(variable) if variable else None)
    try:
        candidates = [locate.checked(wanted)] if wanted else locate.default_places()
        path = next((path for path in candidates if locate.answers(path)), None)
    except DaemonUnreachable as error:
        return None, [Finding("socket", "error", str(error), "correct the path or the rights of the socket")]
    if path is not None:
        return path, [Finding("socket", "ok", f"a daemon listens at {path}")]
    for candidate in candidates:
        if (holder := holder_of(candidate)) is not None:
            text = f"the daemon at {candidate} does not answer: {holder}"
            return None, [Finding("socket", "error", text, "look again in a moment; its log tells more")]
    away = locate.silent(locate.SYSTEM_SOCKET, "have its administrator remove that socket")
    if not wanted and away.may_come:
        return None, [Finding("socket", "error", str(away), "clients wait for it, and start none of their own")]
    places = " or ".join(map(str, candidates))
    if wanted:
        return None, [Finding("socket", "error", f"no daemon answers at {places}", f"nls up --socket {wanted}")]
    try:
        advice = locate.how_one_starts()
    except locate.NoHome as error:
        return None, [Finding("socket", "error", f"no daemon answers at {places}", str(error))]
    level: Level = "warning" if advice == locate.STARTS_BY_ITSELF else "error"
    return None, [Finding("socket", level, f"no daemon answers at {places}", advice)]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("nls", timeout=ANSWER_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _daemon(path: Path) -> tuple[dict[str, Any] | None, Finding]:
    """Its status, where that can be understood."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/v1/status")
        answer = connection.getresponse()
        status = json.loads(answer.read())
        told, version = status["protocol"], status["version"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        if (holder := holder_of(path)) is not None and holder.stopped:
            return None, Finding("daemon", "error", f"the daemon at {path} does not answer: {holder}")
        text = f"what answers at {path} is no daemon of ours, or it hangs: {type(error).__name__}: {error}"
        return None, Finding("daemon", "error", text, "see its log, and start it again")
    finally:
        connection.close()
    if told != PROTOCOL_VERSION:
        text = (
            f"the daemon speaks protocol {told} (nls {version}), this installation {PROTOCOL_VERSION} ({__version__})"
        )
        return None, Finding("daemon", "error", text, "install the same version of nls-jupyter on both sides")
    if version != __version__:
        text = f"the daemon is nls {version}, this installation {__version__}: they understand each other"
        return status, Finding("daemon", "warning", text, "start the daemon again to have the same version everywhere")
    if status["message"]:
        return status, Finding("daemon", "warning", f"it says: {status['message']}", "see `nls status`")
    gpus = counted(len(status["gpus"]), "simulated GPU" if status["simulated"] else "GPU")
    return status, Finding("daemon", "ok", f"nls {version}, protocol {told}, {gpus}")


def topology(gpus: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """How the Gpus of the daemon's status are connected, by which those of one command are chosen; of one, nothing."""
    if len(gpus) < 2:
        return []
    index = {gpu["uuid"]: gpu["index"] for gpu in gpus}
    pairs: dict[str, set[tuple[int, int]]] = {}
    for gpu in gpus:
        for uuid, link in gpu["links"].items():
            if uuid in index:
                one, other = sorted((gpu["index"], index[uuid]))
                pairs.setdefault(link, set()).add((one, other))
    told = [
        f"{name} joins {', '.join(f'{one}-{other}' for one, other in sorted(pairs[link]))}"
        for link, name in _LINKS.items()
        if link in pairs
    ]
    if not told:
        text = "nobody says how the GPUs are connected: commands with several get the fullest that have room"
        return [Finding("topology", "ok", text)]
    return [Finding("topology", "ok", "; ".join(told))]


def standing_cells(gpus: Sequence[Mapping[str, Any]], environ: Mapping[str, str], *, simulated: bool) -> list[Finding]:
    """Whether running cells can stand still instead of being interrupted, and on which Gpus of the status they may."""
    from nls_scheduler.drivers import checkpoint_trial, nvml_survey
    from nls_scheduler.drivers.cuda_checkpoints import why_none_can_be

    may = [str(gpu["index"]) for gpu in gpus if gpu.get("freezes")]
    told = "on" if len(may) == len(gpus) else f"on for GPU {', '.join(may)}" if may else "off"
    switch = f"freeze_cells is {told}" if gpus else "there is no GPU"
    why_not = None if simulated else why_none_can_be(nvml_survey.driver_version(), environ)
    if why_not is not None:
        text = f"running cells cannot stand still here: {why_not} ({switch})"
        advice = "they are interrupted instead; it takes a driver from 570 on, and cuda-core (extras cuda12 and cuda13)"
        return [Finding("standing cells", "warning" if may else "ok", text, advice if may else None)]
    tried = "on simulated GPUs" if simulated else "by a trial on this driver"
    if not simulated and checkpoint_trial.known() is None:
        tried = "as far as is known: the first notebook tries it on this driver where freeze_cells is on"
    rest = "memory that others than PyTorch, CuPy and Numba share between processes only the driver knows of"
    return [Finding("standing cells", "ok", f"running cells can stand still here, {tried} ({switch}); {rest}")]


def permissions(path: Path) -> list[Finding]:
    """Whether somebody else could put a socket of their own in the place of the daemon's.

    To an account of a service, as systemd makes one for the system daemon, root alone has given its directory. Whom an
    administrator names in NLS_DAEMON_UID may.
    """
    place, entry = path.parent.stat(), path.stat()
    trusted = {0, os.geteuid(), *trust.named()}
    if place.st_uid <= _LAST_SERVICE_ACCOUNT and path.parent.resolve().parent.stat().st_uid == 0:
        trusted.add(place.st_uid)
    sticky = bool(place.st_mode & stat.S_ISVTX)
    if not sticky and (place.st_uid not in trusted or place.st_mode & stat.S_IWOTH):
        mode = stat.filemode(place.st_mode)
        text = f"others can replace the socket in {path.parent} (owner {account(place.st_uid)}, {mode})"
        return [Finding("permissions", "error", text, f"make {path.parent} a directory of root's or yours, mode 0755")]
    if entry.st_uid not in trusted:
        text = f"the daemon at {path} is of user {account(entry.st_uid)}, who decides over your GPU processes"
        return [Finding("permissions", "error", text, "use the system daemon, or your own: unset NLS_SOCKET")]
    return [Finding("permissions", "ok", f"{path} is {stat.filemode(entry.st_mode)} of user {account(entry.st_uid)}")]


def account(uid: int) -> str:
    """Whose number that is, for root and accounts of services: what people are called is in no report."""
    name = name_of(uid) if uid <= _LAST_SERVICE_ACCOUNT else None
    return str(uid) if name is None else f"{name} ({uid})"


def runtime_directory(environ: Mapping[str, str]) -> list[Finding]:
    """Where a per-user daemon's socket goes."""
    directory = environ.get("XDG_RUNTIME_DIR")
    if not directory:
        text = "XDG_RUNTIME_DIR is not set: a per-user daemon's socket goes to Jupyter's runtime directory"
        advice = "fine on one machine; with a home on a network file system, set it to a local directory of mode 0700"
        return [Finding("runtime directory", "warning", text, advice)]
    if (why := locate.why_not_used(directory)) is not None:
        text = f"XDG_RUNTIME_DIR={directory} {why}: Jupyter's runtime directory is used instead"
        return [Finding("runtime directory", "warning", text, "create it with mode 0700, or log in through PAM")]
    return [Finding("runtime directory", "ok", f"XDG_RUNTIME_DIR={directory}")]


def driver(*, simulated: bool) -> list[Finding]:
    """The NVIDIA driver through NVML, and persistence mode."""
    from nls_scheduler.drivers.nvml_survey import driver_version, survey

    try:
        gpus = survey()
    except OSError as error:
        if simulated:
            return [Finding("driver", "ok", "none is needed: the GPUs are simulated")]
        advice = "to try it out without a GPU: nls up --simulate 2x16GiB"
        return [Finding("driver", "error", str(error), advice)]
    version = driver_version() or "unknown"
    findings = [Finding("driver", "ok", f"NVIDIA driver {version}, {counted(len(gpus), 'GPU')}")]
    if lost := [str(index) for index, gpu in enumerate(gpus) if gpu.name is None]:
        text = f"GPU {', '.join(lost)} does not answer the driver any more"
        advice = "`dmesg | grep -i xid` says why; it is back after a reset or a reboot"
        findings.append(Finding("driver", "error", text, advice))
    if unsized := [f"{index} ({gpu.name})" for index, gpu in enumerate(gpus) if gpu.name and not gpu.has_memory]:
        text = f"the driver tells no memory of GPU {', '.join(unsized)}: it is not served"
        advice = "GPUs without memory of their own (DGX Spark, Jetson) cannot be shared by nls"
        findings.append(Finding("driver", "error", text, advice))
    if closed := [str(index) for index, gpu in enumerate(gpus) if not gpu.is_shareable]:
        text = f"the compute mode of GPU {', '.join(closed)} keeps a second process out that does not come through MPS"
        findings.append(Finding("driver", "warning", text, f"`nvidia-smi -i {','.join(closed)} -c DEFAULT` as root"))
    slow = [str(index) for index, gpu in enumerate(gpus) if gpu.persistent is False]
    if slow:
        text = f"persistence mode is off on GPU {', '.join(slow)}: processes start slowly, in-place suspends can fail"
        advice = "`nvidia-smi -pm 1` as root, or enable nvidia-persistenced"
        findings.append(Finding("persistence mode", "warning", text, advice))
    elif gpus:
        told = "on" if all(gpu.persistent for gpu in gpus if gpu.name) else "not told for every GPU"
        findings.append(Finding("persistence mode", "ok", told))
    return findings


def libraries() -> list[Finding]:
    """What of Python's side is installed."""
    findings = []
    nvml = _version("nvidia-ml-py")
    if nvml is None:
        text = "nvidia-ml-py is not installed: no GPU can be seen"
        findings.append(Finding("libraries", "error", text, "pip install nvidia-ml-py"))
    if _version("pynvml") is not None:
        text = "the deprecated package pynvml is installed beside nvidia-ml-py, and may overwrite its module"
        findings.append(Finding("libraries", "warning", text, "pip uninstall pynvml, then reinstall nvidia-ml-py"))
    wanted = {name: _version(name) for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy", "cuda-core", "torch")}
    there = [f"{name} {version}" for name, version in {"nvidia-ml-py": nvml, **wanted}.items() if version]
    findings.append(Finding("libraries", "ok", ", ".join(there) or "none"))
    if not any(version for name, version in wanted.items() if name != "cuda-core"):
        text = "neither CuPy nor PyTorch is installed in this environment"
        advice = 'pip install "nls-jupyter[cuda13]" (or [cuda12]) where cells should use the GPU'
        findings.append(Finding("libraries", "warning", text, advice))
    return findings


def limits() -> list[Finding]:
    """What holds each library that is installed to a notebook's limit."""
    there = [row for row in enforcement.TABLE if any(_version(package) for package in row.packages)]
    told = [f"{row.name}: {row.by}; follows {row.follows}" for row in there]
    return [Finding("limits", "ok", f"{text}") for text in told]


def shared_memory(shm: Path) -> list[Finding]:
    """Saved state lives in memfds; libraries of the user's use /dev/shm."""
    try:
        os.close(os.memfd_create("nls-doctor", os.MFD_CLOEXEC))
    except OSError as error:
        advice = "run a kernel of 3.17 or newer, and allow memfd_create in the container's seccomp profile"
        return [Finding("shared memory", "error", f"no memfd, so no saved state: {error}", advice)]
    try:
        space = os.statvfs(shm)
    except OSError as error:
        text = f"{shm} cannot be used: {error}; DataLoader workers need it"
        return [Finding("shared memory", "warning", text, f"mount a tmpfs at {shm}")]
    total_bytes = space.f_frsize * space.f_blocks
    if total_bytes < SMALL_SHM_BYTES:
        text = f"memfd works; {shm} has only {format_bytes(total_bytes)}, which DataLoader workers soon exceed"
        return [
            Finding("shared memory", "warning", text, "start the container with --shm-size=8g, or an emptyDir there")
        ]
    return [Finding("shared memory", "ok", f"memfd works; {shm} has {format_bytes(total_bytes)}")]


def kernel(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Features of Linux that make identities and ends certain."""
    from nls_scheduler.drivers.pids import HOST_PROC_VARIABLE, in_first_namespace
    from nls_scheduler.processes.guardian import set_process_control

    missing = []
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        missing.append("pidfd_open (Linux 5.3)")
    try:
        set_process_control(_PR_GET_CHILD_SUBREAPER, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:  # it knows the question and only minds where the answer should go
            missing.append("PR_SET_CHILD_SUBREAPER (Linux 3.4)")
    if missing:
        text = f"{' and '.join(missing)} cannot be used"
        yield Finding("kernel", "error", text, "a newer kernel, or a seccomp profile that allows it, is needed")
    if not _peer_pidfd():
        text = "SO_PEERPIDFD (Linux 6.5) is missing: callers are known by pid and start time instead"
        yield Finding("kernel", "warning", text, "nothing is lost; a newer kernel closes a race of microseconds")
    elif not missing:
        yield Finding("kernel", "ok", f"{os.uname().release}: pidfd, SO_PEERPIDFD and subreaper work")
    if not in_first_namespace() and not environ.get(HOST_PROC_VARIABLE):
        text = "this is a pid namespace of its own: NVML's pids may mean other processes than ours"
        advice = f"run the daemon with the host's pids, or mount the node's /proc and set {HOST_PROC_VARIABLE}"
        yield Finding("pid namespace", "warning", text, advice)


def out_of_memory(score: Path) -> list[Finding]:
    """Whether a GPU process can make itself the first to go: /proc may be read-only."""
    if os.access(score, os.W_OK):
        return [Finding("out of memory", "ok", "a GPU process goes before its notebook's kernel")]
    text = f"{score} cannot be written: when memory runs out, Linux may end a notebook's kernel before its GPU process"
    advice = "leave /proc writable: in a unit with ReadOnlyPaths=/, ReadWritePaths=/proc"
    return [Finding("out of memory", "warning", text, advice)]


def lab_extension(folders: Sequence[Path]) -> list[Finding]:
    """Whether JupyterLab, where it runs here, has its part of this installation: nothing else says that it lacks it."""
    if not (_version("jupyterlab") or _version("notebook")):
        return []
    found = next((folder for folder in folders if (folder / "nls-jupyter" / "package.json").exists()), None)
    if found is not None:
        return [Finding("JupyterLab", "ok", f"its extension is in {found}")]
    text = "this installation has no extension for JupyterLab, which shows nothing of the GPUs; %gpu and `nls top` do"
    advice = "install a released package, which has it built; or Node 20 or newer first, and then from the clone again"
    return [Finding("JupyterLab", "warning", text, advice)]


def _lab_extension_folders() -> list[Path]:
    from jupyter_core.paths import jupyter_path

    with suppress(RuntimeError):  # this user has no home directory
        return [Path(folder) for folder in jupyter_path("labextensions")]
    return [Path(sys.prefix, "share", "jupyter", "labextensions")]


def autoload(system: list[Path], user: Path) -> list[Finding]:
    """Whether every kernel of this environment has `%gpu`."""
    if importlib.util.find_spec("nls_jupyter") is None:
        text = "nls_jupyter is not installed in this environment: its kernels have no %gpu"
        return [Finding("%gpu", "error", text, "pip install nls-jupyter into the kernel's environment")]
    # The one that an install brings has a name that an administrator's own hardly has: it would be overwritten.
    names = [f"ipython{part}_config.{kind}" for part in ("", "_kernel") for kind in ("json", "py")]
    folders = [*(directory / "ipython" for directory in system), user / "profile_default"]
    files = [folder / name for folder in folders for name in names]
    for file in files:
        with suppress(OSError):
            if b"nls_jupyter" in file.read_bytes():
                return [Finding("%gpu", "ok", f"loaded in every kernel by {file}")]
    advice = (
        f"`%load_ext nls_jupyter` in a notebook, or put c.InteractiveShellApp.extra_extensions.append('nls_jupyter') "
        f"into {files[-1]}"
    )
    return [Finding("%gpu", "warning", "no configuration of IPython loads it by itself", advice)]


def _ipython_directory(environ: Mapping[str, str]) -> Path:
    named = environ.get("IPYTHONDIR")
    return Path(named or os.path.expanduser("~/.ipython"))  # noqa: PTH111 - pathlib raises where nobody's home is known


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _peer_pidfd() -> bool:
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        try:
            os.close(left.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
        except OSError:
            return False
    return True
