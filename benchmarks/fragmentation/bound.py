"""How much of a cluster's GPUs no scheduler can exceed, whatever it knows, moves and refuses.

Each GPU holds some set of the pods that came, so the best is a cutting-stock problem. Its relaxation to parts of sets
(Gilmore and Gomory, 1961) is a bound, and stays one where CPUs, nodes and the order of arrivals are ignored: with them
less is possible. Pods may be refused here, and a pod with several GPUs counts as that many with one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from math import gcd
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import linprog

from fragmentation.trace import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fragmentation.trace import Pod

_NEARLY: Final = 1e-6
"""Thousandths of a GPU, for each GPU."""


def most_milli(pods: Iterable[Pod], gpus: int) -> float:
    """Thousandths of so many GPUs that can be allocated to some of `pods`, at most.

    Whatever the solver finds, what is returned is a bound: any prices of sizes, none below zero, prove one, as no GPU
    can be worth more than the best set beyond its price, and no pod more than its price.
    """
    came: Counter[int] = Counter()
    for pod in pods:
        if pod.gpus:
            came[pod.gpu_milli] += pod.gpus
    if not came:
        return 0.0
    sizes = sorted(came)
    sets = [{size: MILLI // size} for size in sizes]
    while True:
        prices, price_of_gpu = _prices(sizes, came, sets, gpus)
        best, value = _best_set({size: size - price for size, price in prices.items()})
        if value <= price_of_gpu + _NEARLY:
            return gpus * value + sum(prices[size] * count for size, count in came.items())
        sets.append(best)


def _prices(
    sizes: Sequence[int], came: Mapping[int, int], sets: Sequence[Mapping[int, int]], gpus: int
) -> tuple[dict[int, float], float]:
    """What one more pod of each size, and one more GPU, would add if GPUs held nothing but these sets."""
    uses = np.array([[one.get(size, 0) for one in sets] for size in sizes] + [[1] * len(sets)])
    worth = [-sum(size * count for size, count in one.items()) for one in sets]
    solved = linprog(worth, A_ub=uses, b_ub=[*(came[size] for size in sizes), gpus], method="highs")
    *prices, price_of_gpu = (max(0.0, -float(price)) for price in solved.ineqlin.marginals)
    return dict(zip(sizes, prices, strict=True)), price_of_gpu


def _best_set(worth: Mapping[int, float]) -> tuple[dict[int, int], float]:
    """The set of sizes that fits on a GPU and is worth the most, and how much that is (a knapsack)."""
    unit = gcd(MILLI, *worth)
    best, last = [0.0] * (MILLI // unit + 1), [0] * (MILLI // unit + 1)
    for room in range(1, len(best)):
        best[room] = best[room - 1]
        for size, value in worth.items():
            if size <= room * unit and best[room - size // unit] + value > best[room]:
                best[room], last[room] = best[room - size // unit] + value, size
    chosen: Counter[int] = Counter()
    room = len(best) - 1
    while room > 0:
        chosen[last[room]] += 1
        room -= last[room] // unit or 1
    del chosen[0]
    return dict(chosen), best[-1]


def all_fit_until(pods: Sequence[Pod], gpus: int) -> int:
    """Thousandths that the first of `pods` ask for, as many of them as can fit all together at most.

    Beyond that even a scheduler that knew the future would have to refuse somebody.
    """

    def too_many(number: int) -> bool:
        first = pods[:number]
        return most_milli(first, gpus) < sum(pod.request_milli for pod in first) - gpus * _NEARLY - 1

    number = bisect_left(range(1, len(pods) + 1), x=True, key=too_many)
    return sum(pod.request_milli for pod in pods[:number])
