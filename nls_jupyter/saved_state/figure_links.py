"""Which parts of a figure follow each other: a colorbar its image, an image the norm and the colors that it shares.

matplotlib connects them by callbacks, of which it pickles only some; the others are connected again when the figure is
there, under the numbers by which their owners know them. They go by the figure and not by the norm that others share:
that one does not hold the pictures which follow it.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.looks import home_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    # Who calls, for which signal, by which number it is known, and who is called.
    Link = tuple[Any, str, int, Callable[..., Any]]

_COLORS = ("norm", "colorbar", "mappable")


def links_of(figure: Any) -> list[Link]:
    """Those between parts of a figure."""
    parts = {id(part): part for part in _parts(figure)}
    registries = {id(found): found for part in parts.values() if (found := registry_of(part)) is not None}
    return [link for registry in registries.values() for link in links_in(registry) if _is_between(link[-1], parts)]


def registry_of(part: Any) -> Any:
    """Whom a part of a figure calls when it changes; `None` for what calls nobody."""
    found = getattr(part, "callbacks", None)
    return found if isinstance(found, sys.modules["matplotlib.cbook"].CallbackRegistry) else None


def links_in(registry: Any) -> Iterator[Link]:
    """All that are connected there."""
    for signal, by_number in registry.callbacks.items():
        for number, refer in by_number.items():
            if (called := refer()) is not None:
                yield registry, signal, number, called


def state_of(registry: Any) -> dict[str, Any]:
    """As it pickles itself, with all that is connected there."""
    there: dict[str, dict[int, Any]] = {signal: {} for signal in registry.callbacks}
    for _, signal, number, called in links_in(registry):
        there[signal][number] = called
    return {**registry.__getstate__(), "callbacks": there}


def connect(links: Iterable[Link]) -> None:
    """Connect what is not connected yet; called by the unpickler."""
    for registry, signal, number, called in links:
        state = state_of(registry)
        there = state["callbacks"].setdefault(signal, {})
        if called not in there.values():
            there[number] = called
            registry.__setstate__(state)


def _parts(figure: Any) -> Iterator[Any]:
    """Its artists but for ticks, which an axis makes when it is asked for them, and what tells their colors."""
    axis = sys.modules["matplotlib.axis"].Axis
    todo, seen = [figure], set[int]()
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo += [getattr(part, name, None) for name in _COLORS]
        todo += (seams.COLORIZER.of(part, None), *(getattr(part, "norms", None) or ()))
        todo += _colorbars_in(part)
        if hasattr(part, "get_children") and not isinstance(part, axis):
            todo += part.get_children()


def _colorbars_in(part: Any) -> Iterator[Any]:
    """Axes have a colorbar's methods in the place of some of theirs."""
    found = sys.modules.get("matplotlib.colorbar")
    if found is not None and hasattr(part, "get_navigate"):
        owners = (getattr(value, "__self__", None) for value in list(vars(part).values()))
        yield from (owner for owner in owners if isinstance(owner, found.Colorbar))


def _is_between(called: Any, parts: dict[int, Any]) -> bool:
    """Whether it is a method of a part, or a function of matplotlib's that holds parts only."""
    if isinstance(called, types.MethodType):
        return id(called.__self__) in parts
    if not isinstance(called, types.FunctionType) or not str(home_of(called)).startswith("matplotlib."):
        return False
    return all(id(cell.cell_contents) in parts for cell in called.__closure__ or ())
