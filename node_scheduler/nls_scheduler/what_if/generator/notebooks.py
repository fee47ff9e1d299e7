"""The rows of a generated workload: the same for the same recipe, in order of time, made while they are read."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Final

from nls_scheduler.units.durations import parse_duration
from nls_scheduler.what_if.generator.presence import DAY_S, HOUR_S, Presence
from nls_scheduler.what_if.generator.published import CELL_MIN, GAP_MIN, MEMORY_GB, SESSION_H, Quantiles
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session, WorkloadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.what_if.workload_file.rows import Row, Size

CELLS_S: Final = Quantiles({p: 60 * value for p, value in CELL_MIN.items()}, least=5.0, most=4 * HOUR_S)
GAPS_S: Final = Quantiles({p: 60 * value for p, value in GAP_MIN.items()}, least=2.0, most=12 * HOUR_S)
MEMORY: Final = Quantiles({p: 1e9 * value for p, value in MEMORY_GB.items()}, least=0.3e9)
GAPS_IN_PRESENCE: Final = 0.9
"""This part of the published gaps is drawn; the longer ones are the absences themselves."""
STATE_PART: Final = (0.3, 0.9)
"""Which part of what a cell held its variables still hold afterwards. Nobody has published it: an assumption."""
SESSION_SPREAD: Final = 0.7
"""Of a session's life, as the standard deviation of its logarithm: an assumption as well."""
COMMAND_H: Final = (0.5, 8.0)
MOST_NOTEBOOKS: Final = 1_000_000
_RECIPE = re.compile(r"^\s*(\d+)\s*[x×]\s*(\S+)\s*$")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is generated: so many users with a notebook each, and commands of one Gpu between them.

    Attributes:
        commands_per_day: submitted at any time; each asks for a whole Gpu.
    """

    notebooks: int
    length_s: float
    seed: int = 1
    request: Size = 0.5
    limit: Size = 1.0
    commands_per_day: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """`18x2d`: notebooks and time. Raises WorkloadFileError with one sentence."""
        match = _RECIPE.match(text)
        if match is None:
            raise WorkloadFileError(f"{text!r} is no recipe: write NOTEBOOKSxTIME, for example 18x2d.")
        try:
            length_s = parse_duration(match[2])
        except ValueError as error:
            raise WorkloadFileError(f"{text!r} is no recipe: {error}") from None
        if not 1 <= int(match[1]) <= MOST_NOTEBOOKS:
            raise WorkloadFileError(f"Cannot generate {match[1]} notebooks: choose 1 to {MOST_NOTEBOOKS}.")
        return cls(int(match[1]), length_s)

    def rows(self) -> Iterator[Row]:
        """All rows in order of their begins."""
        parts = [self._notebook(number) for number in range(self.notebooks)]
        if self.commands_per_day:
            parts.append(self._commands())
        return heapq.merge(*parts, key=attrgetter("begin_s"))

    def _notebook(self, number: int) -> Iterator[Row]:
        # A string seeds by its digest: the same numbers on every machine and version.
        chance = Random(f"notebook {number} of {self.seed}")  # noqa: S311 - a workload, no secret
        presence = Presence(chance)
        at_s = presence.from_then(0.0) if number % 2 else presence.from_then(chance.uniform(0.0, DAY_S))
        while at_s < self.length_s:
            session, cells = self._session(f"notebook-{number + 1:02d}", presence, chance, at_s)
            yield session
            yield from cells
            at_s = presence.from_then(session.end_s + chance.uniform(60.0, HOUR_S))

    def _session(self, name: str, presence: Presence, chance: Random, at_s: float) -> tuple[Session, list[Cell]]:
        begin_s = round(at_s, 3)
        end_s = begin_s + SESSION_H * HOUR_S * chance.lognormvariate(0.0, SESSION_SPREAD)
        size_rank = chance.random()
        cells: list[Cell] = []
        at_s = presence.from_then(begin_s + chance.uniform(20.0, 300.0))
        while at_s < min(end_s, self.length_s):
            length_s = CELLS_S.at(chance.random())
            rank = min(1.0, max(0.0, size_rank + chance.uniform(-0.1, 0.1)))
            memory_bytes = int(MEMORY.at(rank))
            state_bytes = int(memory_bytes * chance.uniform(*STATE_PART))
            cells.append(Cell(name, round(at_s, 3), round(at_s + length_s, 3), memory_bytes, state_bytes))
            gap_s = GAPS_S.at(GAPS_IN_PRESENCE * chance.random())
            at_s = presence.from_then(cells[-1].end_s + gap_s)
        end_s = max(min(end_s, self.length_s), begin_s + 60.0, cells[-1].end_s if cells else 0.0)
        return Session(name, begin_s, round(end_s, 3), self.request, self.limit), cells

    def _commands(self) -> Iterator[Row]:
        chance = Random(f"commands of {self.seed}")  # noqa: S311 - a workload, no secret
        at_s, number = 0.0, 0
        while (at_s := at_s + chance.expovariate(self.commands_per_day / DAY_S)) < self.length_s:
            number += 1
            length_s = chance.uniform(*COMMAND_H) * HOUR_S
            memory_bytes = int(MEMORY.at(chance.random()))
            begin_s = round(at_s, 3)
            yield Command(
                f"command-{number}", begin_s, round(begin_s + length_s, 3), 1.0, 1.0, memory_bytes=memory_bytes
            )
