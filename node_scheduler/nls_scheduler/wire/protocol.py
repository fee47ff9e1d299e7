"""The wire between the daemon and a supervisor: JSON messages on one WebSocket per workload.

The supervisor sends facts (`{"event": "process_ready", "command_id": 3}`); the daemon sends orders
(`{"command": "start_process", …}`), the workload's status entry (`{"view": …}`) and, for a message that it could not
read, `{"error": problem object}`. Both ends use this module, so that one table is the whole contract.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler import __version__
from nls_scheduler.core.model import events
from nls_scheduler.core.model.commands import (
    FreezeProcess,
    InterruptCell,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
    TrimMemory,
)
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId
from nls_scheduler.wire.errors import Problem, malformed
from nls_scheduler.wire.told import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.commands import WorkloadCommand
    from nls_scheduler.core.model.ids import WorkloadId

PROTOCOL_VERSION: Final = 1
"""Raised when a client or daemon of before could no longer be understood; additions do not raise it."""
OLDEST_PROTOCOL: Final = 1
"""The oldest client that this daemon still understands."""
PROTOCOL_HEADER: Final = "X-NLS-Protocol"
SECRET_HEADER: Final = "X-NLS-Secret"  # noqa: S105 - a name
#: Of a daemon: which fields of `reported` it takes that those before it refuse.
REPORTS_HEADER: Final = "X-NLS-Reports"
REPORTS: Final = "gpus doing"
"""In the answer to a supervisor that connects: with it the workload comes back to a daemon that has forgotten it."""
ONLY_ARGUMENT: Final = "only"
"""In a supervisor's query, `true`: its process looks after no other workload, whatever the daemon's journal knows."""
ONLY_QUERY: Final = f"?{ONLY_ARGUMENT}=true"
MAX_BODY_BYTES: Final = 2**20
CLOSE_ENDED: Final = 4000
"""WebSocket close code: the workload has ended; nothing is left to supervise. Its reason: who said so, or empty."""
CLOSE_REASON_BYTES: Final = 123
"""RFC 6455, 5.5: what a close frame has room for."""
CLOSE_REPLACED: Final = 4001
"""WebSocket close code: another supervisor of the same owner has attached."""
REASON_LIMIT: Final = 2000
MISSING_LIMIT: Final = 100
"""As many names of variables, and cells, that did not come back are told; a notebook's own log has all."""
NAME_LIMIT: Final = 100
WORKLOAD_NAME_LIMIT: Final = 255
"""As long as the name of a notebook's file can be."""
VISIBLE_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
_UNLESS_USERS: Final = ("XLA_PYTHON_CLIENT_MEM_FRACTION",)
"""Of these, what a user has set already: whoever sets them means what they say."""
MAY_SET: Final = frozenset(
    (
        *(VISIBLE_VARIABLE, "CUDA_DEVICE_ORDER"),
        *("NLS_WORKLOAD", "NLS_WORKLOAD_MARK", "NLS_CONTEXT_MEMORY", "NLS_SIMULATION"),
        *("NLS_GPU_COUNT", "NLS_GANG", "NLS_GANG_RANK", "NLS_GANG_SIZE"),
        *_UNLESS_USERS,
    )
)
"""The variables that a daemon may set for a new process: which Gpus it sees, and its place. Any other is left out."""

