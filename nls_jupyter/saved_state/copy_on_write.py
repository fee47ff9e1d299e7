"""What pandas shares until somebody writes to it: a frame and its columns, a renamed frame, a series and its index.

Each block and each index knows who else shows its memory, and a write copies that first. pandas' own way of pickling
forgets it: the memory that they share after a restore would be written to for all of them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import PANDAS_BLOCK, PANDAS_INDEX, PANDAS_INDEX_SHARES, PANDAS_SERIES, PANDAS_SHARES

if TYPE_CHECKING:
    from collections.abc import Callable

    Reduce = Callable[[Any], Any]


def with_shares(kind: type, otherwise: Reduce | None) -> Reduce | None:
    """How an object of `kind` is saved, where pandas has others show its memory."""
    for seam, reduce in _KINDS:
        known = seam.here(None)
        if known is not None and issubclass(kind, known):
            return functools.partial(reduce, otherwise)
    return otherwise


def _reduce_shares(_: Reduce | None, shares: Any) -> Any:
    """Nobody yet: they come in as they are made."""
    return type(shares), ()


def _reduce_block(otherwise: Reduce | None, block: Any) -> Any:
    """With its values as they are, where pandas copies those that show a part of an array."""
    if not block.refs.has_reference():
        return _as_before(otherwise, block)
    make, (_, *args), *rest = _reduced(otherwise, block)
    return share_block, (block.refs, make, block.values, *args), *rest


def _reduce_index(otherwise: Reduce | None, index: Any) -> Any:
    shares = vars(index).get(PANDAS_INDEX_SHARES.name)
    if shares is None or not shares.has_reference():
        return _as_before(otherwise, index)
    make, args, *rest = _reduced(otherwise, index)
    return share_index, (shares, make, *args), *rest


def _reduce_series(otherwise: Reduce | None, manager: Any) -> Any:
    """With its block as it is, where pandas makes a new one of the values."""
    if not manager.blocks[0].refs.has_reference():
        return _as_before(otherwise, manager)
    return type(manager), (manager.blocks[0], manager.axes[0])


def _as_before(otherwise: Reduce | None, thing: Any) -> Any:
    return NotImplemented if otherwise is None else otherwise(thing)


def _reduced(otherwise: Reduce | None, thing: Any) -> Any:
    reduced = _as_before(otherwise, thing)
    return thing.__reduce_ex__(5) if reduced is NotImplemented else reduced


_KINDS = (
    (PANDAS_SHARES, _reduce_shares),
    (PANDAS_BLOCK, _reduce_block),
    (PANDAS_SERIES, _reduce_series),
    (PANDAS_INDEX, _reduce_index),
)


def share_block(shares: Any, make: Callable[..., Any], *args: Any) -> Any:
    """A block that shares its memory with those who know `shares`; called by the unpickler."""
    block = make(*args)
    block.refs = shares
    shares.add_reference(block)
    return block


def share_index(shares: Any, make: Callable[..., Any], *args: Any) -> Any:
    """As `share_block`, an index."""
    index = make(*args)
    PANDAS_INDEX_SHARES.put(index, shares)
    shares.add_index_reference(index)
    return index
