"""Random but seeded crowds: who comes to a node of which size, who leaves again, and who comes last.

The same number always gives the same crowd. Sizes are whole GiB, so that an exact solver can count with integers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from nls_scheduler.core.model.spec import Kind

GPU_GIB = 64
MOST_GPUS = 8
MOST_WORKLOADS = 24
_SHARES = {
    "small": (0.05, 0.25),
    "usual": (0.1, 0.5),
    "any": (0.05, 0.8),
    "halves": (0.5, 0.5),
}
"""Which parts of a Gpu a crowd asks for: from, to."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One workload; sizes in GiB.

    Attributes:
        held: what it allocates once it runs, if it may use that much.
        leaves: whether it has gone before the last one comes.
    """

    kind: Kind
    request: int
    limit: int
    priority: int
    held: int
    leaves: bool


@dataclass(frozen=True, slots=True)
class Crowd:
    """A node, who comes to it in this order, and who comes when all the others have settled."""

    number: int
    gpus: int
    demands: tuple[Demand, ...]
    last: Demand


def crowd(number: int) -> Crowd:
    """The crowd of that number: up to 8 Gpus and 24 workloads, the last one included."""
    chance = random.Random(number)
    gpus = chance.randint(2, MOST_GPUS)
    shares = _SHARES[chance.choice(sorted(_SHARES))]
    fixed = chance.choice([0.0, 0.2, 0.5])
    load = chance.uniform(0.4, 1.3)
    demands: list[Demand] = []
    while len(demands) < MOST_WORKLOADS - 1 and sum(d.request for d in demands) < load * gpus * GPU_GIB:
        demands.append(_demand(chance, shares, fixed))
    request = max(1, round(GPU_GIB * chance.uniform(0.4, 1.0)))
    return Crowd(number, gpus, tuple(demands), Demand(Kind.NOTEBOOK, request, request, 0, request, leaves=False))


def _demand(chance: random.Random, shares: tuple[float, float], fixed: float) -> Demand:
    """A notebook that may burst; with the probability `fixed` a guaranteed notebook or a command."""
    request = max(1, round(GPU_GIB * chance.uniform(*shares)))
    limit = GPU_GIB if chance.random() < 0.5 else chance.randint(min(request + 1, GPU_GIB), GPU_GIB)
    kind = Kind.NOTEBOOK
    if chance.random() < fixed:
        limit, kind = request, chance.choice([Kind.NOTEBOOK, Kind.COMMAND])
    bursts = chance.random() < 0.25
    held = chance.randint(1, limit if bursts else request)
    return Demand(kind, request, limit, chance.randint(0, 2), held, leaves=chance.random() < 0.3)
