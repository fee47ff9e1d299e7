"""What is to be played: a workload, a node, costs and rules, as one value that another process can be given."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nls_scheduler.core.model.policy import Policy as Rules
from nls_scheduler.daemon import config
from nls_scheduler.drivers.topology_file import MOST_GPUS
from nls_scheduler.units.counts import counted
from nls_scheduler.units.nearest import nearest
from nls_scheduler.units.sizes import format_bytes, parse_bytes
from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.more_users import newcomers, with_more_users
from nls_scheduler.what_if.play.costs import Costs
from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.reading import numbered
from nls_scheduler.what_if.workload_file.rows import Cell, Extent, Row, WorkloadFileError, is_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nls_scheduler.what_if.more_users import Numbered

Source: TypeAlias = Recipe | Path | tuple[Row, ...]
"""A generator's recipe, a workload file, or rows that were read from somewhere else."""

_TOLD_EVERY_ROWS: Final = 10_000
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


NO_NODE: Final = Node(MOST_GPUS, 2**50)
"""For a workload that is only written: nothing in it can be too large."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All but the policy and the seed.

    Attributes:
        requests_by: what each request is multiplied by, at least to a hundredth of a Gpu and at most to all of it; a
            limit below is raised to it.
        more_users: so many more, who do what the first ones do, a while later.
    """

    source: Source
    node: Node
    costs: Costs = field(default_factory=Costs)
    rules: Rules = field(default_factory=Rules)
    requests_by: float = 1.0
    more_users: int = 0

    def rows(self, more_seed: int = 0, told: Callable[[float], None] = lambda _: None) -> Iterator[Row]:
        """In order of time, each checked against the node. Raises WorkloadFileError.

        `more_seed`: of a recipe only. `told` hears which part has been read.
        """
        return checked(self._numbered(more_seed, told), Checker(self._gpu_bytes))

    def extent(self, more_seed: int = 0, told: Callable[[float], None] = lambda _: None) -> Extent:
        """What all of it comes to; reads it once. Raises WorkloadFileError."""
        checker = Checker(self._gpu_bytes)
        for _ in checked(self._numbered(more_seed, told), checker):
            pass
        return checker.extent()

    def on(self, gpus: int) -> Scenario:
        """The same on so many Gpus."""
        return replace(self, node=replace(self.node, gpus=gpus))

    @property
    def _gpu_bytes(self) -> int | None:
        return None if self.node == NO_NODE else self.node.gpu_bytes

    def _numbered(self, more_seed: int, told: Callable[[float], None]) -> Iterator[Numbered]:
        rows = self._source_rows(more_seed, told)
        if self.more_users:
            more = newcomers(self._source_rows(more_seed, lambda _: None), self.more_users)
            rows = with_more_users(rows, more)
        if self.requests_by != 1.0:
            rows = ((number, self._scaled(row)) for number, row in rows)
        return rows

    def _source_rows(self, more_seed: int, told: Callable[[float], None]) -> Iterator[Numbered]:
        """With the numbers that rows of a file have."""
        if isinstance(self.source, Path):
            yield from numbered(self.source, told)
            return
        rows: Iterable[Row]
        if isinstance(self.source, Recipe):
            rows, length_s = replace(self.source, seed=self.source.seed + more_seed).rows(), self.source.length_s
        else:
            rows, length_s = self.source, self.source[-1].begin_s if self.source else 0.0
        for number, row in enumerate(rows, 1):
            if number % _TOLD_EVERY_ROWS == 0:
                told(min(1.0, row.begin_s / max(length_s, 1e-9)))
            yield None, row

    def _scaled(self, row: Row) -> Row:
        if isinstance(row, Cell):
            return row
        if isinstance(row.request, float):
            request: float | int = min(1.0, max(0.01, row.request * self.requests_by))
        else:
            request = max(1, min(self.node.gpu_bytes, int(row.request * self.requests_by)))
        limit = request if is_below(row.limit, request, self._gpu_bytes) else row.limit
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
            close = nearest(name, [*names, *config.NlsScheduler.class_traits(config=True)])
            if close in names:
                raise ValueError(f"There is no setting {name!r}: did you mean {close}?")
            rules.append(assignment)
            continue
        try:
            values[name] = value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{name} cannot be {text!r}: write a number.")
    policy = config.load(rules, []).policy
    played = {rule.name for rule in fields(Rules)}
    for name in (assignment.partition("=")[0] for assignment in rules):
        if name not in played:
            raise ValueError(f"{name} changes nothing in what is played: leave it out.")
    return Costs(**values), policy


__all__ = ["Node", "Scenario", "Source", "WorkloadFileError", "policies_named", "settings_of"]