_EVENT_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "process_started": {"command_id": int, "pid": int, "start_time": int},
    "process_ready": {"command_id": int, "missing": list, "lost_cells": list},
    "start_failed": {"command_id": int, "reason": str},
    "process_suspended": {"command_id": int, "saved_bytes": int},
    "suspend_failed": {"command_id": int, "reason": str, "busy": bool},
    "process_exited": {"pid": int, "start_time": int, "reason": str, "code": int},
    "cell_started": {},
    "cell_finished": {},
    "state_saved": {"saved_bytes": int},
    "variables_lost": {"reason": str, "missing": list, "lost_cells": list},
    "memory_trimmed": {"command_id": int},
    "cell_interrupted": {"command_id": int, "reached": bool},
    "freeze_tested": {"refusal": str},
    "process_frozen": {"command_id": int, "frozen_bytes": int},
    "freeze_failed": {"command_id": int, "reason": str},
    "process_thawed": {"command_id": int},
    "thaw_failed": {"command_id": int, "reason": str},
    "memory_wanted": {"number": int, "gpu": str, "bytes": int, "held_bytes": int},
    "reported": {
        "command_id": int,
        "pid": int,
        "start_time": int,
        "ready": bool,
        "executing": bool,
        "saved_bytes": int,
        "received": int,
        "frozen_bytes": int,
        "gpus": list,
        "doing": str,
    },
}
_OF_FREEZING: Final[Mapping[str, Callable[..., events.WorkloadEvent]]] = {
    "freeze_tested": events.FreezeTested,
    "process_frozen": events.ProcessFrozen,
    "freeze_failed": events.FreezeFailed,
    "process_thawed": events.ProcessThawed,
    "thaw_failed": events.ThawFailed,
}
"""Those that have in their order just the fields of their event."""
# A stop that found no process is answered by an exit without one; who reports may have no process and nothing saved.
_OPTIONAL: Final[Mapping[tuple[str, str], Any]] = {
    ("process_ready", "missing"): (),
    ("process_ready", "lost_cells"): (),
    ("suspend_failed", "busy"): False,
    ("cell_interrupted", "reached"): True,
    ("variables_lost", "missing"): (),
    ("variables_lost", "lost_cells"): (),
    ("process_exited", "pid"): None,
    ("process_exited", "start_time"): None,
    ("process_exited", "code"): None,
    ("reported", "pid"): None,
    ("reported", "start_time"): None,
    ("reported", "saved_bytes"): None,
    ("reported", "received"): None,
    ("reported", "frozen_bytes"): None,
    ("reported", "gpus"): (),
    ("reported", "doing"): "",
    ("freeze_tested", "refusal"): None,
}
_TYPE_WORDS: Final[Mapping[type, str]] = {
    int: "a whole number of 0 or more",
    str: "a text",
    bool: "true or false",
    list: "a list of texts",
}
_COMMAND_NAMES: Final[Mapping[type, str]] = {
    StartProcess: "start_process",
    SuspendProcess: "suspend_process",
    StopProcess: "stop_process",
    TrimMemory: "trim_memory",
    InterruptCell: "interrupt_cell",
    FreezeProcess: "freeze_process",
    ThawProcess: "thaw_process",
}


