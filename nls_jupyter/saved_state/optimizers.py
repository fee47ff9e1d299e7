"""PyTorch's optimizers with all attributes that they have; PyTorch's own way of pickling leaves out all but three.

Among these are hooks, what cells set, and the `step` by which a scheduler sees that somebody has called it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of optimizers and the reducer of all of them, if PyTorch is imported."""
    if (found := sys.modules.get("torch.optim")) is not None:
        yield found.Optimizer, _reduce


def _reduce(optimizer: Any) -> Any:
    """Nobody's own way of pickling is gone past but PyTorch's (`Optimizer.__getstate__`, PyTorch 2.13)."""
    kind, base = type(optimizer), sys.modules["torch.optim"].Optimizer
    if any(getattr(kind, way) is not getattr(base, way) for way in ("__getstate__", "__reduce__", "__reduce_ex__")):
        return NotImplemented
    return make_optimizer, optimizer.__reduce_ex__(5)[1], dict(vars(optimizer))


def make_optimizer(kind: type, *args: Any) -> Any:
    """One without a state, whose class calls hooks from here on: what the state leads to may have its `step`."""
    optimizer = kind.__new__(kind, *args)
    sys.modules["torch.optim"].Optimizer.__setstate__(optimizer, {"defaults": {}})
    return optimizer
