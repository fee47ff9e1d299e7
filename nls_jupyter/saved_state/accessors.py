"""Accessors that cells give to tables of libraries: `df.mine` in pandas, `ds.mine` in xarray, `pl.col("a").mine`.

A library keeps one as an attribute of its class, in a descriptor of its own: asked of the class, that gives what was
registered.
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.places import Place, is_librarys_object

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

_REGISTERED_BY: Final = {
    "pandas": ("pandas.api.extensions", "register_{}_accessor", ("DataFrame", "Series", "Index")),
    "polars": ("polars.api", "register_{}_namespace", ("DataFrame", "LazyFrame", "Series", "Expr")),
    "xarray": ("xarray", "register_{}_accessor", ("Dataset", "DataArray", "DataTree")),
}
"""Of a library the module with what registers, how that is called for a class, and the classes."""

_NO_ACCESSORS: Final = {types.FunctionType, types.GetSetDescriptorType, classmethod, staticmethod, property}


def place() -> Place:
    """All of them. What a library registers for its own classes comes back with its import."""
    return Place("accessor", _accessors, _put, comes_by_itself=is_librarys_object)


def _accessors() -> Iterator[tuple[Hashable, Entry]]:
    for library, (_, _, owners) in _REGISTERED_BY.items():
        module = sys.modules.get(library)
        for owner in owners:
            if (table := getattr(module, owner, None)) is not None:
                of = f"{library}.{owner}"
                yield from ((f"{of}.{name}", (of, name, made)) for name, made in _of(table))


def _of(table: type) -> Iterator[tuple[str, Any]]:
    for name, kept in [(name, kept) for name, kept in vars(table).items() if type(kept) not in _NO_ACCESSORS]:
        if (registered := getattr(table, name, kept)) is not kept:
            yield name, registered


def _put(of: str, name: str, accessor: Any) -> None:
    library, _, owner = of.rpartition(".")
    module, called, _ = _REGISTERED_BY[library or "pandas"]  # which alone an older version knew
    register = getattr(importlib.import_module(module), called.format(owner.lower()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever has registered it was told what it takes the place of
        register(name)(accessor)
