"""Ways to choose where a pod goes, one file each: those of the FGD paper, with the details that its simulator has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fragmentation.policies.best_fit import BestFit
from fragmentation.policies.dot_product import DotProduct
from fragmentation.policies.fgd import Fgd
from fragmentation.policies.packing import Packing
from fragmentation.policies.random_choice import RandomChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fragmentation.cluster import Cluster
    from fragmentation.policies.scored import Policy
    from fragmentation.trace import Pod

POLICIES: Final[Mapping[str, Callable[[Cluster, Sequence[Pod], int], Policy]]] = {
    "Random": lambda cluster, _pods, seed: RandomChoice(cluster, seed),
    "DotProd": lambda cluster, _pods, _seed: DotProduct(cluster),
    "Packing": lambda cluster, _pods, _seed: Packing(cluster),
    "BestFit": lambda cluster, _pods, _seed: BestFit(cluster),
    "FGD": lambda cluster, pods, _seed: Fgd(cluster, pods),
}
"""Each for a cluster, the pods of its trace, and a seed."""
