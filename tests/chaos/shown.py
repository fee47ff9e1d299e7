"""One cell as its user saw it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from expected_state import APPLIED, LOOKED
from nls_scheduler.demo.jupyter import Outputs


@dataclass(slots=True)
class Shown:
    """One cell as its user saw it.

    Attributes:
        status: ok, error, or lost with its kernel.
        label: its number in the notebook.
    """

    status: str
    label: int | None = None
    ename: str = ""
    evalue: str = ""
    outputs: Outputs = field(default_factory=Outputs)
    seconds: float = 0.0

    @property
    def looks(self) -> list[dict[str, Any]]:
        """What the cell found in its process, before and after it changed that."""
        lines = self.outputs.stdout.splitlines()
        return [json.loads(line.removeprefix(LOOKED)) for line in lines if line.startswith(LOOKED)]

    @property
    def applied(self) -> bool:
        """Whether the user saw that all its changes are made."""
        return APPLIED in self.outputs.stdout

    @property
    def sentences(self) -> list[str]:
        """What it told of the GPU process."""
        said = [line for line in self.outputs.stderr.splitlines() if line.startswith("GPU:")]
        return [*said, *([self.evalue] if self.ename.startswith("Gpu") else [])]

    def __str__(self) -> str:
        error = f" {self.ename}: {self.evalue[:400]}" if self.ename else ""
        looks = [look.get("cells", "nothing") for look in self.looks]
        said = f" said {self.outputs.stderr.strip()[:600]!r}" if self.outputs.stderr.strip() else ""
        applied = " applied" if self.applied else ""
        return f"[{self.label}] {self.status}{error}{applied} {self.seconds:.2f} s, saw {looks}{said}"
