"""What moves cost: named values, each with its source. None of them was measured by this project on a GPU yet."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

MIB: Final = 2**20
_MOST: Final = 1e15
_LEAST: Final = {"_per_s": 1.0, "quantum_s": 1e-3, "idle_s": 1e-3}
"""By how a name ends; below that time would stand still."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in seconds, sizes in bytes, bandwidths in bytes per second; any is set by `--set NAME=VALUE`."""

    context_s: float = 0.5
    context_bytes: float = 400 * MIB
    imports_s: float = 4.0
    restore_bytes_per_s: float = 10e9
    save_bytes_per_s: float = 10e9
    order_s: float = 0.05
    release_s: float = 0.1
    stop_s: float = 0.25
    paging_bytes_per_s: float = 10e9
    gpu_part: float = 1.0
    again_cells: float = 1.0
    culler_idle_s: float = 3600.0
    quantum_s: float = 30.0
    replica_s: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what would let time stand still, or run backwards."""
        for field in fields(self):
            value = getattr(self, field.name)
            least = next((least for end, least in _LEAST.items() if field.name.endswith(end)), 0.0)
            if not least <= value <= _MOST:
                raise ValueError(f"{field.name} cannot be {value:g}.")
        if self.gpu_part > 1:
            raise ValueError(f"gpu_part is a part of a cell, at most 1, and not {self.gpu_part:g}.")

    def start_s(self, state_bytes: int, *, standing_by: bool) -> float:
        """A GPU process on a Gpu with `state_bytes` restored; `standing_by`: its imports are done."""
        imports_s = 0.0 if standing_by else self.imports_s
        return imports_s + self.context_s + state_bytes / self.restore_bytes_per_s


SOURCES: Final = {
    "context_s": "cuInit and a context take 0.06 to 2.7 s, by node",
    "context_bytes": "a context takes 300 to 520 MiB",
    "imports_s": "importing PyTorch: a few seconds; an assumption. Ours has a process that stands by with imports done",
    "restore_bytes_per_s": "memory that is not registered: 10 to 17 GB/s to an H200 (registered: 55)",
    "save_bytes_per_s": "as back; what was saved after the last cell is not saved again",
    "order_s": "an order to a supervisor and its answer: an assumption; on simulated GPUs a start takes 0.4 s in all",
    "release_s": "the daemon looks twenty times a second while memory is on its way back",
    "stop_s": "a process whose variables are saved ends: `nls demo` shows 0.29 s on simulated GPUs,"
    " 346 MiB saved in it",
    "paging_bytes_per_s": "managed memory that comes back over PCIe: as restores; an assumption in nvshare's favour",
    "gpu_part": "of n cells that compute on one GPU at once each goes at 1/n: the worst case, of cells that always "
    "compute; 0: they never disturb each other",
    "again_cells": "after a loss the user runs so many of the last cells again: an assumption in favour of"
    " whoever loses memory",
    "culler_idle_s": "the default of Zero to JupyterHub's culler, one hour",
    "quantum_s": "nvshare's default time quantum",
    "replica_s": "choosing the replica that runs the cell: an assumption",
}
"""Why each value is what it is, for the report."""
