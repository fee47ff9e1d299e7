"""The rows of a workload file, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from nls_scheduler.units.sizes import to_bytes

VERSION: Final = 1
FIRST_LINE: Final = f"# nls-workload {VERSION}"
COLUMNS: Final = (
    "row",
    "name",
    "begin_s",
    "end_s",
    "request",
    "limit",
    "priority",
    "queue",
    "memory_bytes",
    "state_bytes",
)

Size: TypeAlias = float | int
"""A fraction of a Gpu (float) or bytes (int), as `units.sizes.parse_size` gives it."""


def is_below(limit: Size, request: Size, gpu_bytes: int | None) -> bool:
    """Whether a limit is below its request; of a fraction and bytes nobody can tell where the Gpus are not known."""
    if type(limit) is type(request):
        return limit < request
    return gpu_bytes is not None and to_bytes(limit, gpu_bytes) < to_bytes(request, gpu_bytes)


class WorkloadFileError(ValueError):
    """What is wrong with a workload, in one sentence for whoever made it."""


class EmptyWorkloadError(WorkloadFileError):
    """There is nothing in it."""


@dataclass(frozen=True, slots=True)
class Session:
    """A notebook that is open from `begin_s` to `end_s`, and asks for a part of one Gpu."""

    name: str
    begin_s: float
    end_s: float
    request: Size
    limit: Size
    priority: int = 0
    queue: str = "default"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the session `name`, as it ran with a Gpu to itself.

    Attributes:
        memory_bytes: the most that it held on its Gpu, without the CUDA context.
        state_bytes: what of that variables still hold when it has ended: what a move carries.
    """

    name: str
    begin_s: float
    end_s: float
    memory_bytes: int
    state_bytes: int

    @property
    def length_s(self) -> float:
        """How long it computes."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class Command:
    """A command that was submitted at `begin_s` and computes for `end_s - begin_s`, once it has a Gpu."""

    name: str
    begin_s: float
    end_s: float
    request: Size
    limit: Size
    priority: int = 0
    queue: str = "default"
    memory_bytes: int = 0


Row: TypeAlias = Session | Cell | Command


@dataclass(frozen=True, slots=True)
class Extent:
    """What a whole workload comes to; times in seconds.

    Attributes:
        least_request_bytes: of its sessions; `None` where there is none, or the Gpus' memory is not known.
    """

    rows: int
    sessions: int
    cells: int
    commands: int
    begin_s: float
    end_s: float
    most_at_once: int
    least_request_bytes: int | None = None

    @property
    def length_s(self) -> float:
        """From its first row's begin to the last end."""
        return self.end_s - self.begin_s
