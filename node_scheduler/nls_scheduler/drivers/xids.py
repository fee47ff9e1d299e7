"""Xids: what the NVIDIA driver reports when something goes wrong on a Gpu, and which of them are the Gpu's own fault.

Numbers and meanings: NVIDIA's "XID Errors" catalogue; the division is the one of NVIDIA's Kubernetes device plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""A program's own mistake (out of bounds, page fault, killed, timed out): the Gpu is as good as before."""

_MEANINGS: Final[Mapping[int, str]] = {
    32: "invalid or corrupted push buffer stream",
    38: "driver firmware error",
    48: "double bit ECC error",
    56: "display engine error",
    57: "error programming the video memory interface",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping recorded",
    64: "ECC page retirement or row remapping failed",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    121: "C2C link error",
    140: "unrecovered ECC error",
    143: "GPU initialisation failure",
    149: "NVLink error",
    154: "GPU recovery action changed: a reset or restart is needed",
}


def verdict(xid: int) -> str | None:
    """Why a Gpu that reported `xid` must not be used, one sentence; `None` for an application's own error."""
    if xid in APPLICATION_XIDS:
        return None
    meaning = _MEANINGS.get(xid)
    named = f"Xid {xid} ({meaning})" if meaning else f"Xid {xid}"
    return f"the NVIDIA driver reported {named}: check `dmesg`, reset the GPU, then `nls gpu return`"
