"""One picture of the node for `%gpu`: as text, as HTML and as JSON. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from nls_jupyter.notebook.status_bars import bar
from nls_jupyter.supervisor.notices import clock_time, ordinal
from nls_scheduler.units.sizes import format_bytes, format_each
from nls_scheduler.wire.errors import WITHOUT_GPU
from nls_scheduler.wire.told import how_many_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping

# Not plain JSON: JupyterLab would prefer its tree view to the table.
MIME_TYPE = "application/vnd.nls.status+json"
_FIGURES = frozenset({"used", "request", "limit"})
_HEADS = ("", "workload", "phase", "GPU", "used", "request", "limit", "why")


class GpuStatus:
    """What `%gpu` returns: IPython shows the richest form that the frontend can."""

    def __init__(self, status: Mapping[str, Any], own_id: str | None, saved: str = "") -> None:
        """`saved` is a sentence about the notebook's saved state; empty for none."""
        self._status = status
        self._own_id = own_id
        self._saved = saved

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Text, HTML and JSON of the same facts."""
        del include, exclude
        as_json = {**self._status, "own": self._own_id}
        return {"text/plain": repr(self), "text/html": self.as_html(), MIME_TYPE: as_json}

    def __repr__(self) -> str:
        lines = [self.headline(), *(_gpu_line(gpu) for gpu in self._status["gpus"])]
        if self._status["workloads"]:
            rows = [_HEADS, *(self._row(workload) for workload in self._status["workloads"])]
            widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
            lines += [""]
            lines += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(lines)

    def headline(self) -> str:
        """This notebook in one sentence."""
        message = self._status.get("message") or ""
        if not self._status["gpus"]:
            advice = "" if self._status["simulated"] else WITHOUT_GPU
            return f"{message or 'This node has no GPU.'} {advice}".rstrip()
        simulated = "Simulated GPUs." if self._status["simulated"] else ""
        return " ".join(part for part in (message, simulated, self._own(), self._saved) if part)

    def _own(self) -> str:
        own = next((w for w in self._status["workloads"] if w["id"] == self._own_id), None)
        if own is None:
            return "This notebook has no GPU: %%gpu or %gpu request asks for one."
        where = f" on {' and '.join(own['gpus'])}" if own["gpus"] else ""
        waits = own["position"] is not None and own["phase"] != "starting"
        place = f", {ordinal(own['position'])} in queue" if waits else ""
        return f"This notebook is {own['phase']}{where}{place}{_stands(own)}{_kept(own)}: {own['reason']}."

    def as_html(self) -> str:
        """A bar for each Gpu and a table, in the frontend's own style; every text is escaped."""
        heads = "".join(f"<th style='text-align:left'>{escape(h)}</th>" for h in _HEADS)
        rows = "".join(f"<tr>{''.join(map(_cell, _HEADS, self._row(w)))}</tr>" for w in self._status["workloads"])
        gpus = "".join(
            f"<div title='{escape(g['uuid'])}'>{escape(_gpu_line(g))}"
            f"{bar(g, self._status['workloads'], self._own_id)}</div>"
            for g in self._status["gpus"]
        )
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<div><p>{escape(self.headline())}</p>{gpus}{table}</div>"

    def _row(self, workload: Mapping[str, Any]) -> tuple[str, ...]:
        gpus = how_many_gpus(workload)
        return (
            "→" if workload["id"] == self._own_id else "",
            workload["name"],
            workload["phase"] + (", executing" if workload["executing"] else "") + _stands(workload) + _kept(workload),
            " ".join(workload["gpus"]) + (" (borrowed)" if workload["borrowed"] else ""),
            format_bytes(workload["memory_used_bytes"]),
            format_each(workload["request_bytes"], gpus),
            format_each(workload["limit_bytes"], gpus),
            workload["reason"],
        )


def _cell(head: str, text: str) -> str:
    # A number and its unit stay together; a long name may be broken anywhere.
    style = "white-space:nowrap" if head in _FIGURES else "overflow-wrap:anywhere;min-width:6em" if head else ""
    return f"<td style='text-align:left;{style}'>{escape(text)}</td>"


def _stands(workload: Mapping[str, Any]) -> str:
    frozen = workload.get("frozen")  # a daemon of before does not say
    if frozen is None:
        return ""
    whom = "" if frozen["for"] is None else f", for {frozen['for']}"
    return f", its cell stands still since {clock_time(frozen['since'])}{whom}"


def _kept(workload: Mapping[str, Any]) -> str:
    # A daemon of before does not say.
    until = workload.get("keep_until")
    return "" if until is None else f", kept until {clock_time(until)}"


def _gpu_line(gpu: Mapping[str, Any]) -> str:
    used = "unknown" if gpu["memory_used_bytes"] is None else format_bytes(gpu["memory_used_bytes"])
    health = "" if gpu["healthy"] else ", out of service"
    return f"GPU {gpu['index']} ({gpu['name']}): {used} of {format_bytes(gpu['memory_total_bytes'])} used{health}"
