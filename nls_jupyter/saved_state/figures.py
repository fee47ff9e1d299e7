"""matplotlib's figures, whose own way of pickling forgets in which order their axes became the current ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of figures and the reducer of all of them, if matplotlib's are imported."""
    if (found := sys.modules.get("matplotlib.figure")) is not None:
        yield found.Figure, _reduce


def _reduce(figure: Any) -> Any:
    make, args, *rest = figure.__reduce_ex__(5)
    if len(rest) != 3:  # a way of somebody's own
        return NotImplemented
    return make, args, *rest, set_figure_state


def set_figure_state(figure: Any, state: Any) -> None:
    """As its class does it, but for axes that become current later: they come after those that are.

    matplotlib gives the next ones the place that the current ones have (`_AxesStack.__getstate__`, matplotlib 3.11).
    """
    figure.__setstate__(state)
    if figure.axes:
        figure.sca(figure.gca())
