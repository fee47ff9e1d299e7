"""What shows matplotlib's pictures: the backend, as `%matplotlib` or an import chose it, and its settings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import MATPLOTLIB_BACKEND
from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def _rc_params() -> dict[str, Any] | None:
    matplotlib = sys.modules["matplotlib"]
    # Read as a plain dict: asking for the backend would choose one.
    default = dict(dict.items(matplotlib.rcParamsDefault))
    now = dict(dict.items(matplotlib.rcParams))
    changed = {key: value for key, value in now.items() if key != "backend" and value != default.get(key)}
    return changed or None


def _set_rc_params(changed: Mapping[str, Any]) -> None:
    sys.modules["matplotlib"].rcParams.update(changed)
