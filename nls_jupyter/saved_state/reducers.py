"""How objects that pickle refuses, or keeps less of than a notebook needs, are saved or refused by name."""

from __future__ import annotations

import builtins
import copyreg
import functools
import importlib
import importlib.util
import operator
import sys
import types
import warnings
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.code import reduce_code
from nls_jupyter.saved_state import annotated, inline
from nls_jupyter.saved_state.kinds import content_of, is_of, line_of
from nls_jupyter.saved_state.looks import importable, is_exported
from nls_jupyter.saved_state.origins import is_the_users
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PYTHONS_OWN: Final = dict(vars(builtins))
# What consists of addresses of its process: Cython writes these into a pickle as numbers, and whoever reads them frees,
# writes to or calls what is not there. `cupy/cuda/*.pxd` of CuPy 14.2.
_OF_CUPY = {
    "a CUDA stream": ("stream.Stream", "stream.ExternalStream"),
    "a CUDA event": ("stream.Event",),
    "a CUDA graph": ("graph.Graph",),
    "a compiled CUDA kernel": ("function.Function", "function.Module", "function.LinkState", "function.CPointer"),
    "memory of a GPU without an array": ("memory.BaseMemory", "memory.MemoryPointer"),
    "page-locked memory": ("pinned_memory.PinnedMemory", "pinned_memory.PinnedMemoryPointer"),
    "a memory pool": ("memory.MemoryPool", "memory.MemoryAsyncPool", "pinned_memory.PinnedMemoryPool"),
    "an allocator": ("memory.CFunctionAllocator", "memory.PythonFunctionAllocator"),
    "a texture": (
        *("texture.ChannelFormatDescriptor", "texture.ResourceDescriptor", "texture.TextureDescriptor"),
        *("texture.CUDAarray", "texture.TextureObject", "texture.SurfaceObject"),
    ),
    "a plan of cuFFT": ("cufft.Plan1d", "cufft.PlanNd", "cufft.XtPlanNd"),
    "a handle of a CUDA library": ("device.Handle",),
}
# module, type, what to call it. A module that nobody imported has no objects.
_UNSAVABLE = (
    ("socket", "socket", "a socket"),
    ("threading", "Thread", "a thread"),
    ("types", "GeneratorType", "a generator"),
    ("types", "CoroutineType", "a coroutine"),
    ("types", "AsyncGeneratorType", "a generator"),
    ("types", "FrameType", "a frame of running code"),
    ("types", "TracebackType", "a traceback"),
    ("weakref", "finalize", "a finalizer"),
    ("mmap", "mmap", "a memory map"),
    ("asyncio", "Future", "an asyncio future or task"),
    ("asyncio", "AbstractEventLoop", "an event loop"),
    ("concurrent.futures", "Future", "a future"),
    ("concurrent.futures", "Executor", "a pool of workers"),
    ("multiprocessing.process", "BaseProcess", "a process"),
    ("multiprocessing.connection", "Connection", "a connection to another process"),
    ("multiprocessing.queues", "Queue", "a queue between processes"),
    ("multiprocessing.shared_memory", "SharedMemory", "memory shared with other processes"),
    ("subprocess", "Popen", "a process"),
    ("sqlite3", "Connection", "a database connection"),
    ("sqlite3", "Cursor", "a database cursor"),
    ("IPython.core.interactiveshell", "InteractiveShell", "IPython itself"),
    ("numba.cuda.cudadrv.devicearray", "DeviceNDArrayBase", "an array of numba.cuda's"),
    ("numba.cuda.cudadrv.driver", "MemoryPointer", "memory of a GPU without an array"),
    ("numba.cuda.cudadrv.driver", "OwnedPointer", "memory of a GPU without an array"),
    ("numba.cuda.cudadrv.driver", "Stream", "a CUDA stream"),
    ("numba.cuda.cudadrv.driver", "Event", "a CUDA event"),
    ("nls_jupyter.simulated_cupy.cuda", "Stream", "a CUDA stream"),
    ("nls_jupyter.simulated_cupy.cuda", "MemoryPool", "a memory pool"),
    *(
        (f"cupy.cuda.{kind.rpartition('.')[0]}", kind.rpartition(".")[2], what)
        for what in _OF_CUPY
        for kind in _OF_CUPY[what]
    ),
)


def unsavable_types() -> Iterator[tuple[type, str]]:
    """Types whose objects cannot outlive their process, and what to call them."""
    for module_name, type_name, what in _UNSAVABLE:
        kind = getattr(sys.modules.get(module_name), type_name, None)
        if isinstance(kind, type):
            yield kind, what


