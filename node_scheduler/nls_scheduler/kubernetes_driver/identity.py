"""Which pod a process belongs to: its cgroup as the kernel tells it, never what the process says.

All forms of the path name the pod's UID: cgroupfs (`/kubepods/burstable/pod<uid>/…`), systemd
(`…-pod<uid_with_underscores>.slice/…`), and both seen from another cgroup namespace (`/../..`).
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import events as ev
from nls_scheduler.drivers.pids import namespaced_pids
from nls_scheduler.processes.proc import look_up
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import ProcessId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.daemon.peers import Peer

_HEX: Final = "[0-9a-f]"
_UID: Final = rf"{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}}"
UNKNOWN_POD: Final = "Unknown pod"
"""The title of the Problem of a pod that may become known in a moment."""
_POD: Final = re.compile(rf"(?:^|[/-])pod({_UID})(?:\.slice)?(?:/|$)")


def pod_uid_in(cgroup: str, own: str = "") -> str | None:
    """The pod's UID in the text of /proc/PID/cgroup; `None` for a process of no pod, or of this daemon's own.

    `own`: the same text of this daemon. What both paths begin with is above all pods of this node, which may itself be
    a container in a pod. Below that the first pod counts: the others are cgroups that it has made itself.
    """
    ours = dict(map(_hierarchy, own.splitlines()))
    for number, path in map(_hierarchy, cgroup.splitlines()):
        above = os.path.commonpath([path, ours.get(number, "/")])
        found = _POD.search(path.removeprefix(above))
        if found is not None:
            return found[1].replace("_", "-")
    return None


def _hierarchy(line: str) -> tuple[str, str]:
    """The number of a hierarchy of cgroups, and the path in it."""
    number, _, rest = line.partition(":")
    return number, "/" + rest.partition(":")[2].lstrip("/")


def pod_uid_of(pid: int, proc: Path = Path("/proc")) -> str | None:
    """The UID of the pod that a process belongs to; `None`: no pod, this daemon's own, or the process has ended."""
    try:
        text, own = (_read(proc / name / "cgroup") for name in (str(pid), "self"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return pod_uid_in(text, own)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def require_visible(peer: Peer) -> ProcessId:
    """The process at the other end. Raises Problem for pid 0: a process that this daemon cannot see."""
    if peer.process is None:
        detail = (
            "This daemon cannot see the process that asks: it runs in a pid namespace of its own. "
            "Run its pod with hostPID: true."
        )
        raise Problem(403, "Unknown caller", detail, "node")
    return peer.process


def identified(peer: Peer, knows: Callable[[str], bool], not_ready: str | None) -> Peer:
    """`peer` with its pod as its tenant, if it is in one.

    Who is in a pod is never an administrator of the node, root or not; in the daemon's own pod everybody is whom their
    user id says, as on the node itself. `knows` says whether a pod's UID is known here, and `not_ready` why not every
    one is. Raises Problem: 503 for an unknown pod while that holds, else 403.
    """
    uid = pod_uid_of(require_visible(peer).pid)
    if uid is None:
        return peer
    if knows(uid):
        return replace(peer, tenant=uid, administrator=False)
    if not_ready is not None:
        raise Problem(503, "Not ready", not_ready, "node")
    detail = "This process belongs to a pod that is not known on this node: ask again in a moment."
    raise Problem(403, UNKNOWN_POD, detail, "node")


def seen_from_here(process: ProcessId, peer: Peer) -> ProcessId | None:
    """`process` as this daemon numbers it; `peer` named it by its own container's pids.

    The start time is the same in both, and the process must be in the peer's pid namespace. `None`: there is no such
    process, or no longer. Raises Problem when the peer cannot be seen.
    """
    caller = require_visible(peer)
    theirs = _pid_namespace(caller.pid)
    if theirs is None or theirs == _pid_namespace(os.getpid()):
        return process
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        if namespaced_pids(Path(entry.path))[-1:] != [process.pid] or _pid_namespace(pid) != theirs:
            continue
        record = look_up(pid)
        if record is not None and record.id.start_time == process.start_time:
            return record.id
    return None


def local_process(process: ProcessId, peer: Peer) -> ProcessId:
    """`process` as this daemon numbers it, or as it is where it cannot be found. Raises Problem for another pod's."""
    found = seen_from_here(process, peer)
    if found is None:
        return process
    if peer.tenant and pod_uid_of(found.pid) not in (peer.tenant, None):
        raise Problem(403, "Not your process", f"Process {process.pid} belongs to another pod.")
    return found


def localised(event: Event, peer: Peer, state: NodeState) -> Event:
    """`event` with its process as this daemon numbers it. Raises as `local_process`."""
    if isinstance(event, ev.ProcessStarted):
        return replace(event, process=local_process(event.process, peer))
    if isinstance(event, ev.WorkloadReported | ev.ProcessExited) and event.process is not None:
        # One that has ended cannot be looked up any more: it is known by when it started.
        workload = state.workloads.get(event.workload)
        known = None if workload is None else workload.process
        if known is not None and known.start_time == event.process.start_time:
            return replace(event, process=known)
        return replace(event, process=local_process(event.process, peer))
    return event


def _pid_namespace(pid: int) -> str | None:
    """`None` when the process has ended, or its namespace may not be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - a magic link, not a path
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
