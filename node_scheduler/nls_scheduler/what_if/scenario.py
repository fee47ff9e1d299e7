"""What is to be played: a workload, a node, costs and rules, as one value that another process can be given."""

from __future__ import annotations

import heapq
import math
import re
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nls_scheduler.core.model.policy import Policy as Rules
from nls_scheduler.daemon import config
from nls_scheduler.drivers.topology_file import MOST_GPUS
from nls_scheduler.units.counts import counted
from nls_scheduler.units.sizes import format_bytes, parse_bytes
from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.play.costs import Costs
from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.reading import extent_of, rows_of
from nls_scheduler.what_if.workload_file.rows import Cell, Extent, Row, WorkloadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Source: TypeAlias = Recipe | Path | tuple[Row, ...]
"""A generator's recipe, a workload file, or rows that were read from somewhere else."""

ANOTHER_BEGINS_S: Final = 1800.0
"""How much later than the user that they are like another user does everything."""
_NODE = re.compile(r"^\s*(\d+)\s*[x×]\s*(\S.*?)\s*$")
_LIKE_NODE = re.compile(r"^\s*N\s*([+-]\s*\d+)?\s*(?:[x×]\s*(\S.*?))?\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Node:
    """So many equal Gpus."""

    gpus: int
    gpu_bytes: int

    @classmethod
    def parse(cls, text: str, running: Node | None = None) -> Node:
        """`8x80GiB`; with a `running` node also `N`, `N-1` or `N+1x80GiB`. Raises ValueError with one sentence."""
        match, like = _NODE.match(text), _LIKE_NODE.match(text)
        if match is not None:
            node = cls(int(match[1]), parse_bytes(match[2]))
        elif like is not None and running is not None:
            more = int(like[1].replace(" ", "")) if like[1] else 0
            node = cls(running.gpus + more, parse_bytes(like[2]) if like[2] else running.gpu_bytes)
        else:
            only = "" if like is None else "; N is the number of GPUs of a node whose journal is read"
            raise ValueError(f"{text!r} is no node: write GPUSxSIZE, for example 8x80GiB{only}.")
        if not 1 <= node.gpus <= MOST_GPUS:
            raise ValueError(f"A node of {node.gpus} GPUs cannot be simulated: choose 1 to {MOST_GPUS}.")
        return node

    def __str__(self) -> str:
        return f"{counted(self.gpus, 'GPU')} of {format_bytes(self.gpu_bytes)}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """All but the policy and the seed.

    Attributes:
        requests_by: what each session's request is multiplied by, at least to a hundredth of a Gpu.
        more_users: so many more, who do what the first ones do, a while later.
    """

    source: Source
    node: Node
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)
    requests_by: float = 1.0
    more_users: int = 0

    def rows(self, more_seed: int = 0) -> Iterator[Row]:
        """In order of time, each checked against the node. Raises WorkloadFileError. `more_seed`: of a recipe only."""
        rows = self._source_rows(more_seed)
        for number in range(self.more_users):
            rows = heapq.merge(rows, self._like(number, more_seed), key=attrgetter("begin_s"))
        if self.requests_by != 1.0:
            rows = (self._scaled(row) for row in rows)
        if isinstance(self.source, Path) and not self.more_users and self.requests_by == 1.0:
            return rows
        return checked(enumerate(rows, 3), Checker(self.node.gpu_bytes))

    def extent(self, more_seed: int = 0) -> Extent:
        """What all of it comes to; reads it once. Raises WorkloadFileError."""
        if isinstance(self.source, Path) and not self.more_users and self.requests_by == 1.0:
            return extent_of(self.source, self.node.gpu_bytes)
        checker = Checker(self.node.gpu_bytes)
        for number, row in enumerate(self.rows(more_seed), 3):
            checker.take(number, row)
        return checker.extent()

    def on(self, gpus: int) -> Scenario:
        """The same on so many Gpus."""
        return replace(self, node=replace(self.node, gpus=gpus))

    def _source_rows(self, more_seed: int) -> Iterator[Row]:
        if isinstance(self.source, Recipe):
            return replace(self.source, seed=self.source.seed + more_seed).rows()
        if isinstance(self.source, Path):
            return rows_of(self.source, self.node.gpu_bytes)
        return iter(self.source)

    def _like(self, number: int, more_seed: int) -> Iterator[Row]:
        """A user like the one whose session is the `number`-th to begin, for whatever that one does."""
        names: list[str] = []
        for row in self._source_rows(more_seed):
            if row.name not in names and not isinstance(row, Cell):
                names.append(row.name)
            if len(names) > number:
                break
        if not names:
            return
        like = names[number % len(names)]
        later_s = ANOTHER_BEGINS_S * (1 + number // len(names))
        for row in self._source_rows(more_seed):
            if row.name == like:
                begin_s, end_s = row.begin_s + later_s, row.end_s + later_s
                yield replace(row, name=f"{like} again {number + 1}", begin_s=begin_s, end_s=end_s)

    def _scaled(self, row: Row) -> Row:
        if isinstance(row, Cell):
            return row
        if isinstance(row.request, float):
            request: float | int = min(1.0, max(0.01, row.request * self.requests_by))
        else:
            request = max(1, min(self.node.gpu_bytes, int(row.request * self.requests_by)))
        limit = row.limit if type(row.limit) is not type(request) else max(row.limit, request)
        return replace(row, request=request, limit=limit)


def policies_named(text: str | None) -> tuple[str, ...]:
    """Those of a list with commas, or all. Raises ValueError with one sentence."""
    if text is None:
        return tuple(TITLES)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in TITLES:
            raise ValueError(f"There is no policy {name!r}: there are {', '.join(TITLES)}.")
    return names


def settings_of(assignments: Sequence[str]) -> tuple[Costs, Rules]:
    """What `--set NAME=VALUE` says of the costs of moves, and of the daemon's settings. Raises ValueError."""
    names = {cost.name for cost in fields(Costs)}
    values: dict[str, Any] = {}
    rules = []
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        if name not in names:
            rules.append(assignment)
            continue
        try:
            values[name] = value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{name} cannot be {text!r}: write a number.")
    return Costs(**values), config.load(rules, []).policy


__all__ = ["Node", "Scenario", "Source", "WorkloadFileError", "policies_named", "settings_of"]
