"""matplotlib's figures, whose own way of pickling forgets the order of their axes and what is to be called."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state import figure_links
from nls_jupyter.saved_state.looks import home_of
from nls_jupyter.saved_state.origins import is_the_users_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nls_jupyter.saved_state.regions import Regions

_TELLS: Final = "stale_callback"


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Base classes of figures and of what is in them, and the reducers of all of them, if they are imported."""
    if (found := sys.modules.get("matplotlib.figure")) is not None:
        yield found.Figure, _reduce
    if (found := sys.modules.get("matplotlib.artist")) is not None:
        yield found.Artist, _reduce_artist


def _reduce_artist(artist: Any) -> Any:
    """As matplotlib does it, which forgets whom an artist tells that it is to be drawn again."""
    reduced = artist.__reduce_ex__(5)
    state = reduced[2] if type(reduced) is tuple and len(reduced) > 2 else None
    if type(state) is dict and _TELLS in state and artist.stale_callback is not None:
        state[_TELLS] = artist.stale_callback
    return reduced


def _reduce(figure: Any) -> Any:
    make, args, *rest = figure.__reduce_ex__(5)
    if len(rest) != 3:  # a way of somebody's own
        return NotImplemented
    state, *items = rest
    return make, args, (state, figure_links.links_of(figure)), *items, set_figure_state


def set_figure_state(figure: Any, content: tuple[Any, list[figure_links.Link]]) -> None:
    """As its class does it, but for axes that become current later, and for what matplotlib does not connect again.

    Axes come after those that are there: matplotlib gives the next ones the place that the current ones have
    (`_AxesStack.__getstate__`, matplotlib 3.11).
    """
    state, links = content
    figure.__setstate__(state)
    figure_links.connect(links)
    if figure.axes:
        figure.sca(figure.gca())


def handlers(regions: Regions) -> Mapping[type, Callable[[Any], Any]]:
    """The reducer of what figures, axes and artists call, if matplotlib is imported."""
    found = sys.modules.get("matplotlib.cbook")
    return {} if found is None else {found.CallbackRegistry: functools.partial(_reduce_callbacks, regions.note)}


def _reduce_callbacks(note: Callable[[str], None], registry: Any) -> Any:
    if any(not _is_a_library_s(called) for _, _, _, called in figure_links.links_in(registry)):
        note("matplotlib leaves out what a cell has connected to it")
    return NotImplemented


def _is_a_library_s(called: Any) -> bool:
    """Whether nobody but a library can have connected it; what matplotlib wraps is somebody's, too."""
    function = getattr(called, "__func__", called)
    if isinstance(function, functools.partial):
        return all(map(_is_a_library_s, filter(callable, (function.func, *function.args))))
    if isinstance(function, types.FunctionType):
        home = home_of(function)
        inside = [cell.cell_contents for cell in function.__closure__ or ()]
        return (
            home is not None and not is_the_users_module(home) and all(map(_is_a_library_s, filter(callable, inside)))
        )
    kind = function if isinstance(function, type) else type(function)
    return kind.__module__ != "builtins" and not is_the_users_module(kind.__module__)
