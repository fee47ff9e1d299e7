"""Keras' models, layers, optimizers, losses and metrics, as the objects that they are and with what they share.

Keras' own way of pickling writes a model's configuration and weights into a file: classes of cells without a
configuration are refused, and what has a name of its own (`base.trainable = True`) comes back apart from its model.

Layers lead to each other through the calls in which they met, one after another, as far as pickle's recursion reaches
and further. So the first one that is met brings all the others, first without and then with their attributes.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nls_jupyter.saved_state.regions import Regions

    Attributes = dict[str, Any]
    Numbered = dict[str, list[tuple[Any, ...]]]
    """What an attribute has by where objects are in memory: an object, the rest of its key, and a dict's value."""
    Stored = dict[str, list[Any]]
    """What one that tracks attributes has by where it is, too."""

# All that the calls of layers consist of, with what tracks a layer's attributes.
_PARTS: Final = (
    seams.KERAS_SAVEABLE,
    seams.KERAS_NODE,
    seams.KERAS_ARGUMENTS,
    seams.KERAS_TENSOR,
    seams.KERAS_TRACKER,
)
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
# What a model makes of its own steps at the next call where it has none.
_COMPILED: Final = ("train_function", "test_function", "predict_function")
# What these lead to is what others of the attributes have by where it is.
_NUMBERED: Final = (seams.KERAS_VARIABLES, seams.KERAS_OPERATIONS, seams.KERAS_LOSSES)
_NODE: Final = re.compile(r"(\d+)(_ib-\d+)")
"""Of a node in a model: where its operation is, and which call of that (`keras.src.ops.function.make_node_key`)."""


def families(regions: Regions) -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base classes and the reducer of all of them, if Keras is imported."""
    yield from ((kind, functools.partial(_reduce, regions)) for kind in _kinds())


def _kinds() -> tuple[type, ...]:
    """None with TensorFlow, whose variables and functions are not objects of Python alone: Keras' own way remains."""
    kinds = tuple(kind for part in _PARTS if (kind := part.here(None)) is not None)
    config = getattr(sys.modules.get("keras"), "config", None)  # none of one that could not be imported
    return kinds if config is not None and len(kinds) == len(_PARTS) and config.backend() != "tensorflow" else ()


def _reduce(regions: Regions, thing: Any) -> Any:
    """Nobody's own way of pickling is gone past but Keras'."""
    if not _is_left_to_keras(type(thing)):
        return NotImplemented
    if id(thing) in regions.brought:
        return object.__new__, (type(thing),)
    brought = [one for one in _all_behind(thing) if id(one) not in regions.brought]
    regions.brought.update(map(id, brought))
    return object.__new__, (type(thing),), [(one, *_attributes(one)) for one in brought], None, None, fill_all


def _is_left_to_keras(kind: Any) -> bool:
    own = (seams.KERAS_SAVEABLE.here().__reduce__, object.__reduce__)
    return kind.__reduce__ in own and kind.__reduce_ex__ is object.__reduce_ex__


def _all_behind(first: Any) -> list[Any]:
    """`first` and all others of Keras' that its attributes lead to, directly or in containers."""
    kinds, found, seen, behind = _kinds(), [first], {id(first)}, [vars(first)]
    while behind:
        held = behind.pop()
        for part in held.values() if isinstance(held, dict) else held:
            is_one = issubclass(type(part), kinds)
            if id(part) in seen or not (is_one or issubclass(type(part), _CONTAINERS)):
                continue
            seen.add(id(part))
            if not is_one:
                behind.append(part)
            elif _is_left_to_keras(type(part)):
                found.append(part)
                behind.append(vars(part))
    return found


def _attributes(thing: Any) -> tuple[Attributes, Numbered, Stored]:
    attributes = dict(vars(thing))
    attributes.update(dict.fromkeys(attributes.keys() & set(_COMPILED)))
    stored, numbered = {}, {}
    for name, numbers in attributes.pop("stored_ids", {}).items():
        stored[name] = [one for one in attributes["config"][name][1] if id(one) in numbers]
    there = {id(one): one for known in _NUMBERED for one in attributes.get(known.name) or ()}
    for name, value in attributes.items():
        if isinstance(value, (set, dict)) and value and (found := _without_numbers(value, there)) is not None:
            numbered[name] = found
    return attributes, numbered, stored


def _without_numbers(value: Any, there: Mapping[int, Any]) -> list[tuple[Any, ...]] | None:
    """What a set or dict has by where objects are; `None`: it has something else."""
    found: list[tuple[Any, ...]] = []
    for key in value:
        number, rest = key, None
        if isinstance(key, str) and (node := _NODE.fullmatch(key)) is not None:
            number, rest = int(node[1]), node[2]
        if type(number) is not int or number not in there:
            return None
        found.append((there[number], rest, *([value[key]] if isinstance(value, dict) else [])))
    return found


def fill_all(_: Any, brought: list[tuple[Any, Attributes, Numbered, Stored]]) -> None:
    """Give each its attributes; called by the unpickler."""
    for thing, attributes, numbered, stored in brought:
        vars(thing).update(attributes)
        for name, found in numbered.items():
            keys = [id(one) if rest is None else f"{id(one)}{rest}" for one, rest, *_ in found]
            held = vars(thing)[name]
            kind: Any = dict if isinstance(held, dict) else set  # Keras' own would track what is put there
            kind.clear(held)
            kind.update(held, zip(keys, (entry[2] for entry in found), strict=True) if kind is dict else keys)
        if stored:
            thing.stored_ids = {name: set(map(id, store)) for name, store in stored.items()}
