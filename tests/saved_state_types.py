"""Every type of the standard library and of the libraries that notebooks use: objects of it, and what changes them."""

from __future__ import annotations

import copy
import enum
import gc
import importlib
import itertools
import logging
import pkgutil
import random
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

from saved_state_portrait import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES = ("IPython", "PIL", "ipywidgets", "matplotlib", "networkx", "numpy", "pandas", "scipy", "sklearn", "torch")
SMALL_LIBRARIES = ("tqdm", "traitlets")
# Games, other people's tests, and what opens a window.
_NOT_IMPORTED = {
    *("antigravity", "ensurepip", "idlelib", "lib2to3", "pip", "test", "this", "tkinter", "turtle", "turtledemo"),
}
# Their objects reach for the network or for a terminal when they are made, or end this process.
_NOT_MADE = (
    *("ftplib", "imaplib", "nntplib", "poplib", "smtplib", "telnetlib", "curses", "pdb", "cmd", "code", "asyncore"),
    *("multiprocessing.managers", "multiprocessing.pool", "multiprocessing.resource", "torch.multiprocessing"),
    *("torch.distributed", "torch._inductor", "torch.testing", "sklearn.externals", "ctypes.CDLL", "xmlrpc"),
    *(
        "matplotlib.backends",
        "IPython.terminal",
        "unittest.main",
        "os._wrap_close",
        "http.client",
        "socketserver",
        "builtins.StgDict",
    ),
    # Abstract bases in C, made past their own initialisation: whoever looks at one may die.
    *("pandas._libs.tslibs.base.ABCTimestamp", "pandas._libs.tslibs.nattype._NaT"),
    # Thousands of classes that C++ code or a compiler generates, which nothing but that makes.
    *("torch.autograd.function.Generated", "torch._C", "builtins.Generated", "builtins.StreamConverter"),
)
_IN_PLACE_OF_ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    *(
        (),
        (1,),
        ("a",),
        ([1, 2],),
        ({"a": 1},),
        (b"ab",),
        (1.5,),
        (abs,),
        (dict,),
        ("a", "b"),
        (1, 2),
        ([1, 2], [3, 4]),
    ),
    *((1, 2, 3), ("a", 1), (abs, [1, 2]), ("a", "b", "c"), (1, 2, 3, 4)),
)
#: Where these do not help: modules to import are named in the expression.
RECIPES = {
    "builtins.async_generator": "(lambda: (yield))()",
    "builtins.cell": "(lambda x: (lambda: x))([1]).__closure__[0]",
    "builtins.classmethod": "classmethod(lambda k: k)",
    "builtins.function": "lambda x=[1]: x",
    "builtins.method": "types.SimpleNamespace(a=[1]).__repr__",
    "builtins.property": "property(lambda s: 1)",
    "builtins.staticmethod": "staticmethod(lambda: 1)",
    "builtins.super": "super(collections.OrderedDict, collections.OrderedDict(a=1))",
    "builtins.type": "type('Made', (), {'x': [1]})",
    "builtins.zip": "zip([1, 2, 3], [4, 5, 6])",
    "builtins.map": "map(str, [1, 2, 3])",
    "builtins.filter": "filter(None, [1, 2, 3])",
    "builtins.enumerate": "enumerate([1, 2, 3])",
    "builtins.reversed": "reversed((1, 2, 3))",
    "builtins.memoryview": "memoryview(bytearray(b'abc'))",
    "builtins.mappingproxy": "types.MappingProxyType({'a': [1]})",
    "functools.partial": "functools.partial(max, [1])",
    "functools.cached_property": "functools.cached_property(len)",
    "functools._lru_cache_wrapper": "functools.lru_cache(lambda x: x)",
    "collections.deque": "collections.deque([1, 2, 3], 5)",
    "collections.defaultdict": "collections.defaultdict(list, a=[1])",
    "weakref.ReferenceType": "weakref.ref(collections.OrderedDict)",
    "weakref.finalize": "weakref.finalize(collections.OrderedDict, print)",
    "itertools.tee": "itertools.tee([1, 2, 3])[0]",
    "itertools._tee": "itertools.tee([1, 2, 3])[0]",
    "itertools.groupby": "itertools.groupby([1, 1, 2])",
    "itertools.zip_longest": "itertools.zip_longest([1, 2], [3])",
    "itertools.accumulate": "itertools.accumulate([1, 2, 3])",
    "itertools.islice": "itertools.islice([1, 2, 3, 4], 3)",
    "itertools.starmap": "itertools.starmap(max, [(1, 2), (3, 4), (5, 6)])",
    "itertools.chain": "itertools.chain([1, 2], [3])",
    "itertools.cycle": "itertools.cycle([1, 2])",
    "itertools.repeat": "itertools.repeat([1], 5)",
    "itertools.product": "itertools.product([1, 2], [3, 4])",
    "csv.DictReader": "csv.DictReader(['a,b', '1,2', '3,4'])",
    "numpy.flatiter": "numpy.arange(4).flat",
    "numpy.nditer": "numpy.nditer(numpy.arange(4))",
    "numpy.ndarray": "numpy.arange(6.0).reshape(2, 3)",
    "numpy.ma.core.MaskedArray": "numpy.ma.masked_array([1.0, 2.0], [True, False])",
    "numpy.memmap": "numpy.memmap('mapped', shape=3, mode='w+')",
    "numpy.void": "numpy.zeros(2, 'i4,f8')[0]",
    "numpy.recarray": "numpy.rec.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])",
    "numpy.record": "numpy.rec.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])[0]",
    "pandas.DataFrame": "pandas.DataFrame({'a': [1, 2], 'b': ['x', None]})",
    "pandas.core.frame.DataFrame": "pandas.DataFrame({'a': [1, 2], 'b': ['x', None]})",
    "pandas.core.groupby.generic.DataFrameGroupBy": "pandas.DataFrame({'a': [1, 2]}).groupby('a')",
    "torch.Tensor": "torch.arange(4.0)",
    "torch.nn.parameter.Parameter": "torch.nn.Parameter(torch.ones(2))",
    "torch.optim.sgd.SGD": "torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)",
    "torch.optim.adam.Adam": "torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])",
    "tqdm.std.tqdm": "tqdm.tqdm(range(3))",
}
_DERIVED = ("keys", "values", "items", "__iter__", "__reversed__", "flat", "T", "iterrows", "elements")
_METHODS = (
    *(
        "append",
        "add",
        "update",
        "get",
        "write",
        "read",
        "random",
        "__len__",
        "__getitem__",
        "__call__",
        "extend",
        "fill",
    ),
)


