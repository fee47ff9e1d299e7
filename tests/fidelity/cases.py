"""How a case of the fidelity suite is written down: cells, what the user does meanwhile, what may differ and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell as a frontend sends it.

    Attributes:
        code: its source, without `%%gpu`.
        answers: what the user types, one for each prompt.
        interrupt_at: the user presses Stop when the cell has put out this text.
        late: text that threads and processes put out after the cell's reply, and that belongs to it all the same.
        options: of the execute request, such as `silent`, `store_history` and `user_expressions`.
    """

    code: str
    answers: tuple[str, ...] = ()
    interrupt_at: str | None = None
    late: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FromFrontend:
    """A widget's message from the browser.

    Attributes:
        comm: which of the comms that this case's cells opened, in order.
        data: the message.
        closes: the frontend closes the comm instead.
        late: as in `Cell`.
    """

    comm: int
    data: Mapping[str, Any] = field(default_factory=dict)
    closes: bool = False
    late: str | None = None


Step = Cell | FromFrontend


@dataclass(frozen=True, slots=True)
class Case:
    """Steps that must look the same everywhere.

    Attributes:
        name: a sentence.
        steps: in order, in one kernel.
        hide: what differs between any two runs of a plain kernel, as pattern and replacement.
        streams_race: stdout and stderr are compared apart: the cell writes to both without flushing, and ipykernel
            sends each on its own timer.
        unlike: by name of the mode, why the case cannot look the same there.
    """

    name: str
    steps: tuple[Step, ...]
    hide: tuple[tuple[str, str], ...] = ()
    streams_race: bool = False
    unlike: Mapping[str, str] = field(default_factory=dict)


def case(name: str, *steps: str | Step, **options: Any) -> Case:
    """A case; a step that is only a text is a cell."""
    return Case(name, tuple(Cell(step) if isinstance(step, str) else step for step in steps), **options)


# What no two runs of the same cell share.
NUMBERS = ((r"\d+(\.\d+)?(e[+-]\d+)?", "N"), (r"N (ns|[mµμ]s|s)\b", "TIME"))
