"""What libraries hold of the user's work in one place for the whole process: parameters, registries, tables."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.aspect import only_named
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.aspect import Aspect
    from nls_jupyter.saved_state.places import Entry


def tables() -> Aspect:
    """Those of DuckDB's default database, never kept, only named."""
    return only_named("DuckDB's default database", _tables, "make", "duckdb")


def places() -> tuple[Place, ...]:
    """Those that consist of objects."""
    return (
        Place("parameter of Pyro", _pyros_parameters, _put_parameter),
        Place("setting of structlog", _structlog, _put_structlog),
        Place("registry of pint", _pints_registry, _put_registry),
    )


def _tables() -> list[str]:
    """DuckDB keeps them in its process, and what it writes to a file is not the same database."""
    connection = sys.modules["duckdb"].default_connection
    with (connection() if callable(connection) else connection).cursor() as cursor:
        found = cursor.execute(
            "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND database_name = 'memory' "
            "UNION SELECT view_name FROM duckdb_views() WHERE NOT internal AND database_name = 'memory'"
        ).fetchall()
    return [name for (name,) in found]


def _pyros_parameters() -> Iterator[tuple[Hashable, Entry]]:
    if (pyro := sys.modules.get("pyro")) is not None and hasattr(pyro, "get_param_store"):  # else being imported
        store = pyro.get_param_store()
        constraints = seams.PYRO_CONSTRAINTS.of(store)
        for name, parameter in list(seams.PYRO_PARAMETERS.of(store).items()):
            yield name, (name, constraints[name], parameter)


def _put_parameter(name: str, constraint: Any, parameter: Any) -> None:
    store = importlib.import_module("pyro").get_param_store()
    store.set_state({"params": {name: parameter}, "constraints": {name: constraint}})


def _structlog() -> Iterator[tuple[Hashable, Entry]]:
    structlog: Any = sys.modules.get("structlog")
    if hasattr(structlog, "is_configured") and structlog.is_configured():
        yield from ((name, (name, value)) for name, value in structlog.get_config().items())


def _put_structlog(name: str, value: Any) -> None:
    structlog = importlib.import_module("structlog")
    structlog.configure(**{**structlog.get_config(), name: value})


def _pints_registry() -> Iterator[tuple[Hashable, Entry]]:
    """The one that a cell has chosen for the whole process."""
    registry: Any = getattr(sys.modules.get("pint"), "application_registry", None)
    if registry is not None and registry.get() is not seams.PINT_REGISTRY.here(None):
        yield "application", (registry.get(),)


def _put_registry(registry: Any) -> None:
    importlib.import_module("pint").set_application_registry(registry)
