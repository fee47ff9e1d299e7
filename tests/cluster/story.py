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
        training = pod("training", "notebooks", gpus=1)
        try:
            node.apply(training)
            wait_until(lambda: node.stands(training), PATIENCE_S)
            wait_until(lambda: len(node.current()) == 1, PATIENCE_S)
            self.kept()
        finally:  # or the next test would meet it
            node.kubectl("-n", "notebooks", "delete", "pod", "training", check=False)
        self.spread()
        self.kept()

    def close(self) -> None:
        """Without a word to the kernels."""
        for book in self.books.values():
            self._node.close(book)

    def end(self) -> None:
        """Nothing of it stays: another one may begin."""
        self.close()
        self._node.clear()


class Stories:
    """One after another, so that tests go on with what was left them by those that have passed, and by no other."""

    def __init__(self, node: OneNode, example: Path = EXAMPLE) -> None:
        self._node, self._example = node, example
        self._story: Story | None = None
        self._failed = 0

    def next(self, failed: int) -> Story:
        """The one that goes on, or a new one where more tests than before have failed; `failed`: how many."""
        if self._story is not None and failed > self._failed:
            self.end()
        self._failed = failed
        if self._story is None:
            self._node.clear()  # what a story left that could not begin
            self._story = Story(self._node, self._example)
        return self._story

    def end(self) -> None:
        """Of the last one."""
        if self._story is not None:
            story, self._story = self._story, None
            story.end()
