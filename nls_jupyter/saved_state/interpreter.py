"""The state of the interpreter itself that a notebook depends on: random numbers, settings, folders, history.

Each aspect is kept by itself, so that one that fails is named and the others come back. Only libraries that are
imported have any state.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.saved_state import (
    accessors,
    calls,
    cython_cells,
    dispatched_functions,
    gin_config,
    ipython_objects,
    ipython_session,
    keras_settings,
    library_settings,
    library_stores,
    loggers,
    logging_settings,
    loguru_sinks,
    module_files,
    pictures,
    process_objects,
    process_settings,
    registered_colors,
    registered_types,
    running,
    sqlalchemy_engines,
    standard_library,
    torch_hooks,
    training_logs,
    typing_constructs,
    url_opener,
    virtual_subclasses,
    yaml_functions,
)
from nls_jupyter.saved_state.hidden_names import HiddenNames
from nls_jupyter.saved_state.manifest import MissingName, describe
from nls_jupyter.saved_state.modules import UserModules
from nls_jupyter.saved_state.patches import Patches
from nls_jupyter.saved_state.places import Places
from nls_jupyter.saved_state.watchdog import StuckError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_jupyter.saved_state.aspect import Aspect
    from nls_jupyter.saved_state.graph import Component


class Interpreter:
    """What is kept of this process beside the names. Made when the process starts: what is there then is not a change.

    Args:
        shell: IPython's, for its history and extensions; `None` outside of it.
    """

    def __init__(self, shell: Any = None) -> None:
        self._shell = shell
        self._modules = UserModules()
        logs, loguru = logging_settings.Logging(), loguru_sinks.Loguru()
        of_process = (*process_settings.of_process(), *standard_library.of_standard_library())
        self._aspects = [
            *of_process,
            module_files.of_module_files(),
            cython_cells.of_cython_cells(),
            *logs.aspects(),
            *loguru.aspects(),
            torch_hooks.numbers(),
        ]
        places = [
            *process_objects.of_process(),
            loggers.place(),
            *logs.places(),
            *loguru.places(),
            typing_constructs.overloads(),
            library_settings.numpy_errors(),
            library_settings.numpy_formatters(),
            library_settings.pandas_functions(),
            library_settings.plotly_templates(),
            library_settings.altair_plugins(),
            library_settings.sympy_printers(),
        ]
        colors = registered_colors.RegisteredColors()
        virtual, called = virtual_subclasses.VirtualSubclasses(), calls.Calls()
        dispatched, of_yaml = dispatched_functions.DispatchedFunctions(), yaml_functions.YamlFunctions()
        places += [torch_hooks.place(), pictures.pyplot_figures(), *colors.places(), *registered_types.places()]
        places += [accessors.place(), virtual.place(), url_opener.place(), keras_settings.place()]
        places += [called.place(), *library_stores.places(), *gin_config.places(), sqlalchemy_engines.place()]
        places += [dispatched.place(), of_yaml.place()]
        if shell is not None:
            hidden = HiddenNames(shell)
            self._aspects += [*ipython_session.of_shell(shell), *pictures.of_shell(shell), hidden.aspect()]
            started = running.Running(shell)
            self._aspects += started.aspects()
            places += [process_objects.at_exit(), *ipython_objects.of_shell(shell), hidden.place()]
            places.append(ipython_session.bound_names(shell))
            places += Patches(shell).places()
        self._aspects += keras_settings.of_keras()
        self._aspects += [library_stores.tables(), *training_logs.aspects()]
        self._aspects += library_settings.of_libraries()  # after IPython's, such as %precision, which sets NumPy's
        self._places = Places(places)
        #: Aspects as they were when the process started, or right after their module's import.
        self._fresh: dict[str, bytes | None] = {}
        if shell is not None:
            self._modules.follow()
            logs.follow()
            loguru.follow()
            colors.follow()
            virtual.follow()
            called.follow()
            dispatched.follow()
            of_yaml.follow()
            started.follow()
            self._look_at_fresh_ones()

    def capture(self) -> tuple[bytes, list[MissingName]]:
        """Everything, to be stored, and what could not be kept."""
        kept: dict[str, bytes] = {}
        missing = []
        for aspect in self._aspects:
            if aspect.module is not None and aspect.module not in sys.modules:
                continue
            try:
                value = _captured(aspect)
            except (Exception, StuckError) as error:  # noqa: BLE001 - named, and the others are kept
                missing.append(MissingName(aspect.name, "setting", describe(error)))
            else:
                if value is not None and (aspect.always or value != self._fresh.get(aspect.name)):
                    kept[aspect.name] = value
        return pickle.dumps(kept, protocol=5), missing

    def apply(self, stored: bytes, *, early: bool) -> list[MissingName]:
        """Those that are needed before the names come back, or the others; what could not be applied."""
        kept: dict[str, bytes] = pickle.loads(stored)  # noqa: S301 - from this notebook's own process
        missing = []
        for aspect in self._aspects:
            is_due = aspect.early == early or (aspect.again and not early)
            if not is_due or aspect.name not in kept:
                continue
            try:
                if aspect.module is not None:
                    importlib.import_module(aspect.module)
                aspect.apply(pickle.loads(kept[aspect.name]))  # noqa: S301 - see above
            except (Exception, StuckError) as error:  # noqa: BLE001 - named, and the others are applied
                missing.append(MissingName(aspect.name, "setting", describe(error)))
        return missing

    def _look_at_fresh_ones(self) -> None:
        of_modules: dict[str, list[Aspect]] = {}
        for aspect in self._aspects:
            if not aspect.always:
                of_modules.setdefault(aspect.module or "", []).append(aspect)
        self._keep_fresh(of_modules.pop("", []))
        AfterImport({name: functools.partial(self._keep_fresh, of) for name, of in of_modules.items()}).install()

    def _keep_fresh(self, aspects: Iterable[Aspect], _: object = None) -> None:
        for aspect in aspects:
            with contextlib.suppress(Exception):  # it is captured again, and then its error is told
                self._fresh[aspect.name] = _captured(aspect)

    def is_fresh(self, component: Component) -> bool:
        """Whether a component of `outputs` is as a new process makes it anyway."""
        return self._modules.is_fresh(component)

    def outputs(self) -> dict[str, Any]:
        """What is saved beside the user's names, by what tells it: last results, what modules and places hold."""
        return {**self._results(), **self._modules.names(), **self._places.names()}

    def _results(self) -> dict[str, Any]:
        if self._shell is None:
            return {}
        names = self._shell.user_ns
        results = {f"Out[{number}]": value for number, value in names.get("_oh", {}).items()}
        last = ipython_session.last_results(self._shell)
        return results | {name: result for name, result in last.items() if not _is_empty(result)}

    def shown(self) -> list[int]:
        """Values that cells showed, by identity: each as often as IPython holds it, but for `_`, `__` and `___`."""
        if self._shell is None:
            return []
        names, hook = self._shell.user_ns, self._shell.displayhook
        results = names.get("_oh", {})
        numbered = [f"_{number}" for number in results]
        hidden = [self._shell.user_ns_hidden.get(name) for name in (*ipython_session.LAST_RESULTS, *numbered)]
        last = getattr(getattr(self._shell, "last_execution_result", None), "result", None)
        held = (*results.values(), *map(names.get, numbered), *hidden, hook._, hook.__, hook.___, last)
        return list(map(id, held))

    def put_outputs(self, outputs: Mapping[str, Any]) -> list[MissingName]:
        """The inverse of `outputs`; what could not be put where it was."""
        placed = {name: value for name, value in outputs.items() if self._places.has(name)}
        lost = self._places.put(placed)
        lost += self._modules.put(
            {name: value for name, value in outputs.items() if ":" in name and name not in placed}
        )
        if self._shell is not None:
            self._put_results(outputs)
        return lost

    def _put_results(self, outputs: Mapping[str, Any]) -> None:
        for name, value in outputs.items():
            if ":" in name:
                continue
            if name.startswith("Out["):
                number = int(name[4:-1])
                self._shell.user_ns["_oh"][number] = self._shell.user_ns[f"_{number}"] = value
            else:
                # Not as the user's: IPython never again binds what it takes for that.
                self._shell.push({name: value}, interactive=False)
                setattr(self._shell.displayhook, name, value)


def _captured(aspect: Aspect) -> bytes | None:
    value = aspect.capture()
    return None if value is None else pickle.dumps(value, protocol=5)


def _is_empty(result: Any) -> bool:
    """Whether there was no such result: IPython has an empty text in its place."""
    return type(result) is str and not result
