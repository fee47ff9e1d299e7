"""What IPython keeps of a notebook's session beside the names."""

from __future__ import annotations

from typing import Any

from nls_jupyter.saved_state.aspect import Aspect


def of_shell(shell: Any) -> tuple[Aspect, ...]:
    """What is kept of this shell."""

    def load_extensions(names: list[str]) -> None:
        for name in names:
            if name not in shell.extension_manager.loaded:
                shell.extension_manager.load_extension(name)

    def inputs() -> tuple[int, list[str]]:
        return shell.execution_count, list(shell.user_ns["_ih"])

    def set_inputs(state: tuple[int, list[str]]) -> None:
        shell.execution_count, ran = state
        shell.user_ns["_ih"][:] = ran  # the list that `In` is, too

    return (
        Aspect("IPython's extensions", lambda: sorted(shell.extension_manager.loaded), load_extensions),
        Aspect("In", inputs, set_inputs),
    )