def beside_users(environment: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """What a daemon sets for a new process, without what its user has set in `users` and means so."""
    return {name: value for name, value in environment.items() if name not in _UNLESS_USERS or name not in users}


@dataclass(frozen=True, slots=True)
class Cause:
    """The workload that made an order necessary."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CommandMessage:
    """An order to a supervisor.

    Attributes:
        command: `start_process`, `suspend_process`, `stop_process`, `trim_memory`, `interrupt_cell`, `freeze_process`
            or `thaw_process`.
        command_id: the answer names it; the same id is never carried out twice.
        reason: why, as the user reads it.
        cause: the workload that made it necessary, if one did.
        gpus: start_process, thaw_process: UUIDs of the Gpus, in order.
        environment: start_process: variables for the new GPU process.
        kind: suspend_process: which reason that is; empty: not told.
        timeout_s: freeze_process, thaw_process: how long the driver may take.
        beside_bytes: freeze_process: what others that are being frozen may still take of host memory.
        grace_s: stop_process: between SIGTERM and SIGKILL; interrupt_cell: until the process is stopped.
    """

    command: str
    command_id: int
    reason: str
    cause: Cause | None = None
    gpus: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    grace_s: float = 0.0
    timeout_s: float = 0.0
    beside_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ViewMessage:
    """The workload's entry of the status, at once after connecting and on each change."""

    view: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """The daemon could not read what the supervisor sent; the connection goes on."""

    problem: Problem


DaemonMessage = CommandMessage | ViewMessage | ErrorMessage


def check_version(said: str | None, name: str = PROTOCOL_HEADER) -> None:
    """What a client says to speak (`None`: it does not say), in what `name` is.

    Raises Problem that tells which end to upgrade.
    """
    if said is None:
        return
    if not said.isascii() or not said.isdecimal() or len(said) > 9:
        detail = f"{name} is a whole number such as {PROTOCOL_VERSION}, not {clean_text(said)[:100]!r}."
        raise malformed(detail)
    here = f"the daemon is nls {__version__} with protocol {PROTOCOL_VERSION}"
    if int(said) < OLDEST_PROTOCOL:
        advice = "upgrade nls-jupyter where this client runs, and start it (or its kernel) again."
        raise Problem(409, "Client too old", f"This client speaks protocol {int(said)}, {here}: {advice}")
    if int(said) > PROTOCOL_VERSION:
        advice = "upgrade nls-jupyter where the daemon runs and start it again; GPU processes go on meanwhile."
        raise Problem(409, "Daemon too old", f"This client speaks protocol {int(said)}, {here}: {advice}", "server")


def encode_event(event: str, fields: Mapping[str, Any]) -> str:
    """A supervisor's fact as text. Raises Problem when the daemon would refuse it."""
    message = {"event": event, **fields}
    _checked_fields(message)
    return json.dumps(message)


def parse_event(text: str | bytes, workload: WorkloadId, at: float) -> events.WorkloadEvent:
    """A supervisor's message as an event of `workload` at `at`. Raises Problem when it is malformed."""
    message = parse_object(text)
    kind, fields = _checked_fields(message)
    if kind == "memory_wanted":
        return _memory_wanted(fields, workload, at)
    if kind == "variables_lost":
        return events.VariablesLost(at, workload, fields["reason"], fields["missing"], fields["lost_cells"])
    if kind in _OF_FREEZING:
        return _OF_FREEZING[kind](at, workload, *(_typed(name, value) for name, value in fields.items()))
    return _as_event(kind, fields, workload, at)


def encode_command(command: WorkloadCommand, reason: str, cause: Cause | None, environment: Mapping[str, str]) -> str:
    """An order as text, with its reason as the user reads it; `environment` matters to StartProcess only."""
    message: dict[str, Any] = {
        "command": _COMMAND_NAMES[type(command)],
        "command_id": command.command_id,
        "reason": reason,
        "cause": None if cause is None else {"id": cause.id, "name": cause.name},
    }
    if isinstance(command, StartProcess):
        message |= {"gpus": list(command.gpus), "environment": dict(environment)}
    elif isinstance(command, SuspendProcess):
        message["kind"] = command.reason.kind.value
    elif isinstance(command, StopProcess | InterruptCell):
        message["grace_s"] = command.grace_s
    elif isinstance(command, FreezeProcess):
        message |= {"timeout_s": command.timeout_s, "beside_bytes": command.beside_bytes}
    elif isinstance(command, ThawProcess):
        message |= {"timeout_s": command.timeout_s, "gpus": list(command.gpus)}
    return json.dumps(message)


def encode_view(view: Mapping[str, Any]) -> str:
    """The workload's status entry as text."""
    return json.dumps({"view": view})


def encode_error(problem: Problem) -> str:
    """The answer to a malformed message as text."""
    return json.dumps({"error": problem.as_dict()})


def parse_daemon_message(text: str | bytes) -> DaemonMessage:
    """What the daemon sent, for the client. Raises ValueError when it is none of the three kinds."""
    try:
        message = json.loads(text)
        if "view" in message:
            return ViewMessage(Told(message["view"]))
        if "error" in message:
            return ErrorMessage(Problem.from_dict(message["error"]))
        cause = message["cause"]
        return CommandMessage(
            command=str(message["command"]),
            command_id=int(message["command_id"]),
            reason=str(message["reason"]),
            cause=None if cause is None else Cause(str(cause["id"]), str(cause["name"])),
            gpus=tuple(str(gpu) for gpu in message.get("gpus", ())),
            environment={str(k): str(v) for k, v in message.get("environment", {}).items() if k in MAY_SET},
            kind=str(message.get("kind", "")),
            grace_s=float(message.get("grace_s", 0.0)),
            timeout_s=float(message.get("timeout_s", 0.0)),
            beside_bytes=int(message.get("beside_bytes", 0)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"The daemon sent a message that this client cannot read: {text!r:.200}.") from error


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises Problem with one sentence when `text` is none (RecursionError included)."""
    try:
        parsed = json.loads(text, object_pairs_hook=_fields_once)
    except (ValueError, RecursionError) as error:
        raise malformed(f"This is not valid JSON ({error}): send one JSON object.") from error
    if not isinstance(parsed, dict):
        raise malformed("Send one JSON object, not another JSON value.")
    return parsed


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The last of two would win here, and perhaps the first where somebody else has checked what is sent."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise malformed(f"The field {clean_text(twice)!r:.100} is there twice: send each field once.")
    return fields


def clean_text(text: str) -> str:
    """`text` as it can be printed and logged on one line: no control characters, no lone surrogates."""
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() else " " for letter in encodable).strip()


def as_name(text: str) -> str:
    """`text` as a workload can be named; empty where there is nothing to print in it."""
    return clean_text(clean_text(text)[:WORKLOAD_NAME_LIMIT])


def as_close_reason(text: str) -> str:
    """As much of `text` as fits."""
    return text.encode()[:CLOSE_REASON_BYTES].decode(errors="ignore")


def _checked_fields(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = message.get("event")
    wanted = _EVENT_FIELDS.get(kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or wanted is None:
        raise malformed(f"{kind!r:.100} is not an event: send one of {', '.join(_EVENT_FIELDS)}.")
    unknown = message.keys() - wanted.keys() - {"event"}
    if unknown:
        raise malformed(f"The event {kind} has no field {min(unknown)!r:.100}: it has {_listed(wanted)}.")
    fields: dict[str, Any] = {}
    for name, type_ in wanted.items():
        value = message.get(name)
        if value is None and (kind, name) in _OPTIONAL:
            fields[name] = _OPTIONAL[kind, name]
            continue
        if type(value) is not type_ or (type(value) is int and not 0 <= value < 2**63):
            raise malformed(f"The event {kind} needs {name!r}, {_TYPE_WORDS[type_]}.")
        if isinstance(value, list):
            if not all(isinstance(item, str) for item in value):
                raise malformed(f"The event {kind} needs {name!r}, {_TYPE_WORDS[list]}.")
            value = tuple(clean_text(item)[:NAME_LIMIT] for item in value[:MISSING_LIMIT])
        fields[name] = clean_text(value)[:REASON_LIMIT] if isinstance(value, str) else value
    return kind, fields


def _listed(names: Mapping[str, type]) -> str:
    return ", ".join(names) or "none"


def _typed(name: str, value: Any) -> Any:
    return CommandId(value) if name == "command_id" else value


def _memory_wanted(fields: Mapping[str, Any], workload: WorkloadId, at: float) -> events.MemoryWanted:
    gpu = GpuUuid(fields["gpu"])
    return events.MemoryWanted(at, workload, fields["number"], gpu, fields["bytes"], fields["held_bytes"])


def _as_event(kind: str, fields: Mapping[str, Any], workload: WorkloadId, at: float) -> events.WorkloadEvent:
    command_id = CommandId(fields.get("command_id", 0))
    known = fields.get("pid") is not None and fields.get("start_time") is not None
    process = ProcessId(fields["pid"], fields["start_time"]) if known else None
    match kind:
        case "process_started":
            return events.ProcessStarted(at, workload, command_id, ProcessId(fields["pid"], fields["start_time"]))
        case "reported":
            ready, executing, saved_bytes = fields["ready"], fields["executing"], fields["saved_bytes"]
            received = None if fields["received"] is None else CommandId(fields["received"])
            is_now = (process, ready, executing, saved_bytes, received, fields["frozen_bytes"])
            gpus = tuple(GpuUuid(uuid) for uuid in fields["gpus"])
            return events.WorkloadReported(at, workload, command_id, *is_now, gpus, fields["doing"])
        case "memory_trimmed":
            return events.MemoryTrimmed(at, workload, command_id)
        case "cell_interrupted":
            return events.CellInterrupted(at, workload, command_id, fields["reached"])
        case "process_ready":
            return events.ProcessReady(at, workload, command_id, fields["missing"], fields["lost_cells"])
        case "start_failed":
            return events.StartFailed(at, workload, command_id, fields["reason"])
        case "process_suspended":
            return events.ProcessSuspended(at, workload, command_id, fields["saved_bytes"])
        case "suspend_failed":
            return events.SuspendFailed(at, workload, command_id, fields["reason"], fields["busy"])
        case "process_exited":
            return events.ProcessExited(at, workload, process, fields["reason"], fields["code"])
        case "state_saved":
            return events.StateSaved(at, workload, fields["saved_bytes"])
        case "cell_started":
            return events.CellStarted(at, workload)
        case _:
            return events.CellFinished(at, workload)
