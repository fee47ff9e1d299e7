"""What a frontend runs unseen in a kernel before its GPU is used, for GPU processes to come.

VS Code sets each kernel up so: the notebook's path, how figures are drawn. From then on it is kept by
`supervisor.kept_code`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# More than `kept_code` takes, which says so.
_MOST_REQUESTS = 200


class SetUp:
    """One kernel's.

    Of an ordinary kernel, which may turn to auto mode with its first cell, it hears by an event of the shell's; silent
    requests pass by that.

    Args:
        shell: the kernel's.
        used: whether the notebook's GPU has been used.
    """

    def __init__(self, shell: Any, used: Callable[[], bool]) -> None:
        self._shell = shell
        self._used = used
        self._codes: dict[str, None] = {}
        shell.events.register("pre_run_cell", self._note)

    def keep(self, code: str) -> bool:
        """Keep what auto mode has got. False: the notebook's GPU has been used, and who looks after it is asked."""
        if self._used():
            return False
        if len(self._codes) < _MOST_REQUESTS:
            self._codes[code] = None
        return True

    def take(self) -> Sequence[str]:
        """What there is of it, once."""
        codes, self._codes = self._codes, {}
        return [*codes]

    def _note(self, info: Any) -> None:
        asked = self._shell.kernel.get_parent("shell").get("content", {})
        if info.raw_cell != asked.get("code"):
            return  # IPython's own at its start, or one that a cell runs
        if info.store_history:
            self._shell.events.unregister("pre_run_cell", self._note)
        else:
            self.keep(info.raw_cell)
