"""A Gpu as a bar of its workloads, as HTML without scripts or style sheets: JupyterLab's panel has the same. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Patterns, not only colours; with JupyterLab's theme where there is one, else as in its light theme.
_LINE: Final = "var(--jp-border-color1, #bdbdbd)"
_BACKGROUNDS: Final = {
    "guaranteed": "var(--jp-layout-color3, #bdbdbd)",
    # Mixed with the theme's ground, so that the theme's letters can be read on it, and a line below.
    "own": "linear-gradient(var(--jp-brand-color1, #1976d2) 0 0) bottom / 100% 3px no-repeat, "
    "color-mix(in srgb, var(--jp-brand-color1, #1976d2) 25%, var(--jp-layout-color1, #fff))",
    "burst": "repeating-linear-gradient(45deg, var(--jp-brand-color2, #64b5f6) 0 3px, transparent 3px 7px)",
    "not placed": "radial-gradient(var(--jp-ui-font-color2, #757575) 1px, transparent 1.5px) 0 0 / 6px 6px",
    "free": "transparent",
}
_BAR: Final = (
    f"display:flex;height:22px;line-height:22px;max-width:40em;border:1px solid {_LINE};border-radius:2px;"
    # Where there is no theme, the letters are as dark as the grounds are light.
    "overflow:hidden;margin:2px 0 6px;color:var(--jp-ui-font-color1, #212121)"
)
_SEGMENT: Final = f"min-width:0;overflow:hidden;white-space:nowrap;text-overflow:ellipsis;box-shadow:-1px 0 {_LINE}"


def bar(gpu: Mapping[str, Any], workloads: Sequence[Mapping[str, Any]], own_id: str | None) -> str:
    """What each workload on `gpu` is guaranteed, used or not, and what it uses above that; the rest is free.

    Args:
        gpu: its entry of the daemon's status.
        workloads: the status's entries of all workloads.
        own_id: of the notebook that shows it.
    """
    here = [workload for workload in workloads if gpu["uuid"] in workload["current"]]
    pieces = [piece for workload in here for piece in _pieces(workload, own_id)]
    pieces.append(("not placed", "", gpu["unplaced_bytes"]))
    taken = sum(size for _, _, size in pieces)
    pieces.append(("free", "", max(0, gpu["memory_total_bytes"] - taken)))
    segments = "".join(_segment(*piece) for piece in pieces if piece[2] > 0)
    words = "; ".join(_words(*piece) for piece in pieces if piece[2] > 0)
    return f"<div role='img' aria-label='{escape(words)}' style='{_BAR}'>{segments}</div>"


def _pieces(workload: Mapping[str, Any], own_id: str | None) -> list[tuple[str, str, int]]:
    request_bytes: int = workload["request_bytes"]
    each = workload["memory_used_bytes"] // max(1, len(workload["current"]))
    kind = "own" if workload["id"] == own_id else "guaranteed"
    return [(kind, workload["name"], request_bytes), ("burst", workload["name"], max(0, each - request_bytes))]


def _words(kind: str, name: str, size: int) -> str:
    return f"{name + ': ' if name else ''}{format_bytes(size)} {'guaranteed' if kind == 'own' else kind}"


def _segment(kind: str, name: str, size: int) -> str:
    text = escape(name) if kind in ("own", "guaranteed") else ""
    # The share grows from nothing, so that long names take no more room than they are given.
    style = f"flex:{size} 1 0;background:{_BACKGROUNDS[kind]};{_SEGMENT}"
    return f"<div title='{escape(_words(kind, name, size))}' style='{style}'>{text and f'&nbsp;{text}'}</div>"
