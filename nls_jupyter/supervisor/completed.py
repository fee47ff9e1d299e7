"""Which completed cells the saved state does not hold: what a restore goes back behind, and has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAVE_POINT = ", save point "
_LISTED = 3


class Completed:
    """The completed cells of one GPU process, and of those after it while nothing newer was saved.

    Attributes:
        unsaved: labels of the cells that are not in the saved state, in the order in which they ended.
    """

    def __init__(self) -> None:
        self.unsaved: list[str] = []

    def ran(self, cell: str) -> None:
        """A cell has ended, however it did: its variables are not saved yet."""
        self.unsaved.append(cell)

    def saved(self, cell: str | None) -> None:
        """The saved state is now as of `cell`, a label or that of a save point."""
        if cell is None:
            return
        whole, within, _ = cell.partition(_SAVE_POINT)
        if whole in self.unsaved:
            last = len(self.unsaved) - 1 - self.unsaved[::-1].index(whole)
            del self.unsaved[: last if within else last + 1]
        elif within:  # the cell that runs now: all before it is in the state
            self.unsaved.clear()

    def take(self) -> Sequence[str]:
        """A process came back without these cells; from now on it is as old as what was saved."""
        unsaved, self.unsaved = self.unsaved, []
        return unsaved


def gone(cells: Sequence[str], cell: str | None) -> str:
    """One sentence for a restore as of `cell` (`None`: nothing was saved) without `cells`; empty for none.

    Each `%%gpu` within one cell of the notebook is a cell with the same label.
    """
    if not cells:
        return ""
    part = ", without the last %%gpu in it" if cell in cells else ""
    if not (cells := [each for each in dict.fromkeys(cells) if each != cell]):
        return f"It is back as of cell {cell}{part}."
    if len(cells) <= _LISTED:
        which = " and ".join(", ".join(cells).rsplit(", ", 1))
        ran = f"cell {which} ran after it and is" if len(cells) == 1 else f"cells {which} ran after it and are"
    else:
        ran = f"{len(cells)} cells from {cells[0]} to {cells[-1]} ran after it and are"
    if cell is None:
        return f"Nothing was saved: {ran.replace(' after it', '')} lost."
    return f"It is back as of cell {cell}{part}: {ran} not in it."
