"""Where modules of the user's own lie: a cell may have gone to another folder since it imported them.

Python goes on with what is imported. A new process imports it again, from the same files; whatever is imported for the
first time after that, or once more, is looked for where Python looks.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.origins import is_the_users

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    _Places = Mapping[str, tuple[str | None, list[str] | None]]


def of_module_files() -> Aspect:
    """Kept as soon as there is such a module."""
    return Aspect("where modules of the notebook's own lie", _places, _look_there_first, early=True)


def _places() -> _Places | None:
    """The file of each, and the folders of a package; of those that nobody has imported again, as they were."""
    found = dict(_FINDER.places)
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if "." not in name and type(spec) is ModuleSpec and spec.name == name and (place := _place_of(spec)):
            found[name] = place
    return found or None


def _place_of(spec: ModuleSpec) -> tuple[str | None, list[str] | None] | None:
    folders = None if spec.submodule_search_locations is None else [*spec.submodule_search_locations]
    if spec.origin is None:  # a folder without an `__init__.py`
        return (None, folders) if folders and all(is_the_users(spec.name, folder) for folder in folders) else None
    if type(spec.loader) is not SourceFileLoader or not is_the_users(spec.name, spec.origin):
        return None
    return spec.origin, folders


def _look_there_first(places: _Places) -> None:
    _FINDER.places = dict(places)
    if _FINDER not in sys.meta_path:
        known: list[Any] = sys.meta_path
        sys.meta_path.insert(known.index(PathFinder) if PathFinder in known else len(known), _FINDER)


class _Finder(MetaPathFinder):
    """Finds each of them once."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[str | None, list[str] | None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        if path is not None or target is not None or fullname not in self.places:
            return None
        file, folders = self.places.pop(fullname)
        if file is None:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = folders
            return spec if any(Path(folder).is_dir() for folder in folders or ()) else None
        return (
            spec_from_file_location(fullname, file, submodule_search_locations=folders) if Path(file).exists() else None
        )


_FINDER: Final = _Finder()
