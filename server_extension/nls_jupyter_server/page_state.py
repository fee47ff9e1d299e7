"""What a page shows of the node, as one JSON value, and the difference between two of them. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

State = dict[str, Any]
HISTORY_SHOWN: Final = 200
GPU_FIGURES: Final = frozenset({"memory_used_bytes", "utilisation", "unplaced_bytes"})
"""Fields of a Gpu that change all the time and are worth at most one message per second."""
WORKLOAD_FIGURES: Final = frozenset({"memory_used_bytes", "saved_bytes", "allowance_bytes"})
_GPU_FIELDS: Final = (
    *("uuid", "index", "name", "memory_total_bytes", "healthy", "unhealthy_reason", "unhealthy_parts"),
    *("pool", *sorted(GPU_FIGURES)),
)
_NEWER_FIELDS: Final[dict[str, Any]] = {
    "cell_waits": True,
    "claimed": False,
    "frozen": None,
    "keep_until": None,
    "pool": None,
    "queue": None,
    "reason_parts": None,
    "unhealthy_parts": None,
}
"""What a daemon from before these fields means."""
_SAME_TIME_S: Final = 1.0
_AWAY_SINCE: Final = frozenset({"suspended", "evicted", "exited", "failed", "start_failed", "queued"})
_WORKLOAD_FIELDS: Final = (
    *(
        "id",
        "name",
        "kind",
        "phase",
        "request_bytes",
        "limit_bytes",
        "gpu_count",
        "gpus",
        "home",
        "current",
        "borrowed",
    ),
    *("executing", "cell_waits", "yields", "claimed", "keep_until", "frozen", "position", "reason", "reason_parts"),
    *("cause", "since", "queue"),
    *sorted(WORKLOAD_FIGURES),
)


_QUEUE_FIELDS: Final = ("name", "parent", "waiting", "pools")
_QUEUE_POOL_FIELDS: Final = ("pool", "quota", "limit", "fair_share", "used", "requested")


def unreachable(reason: str, before: State | None = None) -> State:
    """A node of which nothing is known now, and why. Of `before` only the history stays: that did happen."""
    daemon = {"reachable": False, "message": reason, "version": None, "simulated": False, "administrator": False}
    history = [] if before is None else before["history"]
    return {"daemon": daemon, "gpus": {}, "workloads": {}, "queues": {}, "history": history}


def page_state(
    status: Mapping[str, Any], history: Sequence[Mapping[str, Any]], own_uid: int, places: Mapping[str, Place]
) -> State:
    """The daemon's status and history as a page shows them.

    Args:
        status: `GET /v1/status`.
        history: entries of `GET /v1/history`, oldest first.
        own_uid: of this server, see `is_own`.
        places: by workload id, which kernel and notebook it belongs to, where that is one of this server's.

    Raises:
        KeyError, TypeError: the daemon speaks of things in another way than this version expects.
    """
    daemon = {
        "reachable": True,
        "message": status["message"],
        "version": status["version"],
        "simulated": status["simulated"],
        # A daemon older than the field tells nothing: better no button than one that is always refused.
        "administrator": bool(status.get("administrator", False)),
    }
    gpus = {gpu["uuid"]: _fields(gpu, _GPU_FIELDS) for gpu in status["gpus"]}
    last_events = {entry["workload"]: entry["event"] for entry in history}
    workloads = {
        entry["id"]: {
            **_fields(entry, _WORKLOAD_FIELDS),
            "moving": _moves(entry, last_events.get(entry["id"])),
            **_place(places.get(entry["id"])),
            "own": is_own(entry, own_uid),
            "order": order,
        }
        for order, entry in enumerate(status["workloads"])
    }
    shown = [_entry(entry, own_uid) for entry in history[-HISTORY_SHOWN:]]
    return {"daemon": daemon, "gpus": gpus, "workloads": workloads, "queues": _queues(status), "history": shown}


def is_own(entry: Mapping[str, Any], own_uid: int) -> bool:
    """Whether the daemon's entry is the server's user's own; one from before it said so tells it by user id only."""
    return bool(entry.get("own", entry["owner"] == own_uid))


