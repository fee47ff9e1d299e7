"""The page, as HTML. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tornado.template import Loader

from nls_scheduler.units.clock import local
from nls_scheduler.units.sizes import format_bytes, format_each
from nls_scheduler.views.bars import pieces
from nls_scheduler.wire.told import how_many_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter_server.hub.node import Seen

HISTORY_SHOWN: Final = 30
REFRESHED_EVERY_S: Final = 5
_BAR: Final = 1000
_TEMPLATES: Final = Loader(__file__.removesuffix("page.py"), autoescape="xhtml_escape")


def page(seen: Seen | None, why_not: str, name_of: Callable[[int], str], nonce: str) -> bytes:
    """What is `seen`, or `why_not`.

    Args:
        seen: of the node.
        why_not: one sentence, where nothing is.
        name_of: what a user id is called.
        nonce: by which the page's Content-Security-Policy knows its style.
    """
    gpus = [] if seen is None else [_gpu(gpu, seen) for gpu in seen.status["gpus"]]
    return _TEMPLATES.load("page.html").generate(
        administrator=seen is not None and seen.own_uid is None,
        format_bytes=format_bytes,
        format_each=format_each,
        gpus=gpus,
        history=[] if seen is None else seen.history[: -HISTORY_SHOWN - 1 : -1],
        how_many_gpus=how_many_gpus,
        local=local,
        message=why_not if seen is None else seen.status["message"],
        name_of=name_of,
        nonce=nonce,
        refreshed_every_s=REFRESHED_EVERY_S,
        seen=seen,
        simulated=seen is not None and seen.status["simulated"],
        workloads=shown(seen),
    )


def shown(seen: Seen | None) -> list[dict[str, Any]]:
    """The workloads that are listed."""
    there = [] if seen is None else seen.status["workloads"]
    return [w for w in there if seen is None or seen.own_uid is None or w["owner"] == seen.own_uid]


def _gpu(gpu: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """One Gpu with its bar: kind, begin, width and what it says of each piece."""
    names = {workload["id"]: workload["name"] for workload in seen.status["workloads"]}
    bar, at = [], 0
    for piece in pieces(gpu, seen.status["workloads"], _BAR):
        whose = "" if piece.workload is None else f"{names[piece.workload]}: "
        bar.append({"kind": piece.kind, "at": at, "width": piece.cells, "says": f"{whose}{piece.kind}"})
        at += piece.cells
    return {**gpu, "bar": bar, "whole": _BAR}
