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

from nls_jupyter.between import seams
from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.saved_state.looks import ATOMS
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place, asked_by_a_cell, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import ModuleType

    from nls_jupyter.saved_state.places import Entry


@dataclass(frozen=True, slots=True)
class _Told:
    """A function.

    Attributes:
        module: where it is defined.
        path: of it in there.
        each: whether calls with another first argument stand beside each other; else only the last one counts.
        undone_by: what takes back the call with the same first argument, or without any argument all of them.
    """

    module: str
    path: str
    each: bool = False
    undone_by: tuple[str, ...] = ()


_NO_RESOLVERS: Final = ("OmegaConf.clear_resolver", "OmegaConf.clear_resolvers")
_TOLD: Final = (
    _Told("codecs", "register", each=True, undone_by=("unregister",)),
    _Told("codecs", "register_error", each=True),
    _Told("shutil", "register_archive_format", each=True, undone_by=("unregister_archive_format",)),
    _Told("shutil", "register_unpack_format", each=True, undone_by=("unregister_unpack_format",)),
    _Told("absl.logging", "set_verbosity"),
    _Told("boto3", "setup_default_session"),
    _Told("datasets.fingerprint", "disable_caching", undone_by=("enable_caching",)),
    _Told("gin.config", "enter_interactive_mode", undone_by=("exit_interactive_mode",)),
    _Told("joblib.parallel", "register_parallel_backend", each=True),
    _Told("langchain_core.globals", "set_debug"),
    _Told("langchain_core.globals", "set_llm_cache"),
    _Told("langchain_core.globals", "set_verbose"),
    *(
        _Told("omegaconf.omegaconf", f"OmegaConf.{name}", each=True, undone_by=_NO_RESOLVERS)
        for name in ("register_new_resolver", "register_resolver")
    ),
    *(
        _Told(module, "disable_default_handler", undone_by=("enable_default_handler",))
        for module in ("optuna.logging", "transformers.utils.logging")
    ),
    _Told("requests_cache.patcher", "install_cache", undone_by=("uninstall_cache",)),
    _Told("rich", "reconfigure"),
    _Told("rich.pretty", "install"),
    _Told("rich.traceback", "install"),
    _Told("sentry_sdk.api", "init"),
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
        self._made: dict[tuple[str, str, Hashable], Entry] = {}

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

    def _made_by(self, told: _Told, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        first = _first(args, options)
        key = None if not told.each else first if type(first) in ATOMS else id(first)
        self._made[told.module, told.path, key] = (told.module, told.path, options, args)

    def _undo(self, of: str, undone: list[str], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        first = _first(args, options)
        for key, (module, path, were_options, were_args) in list(self._made.items()):
            were_first = _first(were_args, were_options)
            is_meant = not (args or options) or first is were_first or (type(first) is str and first == were_first)
            if module == of and path in undone and is_meant:
                del self._made[key]

    def _call(self, module: str, path: str, options: dict[str, Any], args: tuple[Any, ...]) -> None:
        operator.attrgetter(path)(importlib.import_module(module))(*args, **options)
        (told,) = (told for told in _TOLD if (told.module, told.path) == (module, path))
        self._made_by(told, args, options)


def _replace(module: ModuleType, path: str, note: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> None:
    """Have `note` told with what a function was given by code of the user's, where this version has that function."""
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part, None)
    kept = vars(owner).get(name) if owner is not None else None
    function = getattr(kept, "__func__", kept)
    if not callable(function):
        return
    of_class = isinstance(kept, classmethod)

    @functools.wraps(function)
    def listening(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        caller = sys._getframe(1).f_globals.get("__name__")
        if is_the_users_module(caller) and asked_by_a_cell(no_import_of_theirs=True):
            note(args[of_class:], options)
        return result

    listening.__module__ = module.__name__  # that of one in C is the one behind it
    setattr(owner, name, type(kept)(listening) if isinstance(kept, (classmethod, staticmethod)) else listening)


def _first(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return next(iter((*args, *options.values())), None)


def _label(key: tuple[str, str, Hashable], parts: Entry) -> str:
    module, path, of_each = key
    *_, options, args = parts
    first = _first(args, options)
    shown = "" if of_each is None else first if type(first) is str else name_of(first)
    return f"{module.partition('.')[0]}.{path}({shown})"
