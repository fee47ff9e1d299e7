"""What IPython keeps of a notebook's session beside the names."""

from __future__ import annotations
import __future__

import copy
import functools
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import LAST_INPUT, RELOADER, TRAIT_VALUES
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.last_error import LastError
from nls_jupyter.saved_state.manifest import NotKeptError, is_ipythons
from nls_jupyter.saved_state.places import Place
from nls_jupyter.saved_state.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

    Traits = dict[str, dict[str, Any]]

# Objects, which `ipython_objects` keeps.
_OBJECTS = frozenset({"type_printers", "singleton_printers", "deferred_printers", "ast_transformers"})
_MISSING = object()


def of_shell(shell: Any) -> tuple[Aspect, ...]:
    """What is kept of this shell. Made when the process starts: what is there then is not a change."""
    configured, sources = _Configured(shell), Sources(shell.compile)
    return (
        Aspect("IPython's extensions", lambda: sorted(shell.extension_manager.loaded), lambda n: _load(shell, n)),
        Aspect("IPython's settings", configured.changed, configured.set),
        Aspect("%xmode and %pdb", lambda: _of_tracebacks(shell), lambda state: _set_tracebacks(shell, state)),
        Aspect("%autoreload", lambda: _autoreload(shell), lambda state: _set_autoreload(shell, state)),
        Aspect("%dhist and %pushd", lambda: _folders(shell), lambda state: _set_folders(shell, *state)),
        Aspect("%logstart", lambda: _logging(shell), lambda _: None),
        Aspect("In", lambda: _inputs(shell), lambda state: _set_inputs(shell, state), always=True),
        Aspect("_i", lambda: _typed(shell), lambda state: _set_typed(shell, state), always=True),
        Aspect("the order of Out", lambda: list(shell.user_ns["_oh"]), lambda numbers: _sort_outputs(shell, numbers)),
        Aspect("the cells' sources", sources.capture, sources.apply),
        LastError(shell).aspect(),
        Aspect("__future__", lambda: _from_future(shell), lambda names: _import_from_future(shell, names)),
    )


def _load(shell: Any, names: list[str]) -> None:
    for name in names:
        if name not in shell.extension_manager.loaded:
            shell.extension_manager.load_extension(name)


class _Configured:
    """Traits that `%config`, or a magic such as `%precision`, has changed."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        seen = () if TRAIT_VALUES.missing else self._things()  # which is told when somebody asks what has changed
        self._before = {id(thing): _copied(_traits(thing)) for thing in seen}

    def changed(self) -> Traits | None:
        """By class and name, those that are not as they were when they were first seen."""
        found: Traits = {}
        for thing in self._things():
            now, before = _traits(thing), self._as_first_seen(thing)
            kind: Any = type(thing)
            for name in _settings(kind) & now.keys():
                value = now[name]
                if before.get(name, _MISSING) is not value and value != _value_before(thing, before, name):
                    found.setdefault(kind.__name__, {})[name] = copy.copy(value)
        return found or None

    def set(self, changed: Mapping[str, Mapping[str, Any]]) -> None:
        """The inverse. Raises RuntimeError with all that could not be set."""
        things = {type(thing).__name__: thing for thing in self._things()}
        failed = []
        for kind, values in changed.items():
            for name, value in values.items():
                try:
                    thing = things.get(kind) or self._shell.magics_manager.registry[kind]
                    self._as_first_seen(thing)
                    setattr(thing, name, value)
                except Exception as error:  # noqa: BLE001 - named, and the others are set
                    failed.append(f"{kind}.{name}: {error!r}")
        if failed:
            raise RuntimeError("; ".join(failed))

    def _as_first_seen(self, thing: Any) -> dict[str, Any]:
        before = self._before.get(id(thing))
        if before is None:
            before = self._before[id(thing)] = _copied(_traits(thing))
        return before

    def _things(self) -> Iterator[Any]:
        shell = self._shell
        formatter = shell.display_formatter
        for thing in (*shell.configurables, *formatter.formatters.values()):
            # An application has its connections there, which are each process's own.
            if type(thing).__name__ != "InlineBackend" and not hasattr(thing, "initialize"):
                yield thing


@functools.cache
def _settings(kind: Any) -> frozenset[str]:
    return frozenset(kind.class_trait_names(config=True)) - _OBJECTS


def _traits(thing: Any) -> dict[str, Any]:
    values: dict[str, Any] = TRAIT_VALUES.of(thing)
    return values


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that can be changed in place are copied."""
    return {name: copy.copy(value) if isinstance(value, (list, dict, set)) else value for name, value in values.items()}


def _value_before(thing: Any, before: dict[str, Any], name: str) -> Any:
    if name not in before:
        before[name] = thing.trait_defaults(name)  # the class's own way of making one counts, too
    return before[name]


def _of_tracebacks(shell: Any) -> dict[str, Any]:
    shown = shell.InteractiveTB
    return {"mode": shown.mode, "skip_hidden": shown.skip_hidden, "pdb": shell.call_pdb}


def _set_tracebacks(shell: Any, state: Mapping[str, Any]) -> None:
    shell.InteractiveTB.set_mode(state["mode"])
    shell.InteractiveTB.skip_hidden = state["skip_hidden"]
    shell.call_pdb = state["pdb"]


def _folders(shell: Any) -> tuple[list[Any], list[str]]:
    """Where the notebook has been, and where `%popd` leads."""
    return list(shell.user_ns["_dh"]), list(shell.dir_stack)


