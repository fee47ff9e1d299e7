"""Operators of PyTorch's: `torch.ops.aten.add`, and those that cells define with `torch.library.custom_op`.

They are known by numbers of compiled code: they are found by their names, and those of cells defined again before that,
with all that was registered for them. PyTorch 2.13: `torch/_ops.py`, `torch/_library/custom_ops.py`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Their classes, as far as they are imported."""
    if (kind := seams.TORCH_OPERATOR.here(None)) is not None:
        yield kind, _reduce
    if (kind := seams.TORCH_OVERLOADED.here(None)) is not None:
        yield kind, _reduce_overloaded
    if (kind := seams.TORCH_OVERLOAD.here(None)) is not None:
        yield kind, lambda overload: (getattr, (overload.overloadpacket, overload.__name__.rpartition(".")[2]))


def handlers(torch: Any) -> dict[type, Callable[[Any], Any]]:
    """Reducers of what they are found in."""
    return {
        type(torch.ops): lambda _: (getattr, (torch, "ops")),
        type(torch.ops.aten): lambda namespace: (getattr, (torch.ops, namespace.name)),
    }


def _reduce_overloaded(packet: Any) -> Any:
    known_as: str = seams.TORCH_OPERATOR_NAME.of(packet)
    definition = seams.TORCH_OPERATORS.here({}).get(known_as)
    return _overloaded, (sys.modules["torch"].ops, *known_as.split("::"), definition)


def _overloaded(operators: Any, namespace: str, name: str, _definition: object) -> Any:
    return getattr(getattr(operators, namespace), name)


def _reduce(operator: Any) -> Any:
    parts = {name: seam.of(operator) for name, seam in seams.TORCH_OPERATOR_PARTS.items()}
    parts["kernels"] = {device: _given(kernel) for device, kernel in parts["kernels"].items()}
    definition = tuple(parts.pop(name) for name in ("namespace", "name", "schema", "tags"))
    return _define, definition, parts, None, None, _register


def _given(kernel: Callable[..., Any]) -> Any:
    """The function behind the one that PyTorch calls."""
    return inspect.getclosurevars(inspect.unwrap(kernel)).nonlocals["fn"]


def _define(namespace: str, name: str, schema: str, tags: Any) -> Any:
    importlib.import_module("torch.library")
    return seams.TORCH_OPERATOR.here()(namespace, name, schema, None, tags)


def _register(operator: Any, parts: dict[str, Any]) -> None:
    """Its functions, which may lead back to it."""
    seams.TORCH_OPERATOR_PARTS["function"].put(operator, parts["function"])
    for device, kernel in parts["kernels"].items():
        operator.register_kernel(device, kernel)
    if parts["fake"] is not None:
        operator.register_fake(parts["fake"])
    if parts["backward"] is not None:
        operator.register_autograd(parts["backward"], setup_context=parts["setup_context"])
    if parts["vmap"] is not None:
        operator.register_vmap(parts["vmap"])
    for kind, function in parts["torch_dispatch"].items():
        operator.register_torch_dispatch(kind, function)
    for device, data_type in parts["autocast"].items():
        operator.register_autocast(device, data_type)
