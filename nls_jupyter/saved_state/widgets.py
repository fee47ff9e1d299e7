"""Widgets, and what they are made of: objects with traits and those who observe them, and comms with their ids.

A comm that comes back has the id that it had, so that the views on the page go on with it: nothing is opened anew.
Until all of a restore is done it is silent: one that did not come back after all must not close what is open there.
"""

from __future__ import annotations

import gc
import importlib
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.looks import Look
from nls_jupyter.saved_state.manifest import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# What an object has anew once it is made: its own class's handlers, which are no content.
_OF_CLASS = (seams.TRAIT_NOTIFIERS.name, seams.TRAIT_VALIDATORS.name)
_made: weakref.WeakSet[Any] = weakref.WeakSet()


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Base classes and the reducers of all their instances, as far as anybody has imported them."""
    if (comms := sys.modules.get("comm.base_comm")) is not None:
        yield comms.BaseComm, _reduce_comm
    if (traitlets := sys.modules.get("traitlets.traitlets")) is not None:
        yield traitlets.HasTraits, _reduce_traits


def looker(kind: type) -> Callable[[Any], Look | None] | None:
    """How a walk sees instances of a class: behind a comm there is the whole kernel, and behind traits their class."""
    comms, traitlets = sys.modules.get("comm.base_comm"), sys.modules.get("traitlets.traitlets")
    if comms is not None and issubclass(kind, comms.BaseComm):
        return _look_at_comm
    if traitlets is not None and issubclass(kind, traitlets.HasTraits) and _is_plain(kind):
        return _look_at_traits
    return None


def _look_at_comm(comm: Any) -> Look:
    token = repr((comm.comm_id, comm.target_name, comm.target_module, seams.COMM_CLOSED.of(comm))).encode()
    return Look(token, (*_called_by(comm), seams.COMM_ON_CLOSE.of(comm)))


def _called_by(comm: Any) -> tuple[Any, Any]:
    """The widget that a comm's messages go to, or what else they go to.

    A widget has its own method anew; another process's would be a copy of the function.
    """
    callback = seams.COMM_ON_MESSAGE.of(comm)
    owner = getattr(callback, "__self__", None)
    return (owner, None) if _is_widget(owner) else (None, callback)


def _look_at_traits(thing: Any) -> Look:
    content = {name: value for name, value in vars(thing).items() if name not in _OF_CLASS}
    observers = (part for observer in _observers(thing) for part in observer)
    return Look("\0".join(content).encode("utf-8", "surrogatepass"), (type(thing), *content.values(), *observers))


def _is_plain(kind: Any) -> bool:
    """Whether instances are pickled as `HasTraits` does it."""
    traitlets: Any = sys.modules["traitlets.traitlets"]
    ways = (("__reduce_ex__", object), ("__reduce__", object), ("__getstate__", traitlets.HasTraits))
    plain = all(getattr(kind, way) is getattr(base, way) for way, base in ways)
    return plain and kind.__setstate__ is traitlets.HasTraits.__setstate__


def _observers(thing: Any) -> list[tuple[str | None, str | None, Any]]:
    """Trait, kind of change and handler, beside those of its class; `None`: all of them."""
    traitlets: Any = sys.modules["traitlets.traitlets"]
    return [
        (None if name is traitlets.All else name, None if kind is traitlets.All else kind, handler)
        for name, kinds in seams.TRAIT_NOTIFIERS.of(thing).items()
        for kind, handlers in kinds.items()
        for handler in handlers
        if not is_of(handler, traitlets.EventHandler)
    ]


def _reduce_comm(comm: Any) -> Any:
    made_of = (comm.comm_id, comm.target_name, comm.target_module)
    state = (seams.COMM_CLOSED.of(comm), *_called_by(comm), seams.COMM_ON_CLOSE.of(comm))
    return _make_comm, made_of, state, None, None, _fill_comm


def _make_comm(comm_id: str, target_name: str, target_module: str | None) -> Any:
    create: Any = importlib.import_module("comm").create_comm
    made = create(target_name=target_name, comm_id=comm_id, target_module=target_module, primary=False)
    seams.COMM_CLOSED.put(made, True)  # noqa: FBT003 - silent until `reconnect`
    return made


def _fill_comm(comm: Any, state: tuple[bool, Any, Any, Any]) -> None:
    closed, owner, callback, close_callback = state
    comm.on_msg(callback if owner is None else seams.WIDGET_ON_MESSAGE.of(owner))
    comm.on_close(close_callback)
    if not closed:
        _made.add(comm)


def _reduce_traits(thing: Any) -> Any:
    reduced = thing.__reduce_ex__(5)
    if isinstance(reduced, str):
        return reduced
    make, args, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    plain = _is_plain(type(thing)) and setter is None and type(state) is dict
    if plain:
        state = {name: value for name, value in state.items() if name not in _OF_CLASS}
    return make, args, (setter, state, _observers(thing), plain), items, pairs, _fill_traits


def _fill_traits(thing: Any, content: tuple[Callable[[Any, Any], None] | None, Any, list[Any], bool]) -> None:
    setter, state, observers, plain = content
    if setter is not None:
        setter(thing, state)
    elif plain:
        vars(thing).update(state)
    elif state is not None:
        thing.__setstate__(state)
    every = sys.modules["traitlets.traitlets"].All
    for name, kind, handler in observers:
        seams.ADD_NOTIFIERS.of(thing)(handler, every if name is None else name, every if kind is None else kind)


def _is_widget(thing: Any) -> bool:
    widgets = sys.modules.get("ipywidgets.widgets.widget")
    return widgets is not None and is_of(thing, widgets.Widget)


def reconnect(tell: Callable[[Mapping[str, str]], None], *, all_back: bool) -> None:
    """Connect all comms that have come back since the last call; widgets send their state.

    Args:
        tell: gets what the notebook's kernel has to know of each of them.
        all_back: whether everything came back that was to.
    """
    if _made and not all_back:
        gc.collect()  # what failed with others of its component
    owners = [owner for comm in list(_made) if (owner := _guarded(_connect, comm, tell)) is not None]
    _made.clear()
    for owner in owners:
        _guarded(owner.send_state)  # what the page shows may be older, or newer, than what was saved


def _guarded(work: Callable[..., Any], *args: Any) -> Any:
    """What a widget's own code raises costs the others nothing."""
    try:
        return work(*args)
    except BaseException as error:  # noqa: BLE001 - told, and the others are connected
        warnings.warn(f"a widget could not be connected again: {describe(error)}", RuntimeWarning, stacklevel=2)
    return None


def _connect(comm: Any, tell: Callable[[Mapping[str, str]], None]) -> Any:
    """Register a comm; the widget that it belongs to, if it does."""
    manager = sys.modules["comm"].get_comm_manager()
    if comm.comm_id in manager.comms:
        return None
    seams.COMM_CLOSED.put(comm, False)  # noqa: FBT003
    _attach(comm)
    manager.register_comm(comm)
    tell({"comm_id": comm.comm_id, "target_name": comm.target_name})
    owner, _ = _called_by(comm)
    if owner is not None:
        seams.WIDGETS_BY_ID.here({})[comm.comm_id] = owner
    return owner


def _attach(comm: Any) -> None:
    """A comm of ipykernel's learns of its kernel with the message that opens it; until then a widget sends nothing."""
    kernels = sys.modules.get("ipykernel.kernelbase")
    if kernels is not None and getattr(comm, "kernel", comm) is None and kernels.Kernel.initialized():
        comm.kernel = kernels.Kernel.instance()
