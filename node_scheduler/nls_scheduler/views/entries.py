"""One entry of the history: kept as values, so that each viewer reads it in the words that are right for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.codec import UnknownValueError, decode, encode
from nls_scheduler.core.model.reasons import NOBODY, Mention, Why, gpus_of, said_before
from nls_scheduler.views.sentences import Names, told_of
from nls_scheduler.views.veil import SEES_ALL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.views.veil import Viewer

_GPU: Final = "gpu"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a person would say has happened.

    Attributes:
        sequence: its number.
        at: when, by the clock of decisions.
        time: the time of day.
        about: the workload; of a Gpu, what that was called (`of_gpu`).
        event: in one word.
        why: the reason.
        labels: what the Gpus of the reason were called then.
        cause: who made it necessary.
        left: where it was, for people; `None`: nowhere.
        to: where it is now.
        seconds: how long it took.
        bytes: what was moved.
        missing: names that are not back.
        lost_cells: cells that are not in what is back.
    """

    sequence: int
    at: float
    time: str
    about: Mention
    event: str
    why: Why
    labels: Mapping[GpuUuid, str] = field(default_factory=dict)
    cause: Mention | None = None
    left: str | None = None
    to: str | None = None
    seconds: float | None = None
    bytes: int | None = None
    missing: tuple[str, ...] = ()
    lost_cells: tuple[str, ...] = ()

    @property
    def workload(self) -> str | None:
        """Its id; `None`: it is about a Gpu."""
        return None if self.about.kind == _GPU else self.about.id

    def label(self, gpus: tuple[GpuUuid, ...]) -> str:
        """What people called them then."""
        return " and ".join(self.labels.get(uuid, uuid) for uuid in gpus)


def of_gpu(label: str) -> Mention:
    """A Gpu as that which an entry is about: everybody's business."""
    return Mention("", label, _GPU)


def labels_of(why: Why, state: NodeState) -> dict[GpuUuid, str]:
    """What the Gpus that `why` names are called now."""
    return {uuid: state.label((uuid,)) for uuid in gpus_of(why)}


def entry_view(entry: Entry, viewer: Viewer = SEES_ALL) -> dict[str, Any]:
    """As JSON for `viewer`: of another user's neither names nor the reason, nor what variables and cells are called."""
    about, cause, gpu = entry.about, entry.cause, entry.about.kind == _GPU
    if gpu:
        viewer = SEES_ALL
    knows = viewer.knows(about)
    why = told_of(about, entry.why, Names(entry.label, viewer))
    return {
        "sequence": entry.sequence,
        "at": entry.at,
        "time": entry.time,
        "workload": entry.workload,
        "name": viewer.calls(about),
        "kind": about.kind,
        "owner": None if gpu else about.owner,
        "own": viewer.owns(about),
        "event": entry.event,
        "reason": str(why),
        "reason_parts": why.view(),
        "cause": None if cause is None else {"id": cause.id, "name": viewer.calls_cause(cause, about)},
        "from": entry.left,
        "to": entry.to,
        "seconds": entry.seconds,
        "bytes": entry.bytes,
        "missing": list(entry.missing) if knows else [],
        "lost_cells": list(entry.lost_cells) if knows else [],
    }


def as_record(entry: Entry) -> dict[str, Any]:
    """As the journal keeps it."""
    return {each.name: encode(getattr(entry, each.name)) for each in fields(entry)}


def restored(records: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """What a journal kept; what this version cannot read is left out, and said in the log."""
    for record in records:
        try:
            yield from_record(record)
        except (UnknownValueError, KeyError, TypeError) as error:
            log.warning("an entry of the history cannot be read and is left out (%s): %.200s", error, record)


def from_record(record: Mapping[str, Any]) -> Entry:
    """What `as_record` gave, or an earlier version, which kept sentences. Raises what `restored` says."""
    if "why" in record:
        return Entry(**{name: decode(value) for name, value in record.items()})
    cause, owner = record["cause"], record["owner"]
    about = Mention(record["workload"] or "", record["name"], record["kind"], NOBODY if owner is None else owner)
    return Entry(
        sequence=record["sequence"],
        at=record["at"],
        time=record["time"],
        about=about,
        event=record["event"],
        why=said_before(record["reason"]),
        cause=None if cause is None else Mention(cause["id"], cause["name"], "workload"),
        left=record["from"],
        to=record["to"],
        seconds=record["seconds"],
        bytes=record["bytes"],
        missing=tuple(record.get("missing", ())),
        lost_cells=tuple(record.get("lost_cells", ())),
    )
