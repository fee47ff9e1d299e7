"""Workloads that supervisors bring back to a daemon that lost its journal: what they say, or a refusal. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.events import WorkloadAdopted
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId
from nls_scheduler.core.planning.homes.assign import why_no_room
from nls_scheduler.requests import submission
from nls_scheduler.views.sentences import Names, sentence
from nls_scheduler.wire.errors import Problem, malformed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.events import PlacedUse
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.requests.queue_access import Who
    from nls_scheduler.requests.submission import Defaults
    from nls_scheduler.views.veil import Viewer

ID_PATTERN: Final = re.compile(r"[0-9a-f]{12}")
STATE_FIELDS: Final = ("command_id", "pid", "start_time", "saved_bytes", "frozen_bytes", "current", "executing")
"""What is said of how a workload is, beside what it asks for."""
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a supervisor says of its workload; see `WorkloadAdopted`."""

    spec: WorkloadSpec
    command_id: CommandId
    process: ProcessId
    gpus: tuple[GpuUuid, ...]
    executing: bool
    saved_bytes: int | None
    given_home: tuple[GpuUuid, ...] | None = None
    frozen_bytes: int | None = None

    def event(
        self, at: float, workload: WorkloadId, context_bytes: int, uses: Mapping[GpuUuid, tuple[PlacedUse, ...]]
    ) -> WorkloadAdopted:
        """The fact that it is back; `uses` is what the driver shows."""
        return WorkloadAdopted(
            at,
            workload,
            self.spec,
            context_bytes,
            self.command_id,
            self.process,
            self.gpus,
            self.executing,
            self.saved_bytes,
            uses,
            self.given_home,
            self.frozen_bytes,
        )


def claim(
    workload_id: str, body: Mapping[str, Any], owner: int, node: NodeState, defaults: Defaults, who: Who | None = None
) -> Claim:
    """What `body` says: a submission's fields, and how the workload is. Raises Problem."""
    if not ID_PATTERN.fullmatch(workload_id):
        raise malformed("A workload's id has 12 digits of 0-9 and a-f: bring back one that a daemon has given out.")
    said = dict(body)
    state = {name: said.pop(name, None) for name in STATE_FIELDS[:5]}
    current, executing = said.pop("current", None), said.pop("executing", None)
    gpus = node.gpus
    if not gpus:
        raise submission.no_gpu(None)
    spec = submission.submission(said, owner, tuple(gpus.values()), defaults, (), node.policy, who)
    if not isinstance(executing, bool):
        raise malformed("The field 'executing' is needed, true or false.")
    saved_bytes, frozen_bytes = (
        None if state[name] is None else _number(state, name) for name in ("saved_bytes", "frozen_bytes")
    )
    return Claim(
        spec,
        CommandId(_number(state, "command_id")),
        ProcessId(_number(state, "pid"), _number(state, "start_time")),
        _current(current, spec, gpus),
        executing,
        saved_bytes,
        frozen_bytes=frozen_bytes,
    )


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= _MOST:
        raise malformed(f"The field {name!r} is needed, a whole number of 0 or more.")
    return value


def _current(current: object, spec: WorkloadSpec, gpus: Mapping[GpuUuid, Gpu]) -> tuple[GpuUuid, ...]:
    if not isinstance(current, list) or not all(isinstance(uuid, str) for uuid in current):
        raise malformed("The field 'current' is needed, a list of the UUIDs of its Gpus.")
    known = tuple(GpuUuid(uuid) for uuid in current)
    most = spec.gpu_counts[0]
    fits = spec.gpu_count <= len(known) <= most
    if len(set(known)) != len(known) or not fits or not set(known) <= gpus.keys():
        number = str(most) if most == spec.gpu_count else f"{spec.gpu_count} to {most}"
        detail = f"'current' names {number} of this node's Gpus, each once: see `nls status --json`."
        raise Problem(409, "Not on this node", detail)
    return known


def check_uses(claimed: Claim, uses: Mapping[GpuUuid, tuple[PlacedUse, ...]]) -> None:
    """Raises Problem when the driver shows its processes on a Gpu that it does not name."""
    elsewhere = uses.keys() - set(claimed.gpus)
    if elsewhere:
        raise Problem(409, "Not where it says", f"Its processes use {min(elsewhere)} as well: name all of its Gpus.")


def check_room(before: NodeState, after: NodeState, workload_id: WorkloadId, viewer: Viewer) -> None:
    """Raises Problem unless everybody's request is still guaranteed with it; `after` is `before` with it.

    `viewer`: who asks, and reads why not.
    """
    why = why_no_room(before, after, workload_id)
    if why is not None:
        told = sentence(why, Names.of(after, viewer))
        detail = f"The workload cannot be taken up again as it was: {told}. Submit it anew."
        raise Problem(409, "No room", detail)