def import_everything() -> None:
    """All modules of the standard library that can be imported here, and the libraries with their packages."""
    for name in sorted(sys.stdlib_module_names - _NOT_IMPORTED):
        if not name.startswith("__"):
            _import_with_packages(name)
    for name in (*LIBRARIES, *SMALL_LIBRARIES):
        _import_with_packages(name, deep=False)


def _import_with_packages(name: str, *, deep: bool = True) -> None:
    if not _import(name):
        return
    for found in pkgutil.iter_modules(getattr(sys.modules[name], "__path__", ()), f"{name}."):
        public = not found.name.rpartition(".")[2].startswith(("_", "test", "conftest"))
        if public and (deep or found.ispkg) and not found.name.startswith(_NOT_MADE):
            _import(found.name)


def _import(name: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)
    except Exception:  # noqa: BLE001 - of another system, or without a package that is not here
        return False
    return True


def all_types() -> dict[str, type]:
    """Types by name, of the standard library and of the libraries, in the order of their names."""
    gc.collect()
    roots = {*sys.stdlib_module_names, *LIBRARIES, *SMALL_LIBRARIES, "builtins"} - _NOT_IMPORTED
    found: dict[str, type] = {}
    todo: list[type] = [object]
    seen: set[type] = {object}
    while todo:
        kind = todo.pop()
        fresh = [child for child in type.__subclasses__(kind) if child not in seen]
        seen.update(fresh)
        todo += fresh
        module = kind.__module__
        if isinstance(module, str) and module.partition(".")[0] in roots and not issubclass(kind, type):
            found.setdefault(name_of(kind), kind)
    return dict(sorted(found.items()))


def versions() -> dict[str, str]:
    """Of Python and of the libraries whose types these are."""
    found = {name: str(getattr(sys.modules[name], "__version__", "")) for name in (*LIBRARIES, *SMALL_LIBRARIES)}
    return {"python": ".".join(map(str, sys.version_info[:2])), **found}


def may_be_made(name: str) -> bool:
    """Whether it is worth a try."""
    return name in RECIPES or not (name.startswith(_NOT_MADE) or "<locals>" in name)


def make(name: str, kind: type) -> Any:
    """An object of a type. Raises LookupError where nobody knows how."""
    random.seed(0)
    sys.modules["numpy"].random.seed(0)
    sys.modules["torch"].manual_seed(0)
    if name in RECIPES:
        return eval(RECIPES[name], _Modules())
    for args in _IN_PLACE_OF_ARGUMENTS:
        try:
            with warnings.catch_warnings(action="ignore"):
                made = kind(*copy.deepcopy(args))
        except Exception:  # noqa: BLE001 - most want something else
            continue
        if type(made) is kind:
            return made
    raise LookupError(name)


class _Modules(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        if hasattr(sys.modules["builtins"], name):
            raise KeyError(name)
        return importlib.import_module(name)


def change(thing: Any) -> None:
    """What a cell may do to an object, in as many ways as it has."""
    if isinstance(thing, enum.Enum):
        return  # it is its class's
    for way in (
        lambda: setattr(thing, "nls_note", [1, "note"]),
        lambda: thing.append(7),
        lambda: thing.add(7),
        lambda: thing.update({"nls": [7]}),
        lambda: thing.__setitem__("nls", [8]),
        lambda: thing.__setitem__(0, 9),
        lambda: thing.write("text"),
        lambda: thing.write(b"bytes"),
        lambda: next(thing),
        lambda: thing.random(),
    ):
        try:
            with warnings.catch_warnings(action="ignore"):
                way()
        except Exception:  # noqa: BLE001 - it has no such way
            continue


def names_around(thing: Any) -> dict[str, Any]:
    """A namespace with an object, what is derived from it, and others that lead to it."""
    names: dict[str, Any] = {"x": thing, "again": thing, "holder": [thing]}
    names |= {f"derived_{name}": made for name, made in _derived(thing)}
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is dict and not _is_a_librarys(thing):
        names["attributes"] = attributes
    return names


def _is_a_librarys(thing: Any) -> bool:
    """Whether it is a member of an enumeration, a logger or another object that pickle only tells the name of."""
    try:
        return isinstance(thing, (enum.Enum, logging.Logger)) or isinstance(thing.__reduce_ex__(4), str)
    except Exception:  # noqa: BLE001 - it cannot be pickled at all
        return False


def _derived(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, types.ModuleType):
        return
    for name in (*_DERIVED, *_METHODS):
        try:
            with warnings.catch_warnings(action="ignore"):
                found = getattr(thing, name)
                made = found() if name in _DERIVED and callable(found) else found
        except Exception:  # noqa: BLE001 - it has none
            continue
        yield name, made
    if isinstance(thing, dict):
        for way in itertools.islice(("keys", "values", "items"), 3):
            yield f"iterator_{way}", iter(getattr(thing, way)())
