"""Colormaps and sequences of colors that cells have given to matplotlib by name: `colormaps.register(mine)`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.saved_state.places import Place, asked_by_a_cell

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from types import ModuleType

    from nls_jupyter.saved_state.places import Entry


class _Noted(dict[str, Any]):
    """What a registry has by name; what a cell puts there is noted, and no frame of ours is between the two."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.of_cells: set[str] = set()

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if asked_by_a_cell(no_import_of_theirs=True):
            self.of_cells.add(name)


class RegisteredColors:
    """Those of this process. Libraries register theirs when they are imported, and do so again."""

    def __init__(self) -> None:
        self._maps = _Noted({})
        self._sequences = _Noted({})

    def follow(self) -> None:
        """Listen from matplotlib's import on. Called once in a process."""
        AfterImport({"matplotlib": self._listen}).install()

    def _listen(self, matplotlib: ModuleType) -> None:
        maps, sequences = matplotlib.colormaps, matplotlib.color_sequences
        self._maps = _Noted(seams.COLORMAPS.of(maps))
        self._sequences = _Noted(seams.COLOR_SEQUENCES.of(sequences))
        seams.COLORMAPS.put(maps, self._maps)
        seams.COLOR_SEQUENCES.put(sequences, self._sequences)

    def places(self) -> tuple[Place, Place]:
        """Each with its name."""
        return (
            Place("colormap", lambda: _entries(self._maps), self._put_map),
            Place("color sequence", lambda: _entries(self._sequences), self._put_sequence),
        )

    def _put_map(self, name: str, colormap: Any) -> None:
        registry = importlib.import_module("matplotlib").colormaps
        registry.unregister(name)
        registry.register(colormap, name=name)
        self._maps.of_cells.add(name)

    def _put_sequence(self, name: str, colors: list[Any]) -> None:
        registry = importlib.import_module("matplotlib").color_sequences
        registry.unregister(name)
        registry.register(name, colors)
        self._sequences.of_cells.add(name)


def _entries(noted: _Noted) -> Iterator[tuple[Hashable, Entry]]:
    for name, value in noted.items():
        if name in noted.of_cells:
            yield name, (name, value)