def _set_folders(shell: Any, been: list[Any], stack: list[str]) -> None:
    shell.user_ns["_dh"][:], shell.dir_stack[:] = been, stack


_AUTORELOAD = ("enabled", "check_all", "autoload_obj", "modules", "skip_modules", "hide_errors")


def _reloader(shell: Any) -> Any:
    magics = dict.get(shell.magics_manager.registry, "AutoreloadMagics")  # asked otherwise, it may be loaded
    return None if magics is None else RELOADER.of(magics)


def _autoreload(shell: Any) -> dict[str, Any] | None:
    if "IPython.extensions.autoreload" not in sys.modules or (reloader := _reloader(shell)) is None:
        return None
    return {name: copy.copy(getattr(reloader, name)) for name in _AUTORELOAD if hasattr(reloader, name)}


def _set_autoreload(shell: Any, state: Mapping[str, Any]) -> None:
    for name, value in state.items():
        setattr(_reloader(shell), name, value)


def _logging(shell: Any) -> None:
    if getattr(shell.logger, "log_active", False):
        raise NotKeptError("the log ends with its process; start it again")


def _inputs(shell: Any) -> tuple[int, list[str]]:
    return shell.execution_count, list(shell.user_ns["_ih"])


def _set_inputs(shell: Any, state: tuple[int, list[str]]) -> None:
    shell.execution_count, inputs = state
    shell.user_ns["_ih"][:] = inputs  # the list that `In` is, too
    if shell.last_execution_result is None:  # as before a first cell, in which `%xdel` fails
        from IPython.core.interactiveshell import ExecutionResult

        shell.last_execution_result = ExecutionResult(None)  # type: ignore[no-untyped-call]


# Attributes of IPython's history: each cell moves them on by one, and the last becomes `_i` when the next one begins.
_LAST_TYPED = ("_iii", "_ii", "_i", LAST_INPUT.name)


def _typed(shell: Any) -> tuple[dict[int, str], list[str]]:
    """Cells by their numbers, as they were typed, where `In` has them otherwise; and the last ones."""
    history = shell.history_manager
    both = zip(history.input_hist_raw, shell.user_ns["_ih"], strict=False)
    differ = {number: typed for number, (typed, transformed) in enumerate(both) if typed != transformed}
    LAST_INPUT.of(history)
    return differ, [getattr(history, name) for name in _LAST_TYPED]


def _set_typed(shell: Any, state: tuple[Mapping[int, str], list[str]]) -> None:
    """After `In`; with the names that lead to cells, such as `_i5`."""
    history, (differ, last) = shell.history_manager, state
    cells = [differ.get(number, transformed) for number, transformed in enumerate(shell.user_ns["_ih"])]
    if history.hist_file == ":memory:":  # where `%history -l` and `-g` look; what is on a disk has them already
        history.db_input_cache += [*zip(count(), shell.user_ns["_ih"], cells, strict=False)][1:]
    history.input_hist_raw[:] = cells
    names = {f"_i{number}": typed for number, typed in enumerate(cells) if typed}
    for name, typed in zip(_LAST_TYPED, last, strict=True):
        setattr(history, name, typed)
        if name != LAST_INPUT.name:
            names[name] = typed
    shell.push(names, interactive=False)


def _sort_outputs(shell: Any, numbers: list[int]) -> None:
    """Results come back with what they share something with, in that order."""
    outputs = shell.user_ns["_oh"]
    outputs |= {number: outputs.pop(number) for number in numbers if number in outputs}


LAST_RESULTS = ("_", "__", "___")


def last_results(shell: Any) -> dict[str, Any]:
    """Those of their names that are IPython's: what a cell has bound itself, it leaves alone."""
    names, hidden, hook = shell.user_ns, shell.user_ns_hidden, shell.displayhook
    there = {name: names[name] for name in LAST_RESULTS if name in names}
    return {name: value for name, value in there.items() if value is hidden.get(name, getattr(hook, name))}


def bound_names(shell: Any) -> Place:
    """Names that IPython has, too, where a cell has bound them: `_` for `gettext`, an `exit` beside an `entry`."""

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        names, results = shell.user_ns, last_results(shell)
        for name, value in list(names.items()):
            if type(name) is str and is_ipythons(name) and name not in results and _is_bound(shell, name, value):
                yield name, (name, value)

    return Place("name", entries, shell.user_ns.__setitem__)


def _is_bound(shell: Any, name: str, value: Any) -> bool:
    """Whether a cell has bound this name, one that is IPython's, to another value than IPython does."""
    if name in LAST_RESULTS or name in {"__file__", "_exit_code"}:  # what `!` has ended with, IPython binds but then
        return True
    if name in {"In", "Out", "exit", "quit"}:
        history = shell.history_manager
        its = {"In": history.input_hist_parsed, "Out": history.output_hist}.get(name, shell.exiter)
        return value is not its
    if name[1:].isdigit():
        return shell.user_ns["_oh"].get(int(name[1:]), _MISSING) is not value
    return False


def _from_future(shell: Any) -> list[str]:
    """What cells have imported from `__future__`, which holds for all cells after them."""
    flags = shell.compile.flags
    return [name for name in __future__.all_feature_names if flags & getattr(__future__, name).compiler_flag]


def _import_from_future(shell: Any, names: list[str]) -> None:
    for name in names:
        shell.compile.flags |= getattr(__future__, name).compiler_flag
