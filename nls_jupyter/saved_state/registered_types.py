"""Classes that cells have given to pandas, matplotlib, PyTorch, sqlite3, Gymnasium, copyreg: `dtype="mine"`.

What a library's own class is registered for comes back with the import of that library.
"""

from __future__ import annotations

import copyreg
import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place, is_librarys_object, name_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry


def places() -> tuple[Place, ...]:
    """Each registry of classes."""
    return (
        Place("data type", _data_types, _put_data_type, lambda _, parts: name_of(parts[-1]), is_librarys_object),
        Place("projection", _projections, _put_projection, comes_by_itself=is_librarys_object),
        Place("scale", _scales, _put_scale, comes_by_itself=is_librarys_object),
        Place("sqlite3 adapter", _adapters, _put_adapter, lambda _, parts: name_of(parts[0])),
        Place("sqlite3 converter", _converters, lambda name, made: _sqlite3().register_converter(name, made)),
        Place("environment", _environments, _put_environment),
        Place("way of pickling", _pickled_by, copyreg.pickle, lambda _, parts: name_of(parts[0])),
        Place("unit", _units, _put_unit, lambda _, parts: name_of(parts[0])),
        Place("divergence", _divergences, _put_divergence, lambda _, parts: " of ".join(map(name_of, parts[1::-1]))),
    )


def _data_types() -> Iterator[tuple[Hashable, Entry]]:
    if (registry := seams.PANDAS_DATA_TYPES.here(None)) is not None:
        for kind in registry.dtypes:
            yield id(kind), (kind,)


def _put_data_type(kind: type) -> None:
    extensions = importlib.import_module("pandas.api.extensions")
    if not any(known is kind for known in seams.PANDAS_DATA_TYPES.here().dtypes):
        extensions.register_extension_dtype(kind)


def _projections() -> Iterator[tuple[Hashable, Entry]]:
    if (projections := sys.modules.get("matplotlib.projections")) is not None:
        for name in projections.get_projection_names():
            yield name, (projections.get_projection_class(name),)


def _put_projection(kind: type) -> None:
    importlib.import_module("matplotlib.projections").register_projection(kind)


def _scales() -> Iterator[tuple[Hashable, Entry]]:
    for name, kind in seams.MATPLOTLIB_SCALES.here({}).items():
        yield name, (kind,)


def _put_scale(kind: type) -> None:
    importlib.import_module("matplotlib.scale").register_scale(kind)


def _sqlite3() -> Any:
    return importlib.import_module("sqlite3")


def _adapters() -> Iterator[tuple[Hashable, Entry]]:
    """Of any type: to store NumPy's numbers a cell tells a class of a library's a function of Python's."""
    if (sqlite3 := sys.modules.get("sqlite3")) is not None:
        for (kind, protocol), adapter in list(sqlite3.adapters.items()):
            if protocol is sqlite3.PrepareProtocol and not _of_sqlite3(adapter):
                yield kind, (kind, adapter)


def _put_adapter(kind: type, adapter: Any) -> None:
    _sqlite3().register_adapter(kind, adapter)


def _converters() -> Iterator[tuple[Hashable, Entry]]:
    if (sqlite3 := sys.modules.get("sqlite3")) is not None:
        for name, converter in list(sqlite3.converters.items()):
            if not _of_sqlite3(converter):
                yield name, (name, converter)


def _of_sqlite3(function: Any) -> bool:
    """Whether the module has registered it by itself."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == "sqlite3"


def _pickled_by() -> Iterator[tuple[Hashable, Entry]]:
    """By functions of the user's."""
    for kind, function in list(copyreg.dispatch_table.items()):
        if isinstance(function, types.FunctionType) and is_the_users_module(function.__module__):
            yield kind, (kind, function)


def _units() -> Iterator[tuple[Hashable, Entry]]:
    """Of types of the user's, or with converters of the user's."""
    if (units := sys.modules.get("matplotlib.units")) is not None:
        for kind, converter in list(units.registry.items()):
            if not (is_librarys_object(kind) and is_librarys_object(converter)):
                yield kind, (kind, converter)


def _put_unit(kind: type, converter: Any) -> None:
    importlib.import_module("matplotlib.units").registry[kind] = converter


def _divergences() -> Iterator[tuple[Hashable, Entry]]:
    """Of distributions of the user's, or by functions of the user's."""
    for kinds, function in list(seams.TORCH_DIVERGENCES.here({}).items()):
        if any(is_the_users_module(getattr(part, "__module__", None)) for part in (*kinds, function)):
            yield kinds, (*kinds, function)


def _put_divergence(of: type, other: type, function: Any) -> None:
    importlib.import_module("torch.distributions.kl").register_kl(of, other)(function)


def _environments() -> Iterator[tuple[Hashable, Entry]]:
    """Of a class of the user's, or one that is found in a module of the user's."""
    registry = getattr(getattr(sys.modules.get("gymnasium"), "envs", None), "registry", {})  # else being imported
    for name, spec in list(registry.items()):
        made_by = spec.entry_point
        is_found = isinstance(made_by, str)
        if is_the_users_module(made_by.partition(":")[0]) if is_found else not is_librarys_object(made_by):
            yield name, (name, spec)


def _put_environment(name: str, spec: Any) -> None:
    importlib.import_module("gymnasium").envs.registry[name] = spec
