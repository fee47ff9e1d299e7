"""An observation as the rows of a workload."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.what_if.observing.record import MARK, facts_of
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session, WorkloadFileError

if TYPE_CHECKING:
    from pathlib import Path

    from nls_scheduler.what_if.workload_file.rows import Row, Size

_KINDS: Final = ("session", "command", "cell")
_TOO_MANY: Final = 2**63


def observed_rows(path: Path, request: Size, limit: Size, context_bytes: int = 0) -> tuple[Row, ...]:
    """With times from 0 on, in order. Nobody had a request yet: each notebook is given these, a command a whole Gpu.

    What was seen to be held is so with a CUDA context, of `context_bytes`, which the rows are without. Who never held
    anything on a Gpu is left out, where Gpus could be seen at all, and so is who was on several: that is not played.

    Raises WorkloadFileError with the row, or OSError.
    """
    facts: list[tuple[str, dict[str, Any]]] = []
    still_open: dict[tuple[str, str, float], tuple[str, dict[str, Any]]] = {}
    for number, fact in facts_of(path):
        if MARK in fact:
            continue
        if "open" in fact:
            for one in _known(number, fact["open"]):
                kind, value = _kind(number, one)
                still_open[kind, value["name"], value["begin"]] = (kind, value)
            continue
        kind, value = _kind(number, fact)
        still_open.pop((kind, value["name"], value["begin"]), None)
        facts.append((kind, value))
    facts += still_open.values()
    if not facts:
        raise WorkloadFileError(f"{path} has seen nothing yet.")
    played = [(kind, value) for kind, value in facts if value["gpus"] <= 1]
    if len(played) < len(facts) and all(kind == "cell" for kind, _ in played):
        raise WorkloadFileError(f"{path} has seen nobody on one GPU alone: who is on several is not played.")
    return _in_order(played, request, limit, context_bytes)


def _known(number: int, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise WorkloadFileError(f"Row {number}: what was open is no list.")
    return value


def _kind(number: int, fact: Any) -> tuple[str, dict[str, Any]]:
    kind = next((kind for kind in _KINDS if isinstance(fact, dict) and kind in fact), None)
    if kind is None:
        raise WorkloadFileError(f"Row {number}: it tells of no session, no command and no cell.")
    try:
        value: dict[str, Any] = {
            "name": str(fact[kind]),
            "begin": float(fact["begin"]),
            "end": float(fact["end"]),
            "memory_bytes": int(fact["memory_bytes"]),
            "state_bytes": int(fact.get("state_bytes", 0)),
            "gpus": int(fact.get("gpus", 1)),
        }
    except (KeyError, TypeError, ValueError, OverflowError):
        raise WorkloadFileError(f"Row {number}: a {kind} without a begin, an end or its memory.") from None
    sizes = value["memory_bytes"], value["state_bytes"]
    if not all(map(math.isfinite, (value["begin"], value["end"]))) or not 0 <= min(sizes) <= max(sizes) < _TOO_MANY:
        raise WorkloadFileError(f"Row {number}: a {kind} with a time or a size that cannot be.")
    if value["end"] <= value["begin"]:
        raise WorkloadFileError(f"Row {number}: a {kind} that ends before it begins.")
    return kind, value


def _in_order(
    facts: list[tuple[str, dict[str, Any]]], request: Size, limit: Size, context_bytes: int
) -> tuple[Row, ...]:
    if any(value["memory_bytes"] for _, value in facts):
        facts = [(kind, value) for kind, value in facts if kind == "cell" or value["memory_bytes"]]
    begin = min(value["begin"] for _, value in facts)
    sessions: list[Session] = []
    rows: list[Row] = []
    open_until: dict[str, float] = {}
    for kind, value in sorted(facts, key=lambda fact: (fact[1]["begin"], _KINDS.index(fact[0]))):
        name, begin_s, end_s = value["name"], round(value["begin"] - begin, 3), round(value["end"] - begin, 3)
        memory, state = (max(0, value[size] - context_bytes) for size in ("memory_bytes", "state_bytes"))
        if kind == "command":
            rows.append(Command(name, begin_s, end_s, 1.0, 1.0, memory_bytes=memory))
        elif kind == "session":
            # Of one whose clock was set back the same time is there twice.
            begin_s = max(begin_s, open_until.get(name, 0.0))
            if end_s <= begin_s:
                continue
            open_until[name] = end_s
            sessions.append(Session(name, begin_s, end_s, request, limit))
            rows.append(sessions[-1])
        else:
            rows.append(Cell(name, begin_s, end_s, memory, state))
    return _within_sessions(sorted(rows, key=lambda row: (row.begin_s, isinstance(row, Cell))), sessions)


def _within_sessions(rows: list[Row], sessions: list[Session]) -> tuple[Row, ...]:
    """A cell whose session was forgotten with an older half is left out, and so is one beside another of its name."""
    by_name: dict[str, list[Session]] = {}
    for session in sessions:
        by_name.setdefault(session.name, []).append(session)
    free_at: dict[str, float] = {}
    kept: list[Row] = []
    for row in rows:
        if isinstance(row, Cell):
            inside = any(s.begin_s <= row.begin_s and row.begin_s < s.end_s for s in by_name.get(row.name, ()))
            session_end = max((s.end_s for s in by_name.get(row.name, ()) if s.begin_s <= row.begin_s), default=0.0)
            end_s = min(row.end_s, session_end)
            if not inside or row.begin_s < free_at.get(row.name, 0.0) or end_s <= row.begin_s:
                continue
            row = replace(row, end_s=end_s)
            free_at[row.name] = row.end_s
        kept.append(row)
    return tuple(kept)
