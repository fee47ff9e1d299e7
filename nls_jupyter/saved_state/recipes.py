"""Names that are computed again instead of being saved: `%gpu recompute NAME: expression`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.manifest import MissingName, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


PATIENCE_S: Final = 90.0
"""Each may take as long, as a cell that loads a model does. The daemon waits 120 s for a process to start."""


def check(name: str, expression: str) -> None:
    """Raises ValueError, with a sentence for the user, for what cannot be a recipe."""
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not a name")
    try:
        ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"the recipe of {name} is not an expression: {error.msg}") from None


def compute(
    recipes: Mapping[str, str], namespace: dict[str, Any], progress: Callable[[], None] = lambda: None
) -> tuple[list[str], list[MissingName]]:
    """Evaluate each in `namespace`, in the order in which they were given: a later one may use an earlier one."""
    computed, failed = [], []
    for name, expression in recipes.items():
        progress()
        try:
            namespace[name] = eval(expression.strip(), namespace)  # noqa: S307 - the user's own words, as in a cell
        except BaseException as error:  # noqa: BLE001 - named, with its recipe
            reason = f"its recipe {expression!r} failed: {describe(error)}"
            failed.append(MissingName(name, "recomputed", reason))
        else:
            computed.append(name)
    return computed, failed
