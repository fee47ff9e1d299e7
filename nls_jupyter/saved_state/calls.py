"""What cells tell libraries for the whole process by calling a function that nobody can ask: it is called again.

Each of these functions is listened to once its module is imported. What a library calls by itself, it does again.
"""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from IPython.utils.capture import capture_output

from nls_jupyter.between import seams
from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.saved_state.looks import ATOMS
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place, asked_by_a_cell, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import ModuleType

    from nls_jupyter.saved_state.places import Entry

    _Key = tuple[str, str, Hashable]


@dataclass(frozen=True, slots=True)
class _Told:
    """A function, or a class that sets something when it is called.

    Attributes:
        module: where it is defined.
        path: of it in there.
        each: whether calls with another first argument stand beside each other; else only the last one counts.
        undone_by: what takes back the call with the same first argument, or without any argument all of them.
        until_left: whether it holds until what it gives is left, as `with` does. All that were not left count.
    """

    module: str
    path: str
    each: bool = False
    undone_by: tuple[str, ...] = ()
    until_left: bool = False


# What leaves the context that a call has given.
_LEAVE: Final = ("__exit__", "unregister", "restore_original_limits")
_NEW: Final = "__new__"
_NO_RESOLVERS: Final = ("OmegaConf.clear_resolver", "OmegaConf.clear_resolvers")
_TOLD: Final = (
    _Told("codecs", "register", each=True, undone_by=("unregister",)),
    _Told("codecs", "register_error", each=True),
    _Told("shutil", "register_archive_format", each=True, undone_by=("unregister_archive_format",)),
    _Told("shutil", "register_unpack_format", each=True, undone_by=("unregister_unpack_format",)),
    _Told("copyreg", "add_extension", each=True, undone_by=("remove_extension",)),
    _Told("doctest", "register_optionflag", each=True),
    *(_Told("email.charset", name, each=True) for name in ("add_alias", "add_charset", "add_codec")),
    _Told("faulthandler", "register", each=True, undone_by=("unregister",)),
    _Told("os", "putenv", each=True, undone_by=("unsetenv",)),
    _Told("sys", "addaudithook", each=True),
    _Told("sys", "set_asyncgen_hooks"),
    _Told("sys", "setdlopenflags"),
    _Told("webbrowser", "register", each=True),
    _Told("absl.logging", "set_verbosity"),
    *(
        _Told("astropy.units.core", f"{verb}_enabled_{what}", until_left=True)
        for what in ("units", "equivalencies", "aliases")
        for verb in ("set", "add")
    ),
    _Told("boto3", "setup_default_session"),
    _Told("datasets.fingerprint", "disable_caching", undone_by=("enable_caching",)),
    _Told("gin.config", "enter_interactive_mode", undone_by=("exit_interactive_mode",)),
    _Told("holoviews.ipython", "notebook_extension"),
    _Told("holoviews.util", "extension"),
    _Told("holoviews.util", "opts.defaults", each=True),
    _Told("holoviews.util", "output"),
    _Told("itables.javascript", "init_notebook_mode"),
    _Told("joblib.parallel", "register_parallel_backend", each=True),
    *(_Told("joblib.parallel", name, until_left=True) for name in ("parallel_config", "parallel_backend")),
    _Told("langchain_core.globals", "set_debug"),
    _Told("langchain_core.globals", "set_llm_cache"),
    _Told("langchain_core.globals", "set_verbose"),
    *(_Told("lets_plot", f"LetsPlot.{name}") for name in ("setup_html", "setup_show_ext", "set", "set_theme")),
    _Told("numpy.polynomial", "set_default_printstyle"),
    *(
        _Told("omegaconf.omegaconf", f"OmegaConf.{name}", each=True, undone_by=_NO_RESOLVERS)
        for name in ("register_new_resolver", "register_resolver")
    ),
    *(
        _Told(module, "disable_default_handler", undone_by=("enable_default_handler",))
        for module in ("optuna.logging", "transformers.utils.logging")
    ),
    _Told("opentelemetry.propagate", "set_global_textmap"),
    _Told("opentelemetry.trace", "set_tracer_provider"),
    *(
        _Told("PIL.Image", f"register_{what}", each=True)
        for what in ("open", "mime", "save", "save_all", "extension", "extensions", "decoder", "encoder")
    ),
    _Told("pyvista.jupyter", "set_jupyter_backend"),
    _Told("pyvista.plotting.themes", "set_plot_theme"),
    _Told("requests_cache.patcher", "install_cache", undone_by=("uninstall_cache",)),
    _Told("rich", "reconfigure"),
    _Told("rich.pretty", "install"),
    _Told("rich.traceback", "install"),
    _Told("sentry_sdk.api", "init"),
    _Told("threadpoolctl", "threadpool_limits", until_left=True),
    _Told("torch.distributions.distribution", "Distribution.set_default_validate_args"),
    _Told("torch.serialization", "add_safe_globals", each=True, undone_by=("clear_safe_globals",)),
    *(
        _Told(seam.module, seam.name, each=True)
        for seam in (seams.TORCH_TREES, seams.TORCH_TREES_OF_FIELDS, seams.TORCH_TREES_AS_ONE)
    ),
)


