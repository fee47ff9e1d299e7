"""What an exact solver (CP-SAT) says about a node: who can be admitted, how well all can burst, how little must move.

The rules are those of docs/policy.md and nothing else, written down as equations; nothing here knows how the planner
searches. Notebooks are taken to be idle, commands never move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PARTS: Final = 10_000
"""A share is counted in so many parts of one."""
LIMIT: Final = 10.0
"""Of the solver's own clock, about seconds: the same on every machine."""


@dataclass(frozen=True, slots=True)
class Item:
    """One workload; sizes in GiB, Gpus by number.

    Attributes:
        at: where it is; `None`: nowhere yet.
        pinned: it cannot be anywhere else.
        held: what it holds on its Gpu.
    """

    name: str
    request: int
    limit: int
    held: int = 0
    at: int | None = None
    pinned: bool = False

    @property
    def burst(self) -> int:
        """What it may use above its request."""
        return self.limit - self.request

    @property
    def size(self) -> int:
        """The room that it takes."""
        return max(self.request, self.held)


class _Model:
    """Who is where: one yes or no for each item and each of `gpus` equal Gpus."""

    def __init__(self, items: Sequence[Item], gpus: int, capacity: int) -> None:
        self.model = cp_model.CpModel()
        self.items, self.gpus, self.capacity = items, range(gpus), capacity
        self.on = self.places()

    def places(self) -> dict[tuple[str, int], cp_model.IntVar]:
        on = {(i.name, g): self.model.new_bool_var(f"{i.name} on {g}") for i in self.items for g in self.gpus}
        for item in self.items:
            if item.pinned and item.at is not None:
                self.model.add(on[item.name, item.at] == 1)
        return on

    def everybody_has_one(self, on: Mapping[tuple[str, int], cp_model.IntVar]) -> None:
        """Everybody has one place, and the requests fit."""
        for item in self.items:
            self.model.add_exactly_one(on[item.name, g] for g in self.gpus)
        for gpu in self.gpus:
            self.model.add(sum(i.request * on[i.name, gpu] for i in self.items) <= self.capacity)

    def hint(self) -> None:
        """Begin with how it is."""
        for item in self.items:
            for gpu in self.gpus if item.at is not None else ():
                self.model.add_hint(self.on[item.name, gpu], item.at == gpu)

    def solve(self) -> cp_model.CpSolver | None:
        """`None`: it is impossible."""
        solver, status = self._solved()
        if status == cp_model.OPTIMAL:
            return solver
        if status == cp_model.INFEASIBLE:
            return None
        raise UndecidedError(f"no answer within the limit: {self.items} on {len(self.gpus)} Gpus")

    def _solved(self) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        solver.parameters.max_deterministic_time = LIMIT
        return solver, solver.solve(self.model)


class UndecidedError(Exception):
    """The solver has neither found an answer nor proved that there is none."""


def can_be_admitted(items: Sequence[Item], gpus: int, capacity: int) -> bool:
    """Whether all of `items` can have a home at the same time."""
    model = _Model(items, gpus, capacity)
    model.everybody_has_one(model.on)
    return model.solve() is not None


def admitted(have: Sequence[Item], waiting: Sequence[Item], gpus: int, capacity: int) -> set[str]:
    """Who of `waiting` gets a home, the first of them before the others, when nobody of `have` loses theirs."""
    taken = list(have)
    for item in waiting:
        if can_be_admitted([*taken, item], gpus, capacity):
            taken.append(item)
    return {item.name for item in taken} - {item.name for item in have}


def largest_smallest_share(items: Sequence[Item], gpus: int, capacity: int, reached: float) -> float:
    """The largest smallest share of (limit - request) that every burstable one can reach at once, 0.0 to 1.0.

    Whoever is not `pinned` may be moved for it; `reached` is what they have where they are. What no placement was found
    for, nor proved to have none, counts as possible: the answer is the optimum or slightly above, never below.
    """
    burst = sum(item.burst for item in items)
    possible = min(PARTS, (gpus * capacity - sum(i.request for i in items)) * PARTS // burst) if burst else PARTS
    low = int(reached * PARTS)
    while possible - low > max(1, low // 500):
        share = (low + possible + 1) // 2
        if _fits_with(items, gpus, capacity, share):
            low = share
        else:
            possible = share - 1
    return max(reached, low / PARTS)


def _fits_with(items: Sequence[Item], gpus: int, capacity: int, share: int) -> bool:
    """Whether everybody fits where each has so many parts of its burst, and the requests alone where nobody bursts."""
    model = _Model(items, gpus, capacity)
    model.everybody_has_one(model.on)
    model.hint()
    for gpu in model.gpus:
        used = [(i.request * PARTS + i.burst * share) * model.on[i.name, gpu] for i in items]
        model.model.add(sum(used) <= capacity * PARTS)
    return model.solve() is not None


def fewest_bytes(items: Sequence[Item], newcomer: Item, gpus: int, capacity: int) -> int | None:
    """The fewest GiB that have to leave their Gpu so that `newcomer` runs; `None`: it cannot be admitted.

    Who holds more than its request may be without a Gpu afterwards, as long as it has a home; nobody else.
    """
    everybody = [*items, newcomer]
    model = _Model(everybody, gpus, capacity)
    homes = model.places()
    model.everybody_has_one(homes)
    left = []
    for item in everybody:
        places = [model.on[item.name, g] for g in model.gpus]
        if item.held > item.request and not item.pinned:
            model.model.add_at_most_one(places)
        else:
            model.model.add_exactly_one(places)
        if not item.burst:
            for gpu in model.gpus:
                model.model.add(homes[item.name, gpu] == model.on[item.name, gpu])
        if item.at is not None:
            left.append(item.held * (1 - model.on[item.name, item.at]))
    for gpu in model.gpus:
        model.model.add(sum(i.size * model.on[i.name, gpu] for i in everybody) <= capacity)
    model.hint()
    model.model.minimize(sum(left))
    solver = model.solve()
    return None if solver is None else round(solver.objective_value)