def _queues(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By name, in the daemon's order: parents before their children. None where none are configured."""
    return {
        queue["name"]: {
            **{name: queue[name] for name in _QUEUE_FIELDS},
            "pools": [{name: pool[name] for name in _QUEUE_POOL_FIELDS} for pool in queue["pools"]],
            "order": order,
        }
        # A daemon from before queues says nothing of them.
        for order, queue in enumerate(status.get("queues", ()))
    }


Place = tuple[str, str | None]
"""A kernel's id, and the path of its notebook if it has one."""


def _place(place: Place | None) -> dict[str, str | None]:
    kernel_id, path = (None, None) if place is None else place
    return {"kernel_id": kernel_id, "path": path}


def _fields(entry: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    known = {**_NEWER_FIELDS, **entry}
    return {name: known[name] for name in names}


def _moves(entry: Mapping[str, Any], last_event: str | None) -> bool:
    """Whether it goes from one Gpu to another: a move gets its entry of the history at its end, a suspend at once."""
    returns = entry["phase"] == "starting" and entry["saved_bytes"] is not None
    return returns and last_event is not None and last_event not in _AWAY_SINCE


def _entry(entry: Mapping[str, Any], own_uid: int) -> dict[str, Any]:
    shown = {name: value for name, value in entry.items() if name not in ("at", "owner")}
    own = is_own(entry, own_uid)
    # The names of others' variables are nobody's business, whatever the daemon shows.
    losses = {name: list(entry.get(name, ())) if own else [] for name in ("missing", "lost_cells")}
    return {"reason_parts": None, **shown, "own": own, **losses}


def steadied(before: State, now: State, *, keep_figures: bool) -> State:
    """`now` without changes that nobody can see, and with `keep_figures` also without those of figures."""
    gpus = {uuid: _kept(before["gpus"].get(uuid), gpu, GPU_FIGURES, keep_figures) for uuid, gpu in now["gpus"].items()}
    workloads = {}
    for name, workload in now["workloads"].items():
        was = before["workloads"].get(name)
        # Its Gpu process has changed: what it held before is no figure of the new one.
        keep = keep_figures and was is not None and was["phase"] == workload["phase"]
        steady = _kept(was, workload, WORKLOAD_FIGURES, keep)
        # The daemon derives the time of day from two clocks, which differ a little from call to call.
        for time in ("since", "keep_until"):
            if was is not None and _same_time(was[time], workload[time]):
                steady[time] = was[time]
        if was is not None and _same_cause(was["cause"], workload["cause"]):
            steady["cause"] = was["cause"]
        stood, stands = (known["frozen"] if known else None for known in (was, workload))
        if stood is not None and stands is not None and _same_time(stood["since"], stands["since"]):
            steady["frozen"] = {**stands, "since": stood["since"]}
        workloads[name] = steady
    return {**now, "gpus": gpus, "workloads": workloads}


def _kept(
    was: Mapping[str, Any] | None,
    now: Mapping[str, Any],
    figures: frozenset[str],
    keep: bool,  # noqa: FBT001
) -> dict[str, Any]:
    old = {name: was[name] for name in figures} if keep and was is not None else {}
    return {**now, **old}


def _same_time(was: str | None, now: str | None) -> bool:
    if was is None or now is None:
        return was is now
    return abs((datetime.fromisoformat(now) - datetime.fromisoformat(was)).total_seconds()) < _SAME_TIME_S


def _same_cause(was: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    if was is None or now is None:
        return was is now
    return {**was, "since": None} == {**now, "since": None} and _same_time(was.get("since"), now.get("since"))


def difference(before: State, now: State) -> dict[str, Any]:
    """What turns `before` into `now`; empty when nothing does.

    `gpus`, `workloads` and `queues` have changed fields by id, `null` for what has gone; `history` has the new entries,
    or with `history_anew` all of them.
    """
    delta: dict[str, Any] = {}
    if before["daemon"] != now["daemon"]:
        delta["daemon"] = now["daemon"]
    for part in ("gpus", "workloads", "queues"):
        if changed := _changed(before[part], now[part]):
            delta[part] = changed
    delta |= _new_entries(before["history"], now["history"])
    return delta


def _changed(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    changed: dict[str, Any] = dict.fromkeys(before.keys() - now.keys())
    for name, fields in now.items():
        was = before.get(name, {})
        if different := {key: value for key, value in fields.items() if key not in was or was[key] != value}:
            changed[name] = different
    return changed


def _new_entries(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not before:
        return {"history": list(now)} if now else {}
    last = before[-1]["sequence"]
    at = next((i for i in range(len(now) - 1, -1, -1) if now[i]["sequence"] == last), None)
    # A daemon that lost its journal counts from one again.
    if at is None or now[at] != before[-1]:
        return {"history": list(now), "history_anew": True}
    return {"history": list(now[at + 1 :])} if at + 1 < len(now) else {}
