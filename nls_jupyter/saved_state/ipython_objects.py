"""Objects of the user's that IPython holds: magics, printers of types, hooks of events, transformers of cells."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.places import Place, is_librarys_code, is_librarys_object, name_of, of_list

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

_TRANSFORMERS = ("cleanup_transforms", "line_transforms", "token_transformers")


def of_shell(shell: Any) -> tuple[Place, ...]:
    """The places of this shell."""
    manager = shell.input_transformer_manager
    return (
        _magics(shell.magics_manager),
        _printers(shell.display_formatter),
        *(_hooks(shell.events, event) for event in shell.events.callbacks),
        *(of_list(name, lambda name=name: getattr(manager, name), is_librarys_object) for name in _TRANSFORMERS),  # type: ignore[misc]
        of_list("input transformer", lambda: shell.input_transformers_post, is_librarys_object),
        of_list("AST transformer", lambda: shell.ast_transformers, is_librarys_object),
        _custom_errors(shell),
    )


def _magics(manager: Any) -> Place:
    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for name, magics in list(manager.registry.items()):
            yield name, (None, name, magics)
        for kind, table in manager.magics.items():
            for name, function in list(table.items()):
                yield (kind, name), (kind, name, function)

    def put(kind: str | None, name: str, magic: Any) -> None:
        (manager.registry if kind is None else manager.magics[kind])[name] = magic

    def label(_: Hashable, parts: Entry) -> str:
        return {"line": "%", "cell": "%%"}.get(parts[0], "") + str(parts[1])

    return Place("magic", entries, put, label, _is_ipythons)


def _is_ipythons(magic: Any) -> bool:
    """Those of IPython and of extensions, which come when they are used or loaded; not `%alias` and `%alias_magic`."""
    return type(magic).__name__ not in {"Alias", "MagicAlias"} and is_librarys_object(magic)


def _printers(formatter: Any) -> Place:
    def formatters() -> dict[str, Any]:
        more = {"_ipython_display_": formatter.ipython_display_formatter, "bundle": formatter.mimebundle_formatter}
        return {**formatter.formatters, **more}

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for mime, printers in formatters().items():
            for table in (printers.type_printers, printers.deferred_printers):
                for kind, function in list(table.items()):
                    yield (mime, kind), (mime, kind, function)

    def put(mime: str, kind: type | tuple[str, str], function: Any) -> None:
        if isinstance(kind, type):
            formatters()[mime].for_type(kind, function)
        else:
            formatters()[mime].for_type_by_name(*kind, function)

    def label(key: tuple[str, type | tuple[str, str]], _: Entry) -> str:
        mime, kind = key
        return f"{name_of(kind) if isinstance(kind, type) else '.'.join(kind)} as {mime}"

    return Place("printer", entries, put, label)


def _hooks(events: Any, event: str) -> Place:
    return of_list(f"{event} hook", lambda: events.callbacks[event], is_librarys_code)


def _custom_errors(shell: Any) -> Place:
    """What `set_custom_exc` has set; IPython wraps the user's function in one of its own."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        if shell.custom_exceptions:
            yield "set_custom_exc", (shell.custom_exceptions, shell.CustomTB.__func__)

    def put(kinds: tuple[type[BaseException], ...], handler: Any) -> None:
        shell.custom_exceptions, shell.CustomTB = kinds, types.MethodType(handler, shell)

    return Place("error handler", entries, put)