class Calls:
    """Those of this process."""

    def __init__(self) -> None:
        self._made: dict[_Key, Entry] = {}
        self._contexts: dict[int, tuple[_Key, Any]] = {}
        self._left: set[type] = set()

    def follow(self) -> None:
        """Listen from now on. Called once in a process."""
        of_modules: dict[str, list[_Told]] = {}
        for told in _TOLD:
            of_modules.setdefault(told.module, []).append(told)
        AfterImport({name: functools.partial(self._listen, of) for name, of in of_modules.items()}).install()

    def place(self) -> Place:
        """Each with what it was given."""
        return Place("call", lambda: list(self._made.items()), self._call, _label)

    def _listen(self, functions: list[_Told], module: ModuleType) -> None:
        for told in functions:
            _replace(module, told.path, functools.partial(self._made_by, told))
        for path in {path for told in functions for path in told.undone_by}:
            undone = [told.path for told in functions if path in told.undone_by]
            _replace(module, path, functools.partial(self._undo, module.__name__, undone))

    def _made_by(self, told: _Told, result: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        first = _first(args, options)
        of_each = id(result) if told.until_left else None if not told.each else first
        key = told.module, told.path, of_each if type(of_each) in ATOMS else id(of_each)
        self._made[key] = (told.module, told.path, options, args)
        if told.until_left:
            self._contexts[id(result)] = key, result
            self._follow_leaving(type(result))

    def _follow_leaving(self, kind: type) -> None:
        """Contexts of that kind are forgotten with their calls as soon as they are left."""
        for owner in set(kind.__mro__) - self._left - {object}:
            self._left.add(owner)
            for name in _LEAVE:
                if callable(leave := vars(owner).get(name)):
                    setattr(owner, name, self._leaving(leave))

    def _leaving(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(leave)
        def leaving(context: Any, *args: Any, **options: Any) -> Any:
            key, _ = self._contexts.pop(id(context), (None, None))
            if key is not None:
                self._made.pop(key, None)
            return leave(context, *args, **options)

        return leaving

    def _undo(self, of: str, undone: list[str], _: object, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        first = _first(args, options)
        for key, (module, path, were_options, were_args) in list(self._made.items()):
            were_first = _first(were_args, were_options)
            is_meant = not (args or options) or first is were_first or (type(first) is str and first == were_first)
            if module == of and path in undone and is_meant:
                del self._made[key]

    def _call(self, module: str, path: str, options: dict[str, Any], args: tuple[Any, ...]) -> None:
        with capture_output(stdout=False, stderr=False):  # what it displays is in the page already
            result = operator.attrgetter(path)(importlib.import_module(module))(*args, **options)
        (told,) = (told for told in _TOLD if (told.module, told.path) == (module, path))
        self._made_by(told, result, args, options)


def _replace(module: ModuleType, path: str, note: Callable[[Any, tuple[Any, ...], dict[str, Any]], None]) -> None:
    """Have `note` told what a function gave to code of the user's, and for what, where this version has that function.

    A class gives what its `__init__` or, without one of its own, its `__new__` makes of it.
    """
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part, None)
    kept = vars(owner).get(name, owner.__new__ if name == _NEW else None) if owner is not None else None
    function = getattr(kept, "__func__", kept)
    if not callable(function):
        return
    if isinstance(kept, type):
        made_by = "__init__" if "__init__" in vars(kept) else _NEW
        _replace(module, f"{path}.{made_by}", lambda _, args, options: note(args[0], args[1:], options))
        return
    of_class = isinstance(kept, classmethod)

    @functools.wraps(function)
    def listening(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        caller = sys._getframe(1).f_globals.get("__name__")
        if is_the_users_module(caller) and asked_by_a_cell(no_import_of_theirs=True):
            note(result, args[of_class:], options)
        return result

    listening.__module__ = module.__name__  # that of one in C is the one behind it
    kind: Any = staticmethod if name == _NEW else type(kept)
    setattr(owner, name, kind(listening) if issubclass(kind, (classmethod, staticmethod)) else listening)


def _first(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return next(iter((*args, *options.values())), None)


def _label(key: _Key, parts: Entry) -> str:
    module, path, of_each = key
    *_, options, args = parts
    first = _first(args, options)
    shown = "" if of_each is None or first is None else first if type(first) is str else name_of(first)
    return f"{module.partition('.')[0]}.{path}({shown})"
