"""matplotlib's widgets, such as sliders: what happens in their figure they hear again, and call what cells gave them.

matplotlib pickles neither: a figure knows its widgets by callbacks only, and a widget the functions of its user.
"""

from __future__ import annotations

import copyreg
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import figure_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Attributes; by attribute, whom the widget calls; by whom it is called.
    Content = tuple[dict[str, Any], dict[str, tuple[type, dict[str, Any]]], list[figure_links.Link]]


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of widgets and the reducer of all of them, if matplotlib's are imported."""
    if (found := sys.modules.get("matplotlib.widgets")) is not None:
        yield found.Widget, _reduce


def _reduce(widget: Any) -> Any:
    reduced: Any = widget.__reduce_ex__(5)
    make, args, state = (*reduced, None)[:3]
    if make is not copyreg.__newobj__ or type(state) is not dict:  # type: ignore[attr-defined]
        return NotImplemented  # a way of somebody's own
    registry = sys.modules["matplotlib.cbook"].CallbackRegistry
    calls = {name: found for name, found in state.items() if isinstance(found, registry)}
    attributes = {name: value for name, value in state.items() if name not in calls}
    described = {name: (type(found), figure_links.state_of(found)) for name, found in calls.items()}
    return make, args, (attributes, described, _called_by_its_figure(widget)), None, None, fill


def _called_by_its_figure(widget: Any) -> list[figure_links.Link]:
    canvas = getattr(widget, "canvas", None)
    found = figure_links.links_in(canvas.callbacks) if canvas is not None else ()
    return [link for link in found if getattr(link[-1], "__self__", None) is widget]


def fill(widget: Any, content: Content) -> None:
    """Give a widget its attributes, and connect it; called by the unpickler."""
    attributes, calls, links = content
    vars(widget).update(attributes)
    for name, (kind, state) in calls.items():
        made: Any = object.__new__(kind)
        made.__setstate__(state)
        vars(widget)[name] = made
    figure_links.connect(links)
