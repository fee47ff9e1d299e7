"""What a frontend runs unseen before a kernel's first cell, for a notebook that turns to auto mode only then.

VS Code sets each kernel up so: the notebook's path, how figures are drawn. In auto mode it is kept when it comes, see
`supervisor.kept_code`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_REQUESTS = 100


class SetUp:
    """A callback of one shell's events, until its first cell. Silent requests pass by it."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._codes: list[str] = []
        shell.events.register("pre_run_cell", self._note)

    def _note(self, info: Any) -> None:
        asked = self._shell.kernel.get_parent("shell").get("content", {})
        if info.raw_cell != asked.get("code"):
            return  # IPython's own at its start, or one that a cell runs
        if info.store_history:
            self._shell.events.unregister("pre_run_cell", self._note)
        elif len(self._codes) < _MOST_REQUESTS:
            self._codes.append(info.raw_cell)

    def take(self) -> Sequence[str]:
        """What there is of it, once."""
        codes, self._codes = self._codes, []
        return codes
