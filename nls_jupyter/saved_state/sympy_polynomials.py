"""Polynomials of SymPy: pickle leaves out over which finite or algebraic field they are, and chooses one anew.

`x**2 + 3` modulo 5 would come back as one over the integers, which has other factors.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The class of polynomials and the reducer of all of them, if SymPy is imported."""
    if (found := sys.modules.get("sympy.polys.polytools")) is not None and hasattr(found, "Poly"):
        yield found.Poly, _reduce


def _reduce(polynomial: Any) -> Any:
    domain, expression = polynomial.get_domain(), polynomial.as_expr()
    if domain.is_FiniteField:
        field = {"modulus": domain.characteristic(), "symmetric": domain.sym}
    elif domain.is_AlgebraicField:
        field = {"extension": domain.orig_ext}
    else:
        return NotImplemented
    return polynomial_over, (expression, polynomial.gens, field)


def polynomial_over(expression: Any, gens: tuple[Any, ...], field: Mapping[str, Any]) -> Any:
    """Called by the unpickler."""
    return importlib.import_module("sympy").Poly(expression, *gens, **field)