def refuse_mapped(kind: type) -> None:
    """Raises UnsavableError for a class of cells that SQLAlchemy has mapped: it does that when a class is made."""
    if "sqlalchemy.orm" in sys.modules and sys.modules["sqlalchemy"].inspect(kind, raiseerr=False) is not None:
        raise UnsavableError("a class that SQLAlchemy has mapped to a table", kind)


def refuse_structs(kind: type) -> None:
    """A class of msgspec's is made in C of its annotations and options, of which not all can be read from it."""
    if "msgspec" in sys.modules and isinstance(kind, type(sys.modules["msgspec"].Struct)):
        raise UnsavableError("a class of msgspec's", kind)


def reduce_module(module: types.ModuleType) -> Any:
    """By name, with the submodules that the process imported beside it (`import urllib.request`)."""
    name = module.__name__
    spec = getattr(module, "__spec__", None)
    if sys.modules.get(name) is not module and not _has_successor(module, spec):
        raise UnsavableError(f"a module, {name}, that was made by hand", module)
    if name != "__main__" and (spec is None or (spec.origin is None and spec.submodule_search_locations is None)):
        raise UnsavableError(f"a module, {name}, that cannot be imported", module)
    return load_module, (name, _submodules(name) if "__path__" in vars(module) else ())


def _has_successor(module: types.ModuleType, spec: Any) -> bool:
    """Whether an installed package has put another of the same file into its place, as transformers does by itself."""
    there = getattr(sys.modules.get(module.__name__), "__spec__", None)
    if type(spec) is not ModuleSpec or type(there) is not ModuleSpec or is_the_users(spec.name, spec.origin):
        return False
    return spec.origin is not None and (there.name, there.origin) == (spec.name, spec.origin)


def _submodules(package: str) -> tuple[str, ...]:
    """Thousands of modules are there, and every save asks for each package that a name holds: few are sorted."""
    prefix = package + "."
    beneath = sorted(name for name in tuple(sys.modules) if name.startswith(prefix))
    return tuple(
        name
        for name in beneath
        if not any(part.startswith("_") for part in name.split("."))
        and getattr(getattr(sys.modules.get(name), "__spec__", None), "name", None) == name
    )


def load_module(name: str, submodules: tuple[str, ...]) -> types.ModuleType:
    """Import a module, and those of its submodules that its own import leaves out. Raises what the import raises."""
    module = importlib.import_module(name)
    for submodule in submodules:
        if submodule in sys.modules:
            continue
        try:
            importlib.import_module(submodule)
        except Exception as error:  # noqa: BLE001 - told to the user, who has the module itself
            warnings.warn(f"{submodule} could not be imported again: {error}", RuntimeWarning, stacklevel=2)
    return module


class GlobalsOf:
    """In the stream it stands for the globals of a module that can be imported."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> Any:
        return load_globals, (self._module,)


def load_globals(module: str) -> dict[str, Any]:
    """A module's globals themselves."""
    return vars(importlib.import_module(module))


def _reduce_method(method: Any) -> Any:
    """One that a library offers as a function of its own stays that, with the state that the library keeps for it."""
    if is_exported(method):
        return load_exported, (type(method.__self__).__module__, method.__name__)
    return NotImplemented


def _reduce_builtin(function: Any) -> Any:
    """Python's own is that also where a cell has put another one in its place, which often calls it."""
    name = function.__name__
    if _PYTHONS_OWN.get(name) is function and getattr(builtins, name, None) is not function:
        return load_builtin, (name,)
    return _reduce_method(function)


def load_builtin(name: str) -> Any:
    """What Python has among its builtins by itself; called by the unpickler."""
    return _PYTHONS_OWN[name]


def load_exported(module: str, name: str) -> Any:
    """What a module offers under a name, or under one of its class's attributes (`Opt.missing`)."""
    return operator.attrgetter(name)(importlib.import_module(module))


def function_in(owner: type, name: str) -> Any:
    """The function of a class method or static method itself; called by the unpickler."""
    return content_of(owner)[name].__func__


#: What the user reads where a dict of attributes has a name, and the two cannot be joined again.
APART = "its attributes, which have a name too, come back apart from that name"


def has_attributes(kind: type) -> bool:
    """Whether its instances have a dict of attributes, which others may hold, too."""
    found = next((vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base)), None)
    made_by_python = type(found) in {types.GetSetDescriptorType, types.MemberDescriptorType}
    return made_by_python and bool(kind.__dictoffset__) and not issubclass(kind, type)


