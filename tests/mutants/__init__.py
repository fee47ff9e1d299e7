"""Mutants: defects made by hand in the rules of the planner, each of which some test must catch.

`of_*.py` list them, `tools/mutants.py` (`make mutants`) tries them all and names the survivors.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[2] / "node_scheduler" / "nls_scheduler"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect.

    Attributes:
        file: the mutated module, below `nls_scheduler`.
        name: short; unique among the module's mutants.
        rule: the sentence that no longer holds.
        old: text that occurs exactly once in the module.
        new: what is there instead.
    """

    file: str
    name: str
    rule: str
    old: str
    new: str

    @property
    def id(self) -> str:
        """How people and results name it."""
        return f"{self.file}: {self.name}"

    def of(self, source: str) -> str:
        """`source` with the defect in it. Raises ValueError where the old text is not there exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.id}: its old text is there {source.count(self.old)} times, not once: {self.old!r}")
        return source.replace(self.old, self.new)


def mutants_of(file: str, *rows: tuple[str, str, str, str]) -> list[Mutant]:
    """The mutants of one module, from rows of name, rule, old text and new text."""
    return [Mutant(file, *row) for row in rows]


def everything() -> list[Mutant]:
    """All mutants of all lists."""
    return list(_listed())


def _listed() -> Iterator[Mutant]:
    for path in sorted(Path(__file__).parent.glob("of_*.py")):
        yield from import_module(f"{__name__}.{path.stem}").MUTANTS
