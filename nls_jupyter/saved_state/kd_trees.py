"""SciPy's trees of points, over the array of points that others have too: SciPy pickles copies, and no attributes."""

from __future__ import annotations

import copyreg
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.reducers import has_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ARRAYS: Final = ("data", "maxes", "mins", "indices")


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of these trees and the reducer of all of them, if SciPy's are imported."""
    if (found := sys.modules.get("scipy.spatial")) is not None:
        yield found.cKDTree, _reduce


def _reduce(tree: Any) -> Any:
    base = sys.modules["scipy.spatial"].cKDTree
    state = base.__getstate__(tree)
    if type(tree).__getstate__ is not base.__getstate__ or type(state) is not tuple:
        return NotImplemented
    numpy = sys.modules["numpy"]
    own = [getattr(tree, name) for name in _ARRAYS]

    def itself(part: Any) -> Any:
        same = (one for one in own if type(part) is type(one) and one.dtype == part.dtype)
        return next((one for one in same if numpy.array_equal(one, part)), part)

    attributes = vars(tree) if has_attributes(type(tree)) else {}
    node = sys.modules["scipy.spatial"].KDTree.node  # which a tree makes when it is asked for its root
    kept = {name: value for name, value in attributes.items() if not is_of(value, node)}
    return copyreg.__newobj__, (type(tree),), (tuple(map(itself, state)), kept), None, None, fill  # type: ignore[attr-defined]


def fill(tree: Any, state: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    """Give a tree its points and its attributes; called by the unpickler."""
    points, attributes = state
    tree.__setstate__(points)
    for name, value in attributes.items():
        object.__setattr__(tree, name, value)
