"""What shows matplotlib's pictures: the backend, as `%matplotlib` or an import chose it, settings, pyplot's figures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import MATPLOTLIB_BACKEND, PYPLOT_ADOPT, PYPLOT_FIGURES
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

_INLINE_TRAITS = ("rc", "figure_formats", "print_figure_kwargs", "close_figures")


def of_shell(shell: Any) -> tuple[Aspect, ...]:
    """For this shell. Before rcParams, which the inline backend changes."""
    return (
        Aspect(
            "the inline backend's settings",
            _inline,
            lambda state: _set_inline(shell, state),
            "matplotlib_inline",
            early=True,
        ),
        Aspect("matplotlib's backend", _backend, lambda state: _set_backend(shell, state), "matplotlib", early=True),
        Aspect("matplotlib's rcParams", _rc_params, _set_rc_params, "matplotlib", early=True),
        Aspect("matplotlib's names of colors", _named_colors, _name_colors, "matplotlib.colors", early=True),
        Aspect("matplotlib's fonts", _fonts, _add_fonts, "matplotlib.font_manager"),
    )


def _inline() -> dict[str, Any] | None:
    config = sys.modules["matplotlib_inline.config"].InlineBackend
    if not config.initialized():
        return None
    return {name: getattr(config.instance(), name) for name in _INLINE_TRAITS}


def _set_inline(shell: Any, state: Mapping[str, Any]) -> None:
    config = sys.modules["matplotlib_inline.config"].InlineBackend.instance(parent=shell)
    for name, value in state.items():
        if getattr(config, name) != value:
            setattr(config, name, value)


def _backend() -> dict[str, Any] | None:
    """What was chosen, if anything was: asking matplotlib would choose one."""
    matplotlib = sys.modules["matplotlib"]
    name = dict.get(matplotlib.rcParams, "backend")
    if not isinstance(name, str):
        return None
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    return {
        "name": name,
        "loaded": (pyplot := sys.modules.get("matplotlib.pyplot")) is not None
        and MATPLOTLIB_BACKEND.of(pyplot) is not None,
        "shown by": getattr(getattr(inline, "configure_inline_support", None), "current_backend", None),
        "interactive": matplotlib.is_interactive(),
    }


def _set_backend(shell: Any, state: Mapping[str, Any]) -> None:
    matplotlib = sys.modules["matplotlib"]
    if state["loaded"] and state["shown by"] is not None:
        from IPython.core.pylabtools import activate_matplotlib
        from matplotlib_inline.backend_inline import configure_inline_support

        activate_matplotlib(state["name"])  # type: ignore[no-untyped-call]
        configure_inline_support(shell, state["name"])  # type: ignore[no-untyped-call]
    elif state["loaded"]:
        from matplotlib import pyplot

        pyplot.switch_backend(state["name"])
    matplotlib.rcParams["backend"] = state["name"]
    matplotlib.interactive(state["interactive"])


def _fonts() -> list[str]:
    """The files of all that it knows."""
    known = sys.modules["matplotlib.font_manager"].fontManager
    return [font.fname for font in (*known.ttflist, *known.afmlist)]


def _add_fonts(kept: list[str]) -> None:
    """Those that cells have added. Raises FileNotFoundError for a file that is gone."""
    known = {*_fonts()}
    for path in kept:
        if path not in known:
            sys.modules["matplotlib.font_manager"].fontManager.addfont(path)


def _rc_params() -> dict[str, Any] | None:
    matplotlib = sys.modules["matplotlib"]
    # Read as a plain dict: asking for the backend would choose one.
    default = dict(dict.items(matplotlib.rcParamsDefault))
    now = dict(dict.items(matplotlib.rcParams))
    changed = {key: value for key, value in now.items() if key != "backend" and value != default.get(key)}
    return changed or None


def _set_rc_params(changed: Mapping[str, Any]) -> None:
    sys.modules["matplotlib"].rcParams.update(changed)


def _named_colors() -> dict[str, Any]:
    return dict(sys.modules["matplotlib.colors"].get_named_colors_mapping())


def _name_colors(kept: Mapping[str, Any]) -> None:
    """One by one: what matplotlib remembers of a color is forgotten then."""
    named = sys.modules["matplotlib.colors"].get_named_colors_mapping()
    for name, color in kept.items():
        if named.get(name) != color:
            named[name] = color


def pyplot_figures() -> Place:
    """With or without a name of the user's, in the order in which they became the current one."""
    numbers: dict[int, int] = {}

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for position, (number, manager) in enumerate(list(PYPLOT_FIGURES.here({}).items())):
            yield number, (position, number, manager.canvas.figure)

    def put(position: int, number: int, figure: Any) -> None:
        _set_number(figure.canvas.manager, number)
        numbers[position] = number
        for at in sorted(numbers):
            sys.modules["matplotlib.pyplot"].figure(numbers[at])

    return Place("pyplot figure", entries, put)


def _set_number(manager: Any, number: int) -> None:
    """Another figure of that number gets the one that this figure has had."""
    figures = PYPLOT_FIGURES.here()
    if manager.num == number:
        return
    del figures[manager.num]
    if (other := figures.pop(number, None)) is not None:
        other.num = manager.num
        PYPLOT_ADOPT.here()(other)
    manager.num = number
    PYPLOT_ADOPT.here()(manager)