def reduce_instance(note: Callable[[str], None], handler: Callable[[Any], Any] | None, thing: Any) -> Any:
    """An instance whose dict of attributes somebody else holds (`config = vars(args)`) goes on sharing it."""
    reduced = NotImplemented if handler is None else handler(thing)
    if isinstance(reduced, str) or (reduced is not NotImplemented and reduced[-1] is inline.fill):
        return reduced  # nobody holds its attributes: there is no dict of them
    if type(thing) is functools.partial and object.__getstate__(thing) is None:
        return reduced  # one that has a dict, be it empty, is another function to who makes a partial of it
    if _holders(thing) <= _ALONE:
        return reduced
    try:
        object.__setattr__(thing, "__dict__", vars(thing))  # which changes nothing, where it can be done
    except (AttributeError, TypeError):
        note(APART)
        return reduced
    if reduced is NotImplemented and isinstance(reduced := thing.__reduce_ex__(5), str):
        return reduced
    make, args, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    return make, args, (setter, state, vars(thing)), items, pairs, _share_attributes


def names_itself(kind: type) -> bool:
    """Whether its instances may be pickled as the names that they have: sentinels, and what decorators make."""
    return any(is_of(content_of(base).get("__reduce__"), types.FunctionType) for base in line_of(kind))


def reduce_named(thing: Any) -> Any:
    """One that is a name of the notebook's is saved as it is: while it is made, nobody has that name yet."""
    reduced = thing.__reduce_ex__(5)
    if _is_in_the_notebook(thing, reduced):
        return copyreg.__newobj__, (type(thing),), object.__getstate__(thing), None, None, set_attributes  # type: ignore[attr-defined]
    return reduced


def _is_in_the_notebook(thing: Any, reduced: Any) -> bool:
    if isinstance(reduced, str):
        return getattr(thing, "__module__", None) == "__main__"
    match reduced:
        case (_, (owner, str(name)), *_) if is_of(owner, type):
            return content_of(owner).get(name) is thing and not importable(owner)
        case (_, tuple(args), *_):  # a module and a name in one text, as entry points have it
            return any(type(arg) is str and arg.startswith("__main__:") for arg in args)
    return False


def delegates(kind: type) -> bool:
    """Whether its instances are asked for attributes that they lack, and are pickled like any other object."""
    ways = ("__reduce__", "__reduce_ex__")
    plain = all(getattr(kind, way) is getattr(object, way) for way in ways)
    asks = hasattr(kind, "__getattr__") and not hasattr(kind, "__setstate__")
    return plain and asks and not issubclass(kind, type)


def reduce_delegating(thing: Any) -> Any:
    """One whose `__getattr__` may need attributes that it gets only now: nobody asks it for `__setstate__`."""
    reduced = thing.__reduce_ex__(5)
    if type(reduced) is tuple and len(reduced) > 2 and reduced[2] and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
        make, args, state, items, pairs = (*reduced, None, None)[:5]
        return make, args, state, items, pairs, set_attributes
    return reduced


def set_attributes(thing: Any, state: dict[str, Any] | tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
    """As pickle does it for an object that has no way of its own."""
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    if attributes:
        vars(thing).update(attributes)
    for name, value in slots.items():
        setattr(thing, name, value)


def attributes_are_held(thing: Any) -> bool:
    """Whether somebody holds the dict of attributes of a function or an instance."""
    return bool(vars(thing)) and _holders(thing) > _ALONE


def _holders(thing: Any) -> int:
    attributes = vars(thing)
    return sys.getrefcount(attributes)


_alone = types.SimpleNamespace()
_ALONE = _holders(_alone)


def _share_attributes(thing: Any, content: tuple[Callable[..., Any] | None, Any, dict[str, Any]]) -> None:
    setter, state, attributes = content
    slots = state[1] if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict) else {}
    if setter is not None:
        setter(thing, state)
    elif state is not None and hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
    else:
        for name, value in slots.items():
            setattr(thing, name, value)
    object.__setattr__(thing, "__dict__", attributes)


#: What gives an instance the attributes that others hold, after what another way of filling it does.
SHARES = _share_attributes


def _reduce_cell(cell: types.CellType) -> Any:
    """A closure's cell, which several functions may share; it may lead back to itself."""
    try:
        content = cell.cell_contents
    except ValueError:  # the variable is not bound yet
        return types.CellType, ()
    if type(content) is dict and (kind := annotated.class_with(content)) is not None:
        return types.CellType, (), kind, None, None, set_names
    return types.CellType, (), (content,), None, None, set_cell


def set_cell(cell: types.CellType, content: tuple[Any]) -> None:
    """Fill a cell."""
    cell.cell_contents = content[0]


def set_names(cell: types.CellType, kind: type) -> None:
    """Fill a cell with what a class has."""
    cell.cell_contents = annotated.names_of(kind)


#: Reducers per exact type, as a library's.
HANDLERS: Mapping[type, Callable[[Any], Any]] = {
    types.CellType: _reduce_cell,
    types.CodeType: reduce_code,
    types.MethodType: _reduce_method,
    types.BuiltinFunctionType: _reduce_builtin,
}
