"""matplotlib's figures, whose own way of pickling forgets the order of their axes and what is to be called."""

from __future__ import annotations

import functools
import itertools
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import CALLBACK_NUMBERS, TRANSFORM_PARENTS
from nls_jupyter.saved_state import figure_links
from nls_jupyter.saved_state.kinds import module_of, owner_of
from nls_jupyter.saved_state.looks import Look, home_of
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.reducers import attributes_are_held
from nls_jupyter.saved_state.wrappers import counted_by

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

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


def shown() -> list[int]:
    """The numbers of pyplot's figures."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return [] if pyplot is None else list(pyplot.get_fignums())


def close_all_but(numbers: Collection[int]) -> None:
    """Close pyplot's other figures; the one that is current is the last that is left."""
    for number in set(shown()).difference(numbers):
        sys.modules["matplotlib.pyplot"].close(number)


def looker(kind: type) -> Callable[[Any], Look | None] | None:
    """How a walk sees matplotlib's own transformations, of which a figure has hundreds; `None` for all else."""
    found = sys.modules.get("matplotlib.transforms")
    if found is None or not issubclass(kind, found.TransformNode) or not module_of(kind).startswith("matplotlib."):
        return None
    ways = (("__getstate__", found.TransformNode), ("__reduce_ex__", object), ("__reduce__", object))
    return _look_at_transform if all(owner_of(kind, way) is owner for way, owner in ways) else None


def _look_at_transform(transform: Any) -> Look | None:
    """Without what is called when a transformation that depends on it goes away: that one makes it anew."""
    if attributes_are_held(transform):
        return None
    attributes = dict(vars(transform))
    dependent = attributes.pop(TRANSFORM_PARENTS.name, {})
    return Look(children=(*attributes.values(), *(refer() for refer in dependent.values())), is_opaque=True)


def handlers(regions: Regions) -> Mapping[type, Callable[[Any], Any]]:
    """The reducer of what figures, axes and artists call, if matplotlib is imported."""
    found = sys.modules.get("matplotlib.cbook")
    return {} if found is None else {found.CallbackRegistry: functools.partial(_reduce_callbacks, regions.note)}


def _reduce_callbacks(note: Callable[[str], None], registry: Any) -> Any:
    if any(not _is_a_library_s(called) for _, _, _, called in figure_links.links_in(registry)):
        note("matplotlib leaves out what a cell has connected to it")
    if type(numbers := CALLBACK_NUMBERS.of(registry, None)) is not itertools.count:
        return NotImplemented
    # matplotlib takes a number each time: a figure that is not changed would never be pickled as before. So one that
    # has all that this one has gives it. Which number is next only the text of a count tells without taking it.
    kind: Any = type(registry)
    stand_in = kind.__new__(kind)
    vars(stand_in).update(vars(registry))
    CALLBACK_NUMBERS.put(stand_in, itertools.count(*counted_by(numbers)))
    return stand_in.__reduce_ex__(5)


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
