"""Objects of the user's that IPython holds: magics, printers of types, hooks, completers, transformers of cells."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from IPython.core.hooks import CommandChainDispatcher

from nls_jupyter.saved_state.places import Place, is_librarys_code, is_librarys_object, name_of, of_list

if TYPE_CHECKING:
    import re
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

_TRANSFORMERS = ("cleanup_transforms", "line_transforms", "token_transformers")


def of_shell(shell: Any) -> tuple[Place, ...]:
    """The places of this shell."""
    manager = shell.input_transformer_manager
    return (
        _magics(shell.magics_manager),
        _formatters(shell.display_formatter),
        _printers(shell.display_formatter),
        *(_hooks(shell.events, event) for event in shell.events.callbacks),
        *(of_list(name, lambda name=name: getattr(manager, name), is_librarys_object) for name in _TRANSFORMERS),  # type: ignore[misc]
        of_list("input transformer", lambda: shell.input_transformers_post, is_librarys_object),
        of_list("AST transformer", lambda: shell.ast_transformers, is_librarys_object),
        _custom_errors(shell),
        _set_hooks(shell),
        _completers(shell),
        _methods(shell),
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


def _formatters(display: Any) -> Place:
    """Formatters of a class of the user's, for a type of MIME of their own or in the place of IPython's."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        yield from ((mime, (mime, formatter)) for mime, formatter in list(display.formatters.items()))

    def put(mime: str, formatter: Any) -> None:
        display.formatters[mime] = formatter

    return Place("formatter", entries, put, comes_by_itself=is_librarys_object)


def _printers(formatter: Any) -> Place:
    """Of IPython's formatters; those of the user's have theirs with them."""

    def formatters() -> dict[str, Any]:
        more = {"_ipython_display_": formatter.ipython_display_formatter, "bundle": formatter.mimebundle_formatter}
        return {mime: each for mime, each in {**formatter.formatters, **more}.items() if is_librarys_object(each)}

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


def _set_hooks(shell: Any) -> Place:
    """What `set_hook` was given, also for texts that are completed; IPython makes a method of its own of each."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for *where, chain in _chains(shell):
            for priority, method in list(chain):
                is_method, function = _unbound(method, shell)
                if is_method:
                    yield (*where, id(function)), (*where, priority, function)

    def put(name: str, text: str | None, pattern: re.Pattern[str] | None, priority: int, function: Any) -> None:
        if (name, text, pattern, id(function)) not in dict(entries()):
            shell.set_hook(name, function, priority, text, pattern)

    return Place("IPython hook", entries, put, lambda key, parts: f"{key[0]} {name_of(parts[-1])}", is_librarys_code)


def _chains(shell: Any) -> Iterator[tuple[str, str | None, re.Pattern[str] | None, CommandChainDispatcher]]:
    """Each with its hook's name and, for `complete_command`, the text or the pattern that it is for."""
    for name, chain in shell.hooks.items():
        if isinstance(chain, CommandChainDispatcher):  # else somebody has set it without `set_hook`
            yield name, None, None, chain
    for name, table in shell.strdispatchers.items():
        yield from ((name, text, None, chain) for text, chain in table.strs.items())
        yield from ((name, None, pattern, chain) for pattern, chain in table.regexs.items())


def _completers(shell: Any) -> Place:
    """What `set_custom_completer` was given, of which IPython makes methods, and what cells have appended there."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for position, matcher in enumerate(shell.Completer.custom_matchers):
            is_method, function = _unbound(matcher, shell.Completer)
            yield id(function), (position, is_method, function)

    def put(position: int, is_method: bool, function: Any) -> None:  # noqa: FBT001 - a part of an entry
        if id(function) not in dict(entries()):
            matcher = types.MethodType(function, shell.Completer) if is_method else function
            shell.Completer.custom_matchers.insert(position, matcher)

    return Place("completer", entries, put, lambda _, parts: name_of(parts[-1]), is_librarys_code)


def _methods(shell: Any) -> Place:
    """What cells set in the place of IPython's own methods: `get_ipython().showtraceback = short`."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for name, method in list(vars(shell).items()):
            is_method, function = _unbound(method, shell)
            if isinstance(function, (types.FunctionType, types.MethodType)) and name != "CustomTB":  # see above
                yield name, (name, is_method, function)

    def put(name: str, is_method: bool, function: Any) -> None:  # noqa: FBT001 - a part of an entry
        setattr(shell, name, types.MethodType(function, shell) if is_method else function)

    return Place("method of IPython", entries, put, comes_by_itself=is_librarys_object)


def _unbound(method: Any, owner: Any) -> tuple[bool, Any]:
    """Whether it is a method of `owner`'s, and the function then, which is the user's."""
    is_method = isinstance(method, types.MethodType) and method.__self__ is owner
    return is_method, method.__func__ if is_method else method
