"""alice and bob, each with half of one GPU on paper; both burst, and a third pod comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from one_node import EXAMPLE, GPUS, NOTEBOOKS, PATIENCE_S, pod
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from nls_scheduler.demo.jupyter import Notebook
    from one_node import OneNode


class Story:
    """Begins when both burst. `example`: whose notebooks; `books`: by the names of their pods."""

    def __init__(self, node: OneNode, example: Path = EXAMPLE) -> None:
        self._node = node
        self.books: dict[str, Notebook] = {}
        node.reserve("g0")
        node.notebooks("g0", example)
        self.begin()
        self.spread()

    def open(self) -> None:
        """In new kernels."""
        self.close()
        self.books = {name: self._node.open(name) for name in NOTEBOOKS}

    def begin(self) -> None:
        """In new kernels, with new variables."""
        node = self._node
        self.open()
        for name, book in self.books.items():
            node.run(book, f"%%gpu\nowner = {name!r}; kept = list(range(10))")

    def spread(self) -> None:
        """Until both burst."""
        wait_until(lambda: self._node.current() == set(GPUS), PATIENCE_S)

    def kept(self) -> None:
        """Both have their variables."""
        for name, book in self.books.items():
            assert self._node.run(book, "%%gpu\nprint(owner, sum(kept))").strip().endswith(f"{name} 45")

    def third_pod(self) -> None:
        """It comes, gets its GPU vacated, and goes; both burst again."""
        node = self._node
        try:
            node.apply(pod("training", "notebooks", gpus=1))
            wait_until(lambda: len(node.current()) == 1, PATIENCE_S)
            wait_until(lambda: node.running("training"), PATIENCE_S)
            self.kept()
        finally:  # or the next test would meet it
            node.kubectl("-n", "notebooks", "delete", "pod", "training", check=False)
        self.spread()
        self.kept()

    def close(self) -> None:
        """Without a word to the kernels."""
        for book in self.books.values():
            book.close()

    def end(self) -> None:
        """Nothing of it stays: another one may begin."""
        self.close()
        self._node.clear()
