"""Trees of Beautiful Soup, whole: it pickles a soup as its text, of which other tags come than those that have names.

A tag leads to all others of its tree, one after the other: these are pickled side by side, in one object.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import is_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LINKS: Final = ("parent", "next_element", "previous_element", "next_sibling", "previous_sibling")
_CONTENTS: Final = "contents"
_NONE: Final = -1


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of what is in a soup and the reducer of all of it, for one save, if Beautiful Soup is imported."""
    if (found := sys.modules.get("bs4.element")) is not None:
        yield found.PageElement, _Trees().reduce


class _Trees:
    """Those that were met, by the identity of their root."""

    def __init__(self) -> None:
        self._known: dict[int, _Tree | None] = {}

    def reduce(self, element: Any) -> Any:
        """An element by its place in its tree; as it pickles itself where that is no tree, or it is alone."""
        root = element
        while (above := vars(root).get("parent")) is not None:
            root = above
        if id(root) not in self._known:
            self._known[id(root)] = _tree_of(root)
        tree = self._known[id(root)]
        if tree is None or (place := tree.places.get(id(element))) is None:
            return NotImplemented
        return element_at, (tree, place)


class _Tree:
    """In the stream it stands for the list of all elements of a tree."""

    def __init__(self, elements: list[Any]) -> None:
        self.elements = elements
        self.places = {id(element): place for place, element in enumerate(elements)}

    def links(self) -> dict[str, array[int]]:
        """Where each leads, by place. Raises KeyError for one that leads out of the tree."""
        places = {**self.places, id(None): _NONE}
        return {name: array("q", [places[id(vars(one)[name])] for one in self.elements]) for name in _LINKS}

    def __reduce__(self) -> Any:
        made = [(type(one), str.__str__(one) if is_of(one, str) else None) for one in self.elements]
        attributes = [
            {name: value for name, value in vars(one).items() if name not in _LINKS and name != _CONTENTS}
            for one in self.elements
        ]
        builder = attributes[0].get("builder")
        if builder is not None and not builder.picklable:
            attributes[0]["builder"] = type(builder)
        return make_tree, (made, self.links()), attributes, None, None, fill_tree


def _tree_of(root: Any) -> _Tree | None:
    if (soup := sys.modules.get("bs4")) is not None and is_of(root, soup.BeautifulSoup):
        if type(root).__getstate__ is not soup.BeautifulSoup.__getstate__:
            return None
    elif not vars(root).get(_CONTENTS):
        return None
    elements, todo = [], [root]
    while todo:
        elements.append(todo.pop())
        todo += reversed(vars(elements[-1]).get(_CONTENTS) or ())
    tree = _Tree(elements)
    try:
        tree.links()
    except (KeyError, TypeError):
        return None
    return tree


def make_tree(made: Sequence[tuple[Any, str | None]], links: dict[str, array[int]]) -> list[Any]:
    """The elements of a tree, with where they are in it; called by the unpickler."""
    elements = [kind.__new__(kind) if text is None else str.__new__(kind, text) for kind, text in made]
    for element, (_, text) in zip(elements, made, strict=True):
        if text is None:
            element.contents = []
    for name, places in links.items():
        for element, place in zip(elements, places, strict=True):
            vars(element)[name] = None if place == _NONE else elements[place]
    for element in elements:
        if element.parent is not None:
            element.parent.contents.append(element)
    return elements


def element_at(elements: list[Any], place: int) -> Any:
    """Called by the unpickler."""
    return elements[place]


def fill_tree(elements: list[Any], attributes: list[dict[str, Any]]) -> None:
    """Give the elements of a tree the rest of what they have; called by the unpickler."""
    for element, own in zip(elements, attributes, strict=True):
        vars(element).update(own)
    if isinstance(builder := attributes[0].get("builder"), type):
        elements[0].builder = builder()
