"""The pickler of saved state: cloudpickle with array libraries, the user's namespace and reasons for refusals."""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import types
from typing import TYPE_CHECKING, Any

import cloudpickle

from nls_jupyter.between.seams import FUNCTION_REDUCE, TORCH_FUNCTION_FROM
from nls_jupyter.saved_state import (
    annotated,
    argument_parsers,
    classes,
    containers,
    copy_on_write,
    cupy_kernels,
    enumerations,
    exceptions,
    figure_widgets,
    figures,
    foreign_types,
    generic_models,
    handles,
    held,
    inline,
    ipython_parts,
    kd_trees,
    keras_objects,
    libraries,
    log_handlers,
    loggers,
    loguru_sinks,
    making,
    numpy_functions,
    optimizers,
    pillow_images,
    pint_quantities,
    plotly_figures,
    reducers,
    sentinels,
    slots,
    soups,
    sqlalchemy_engines,
    sqlalchemy_sessions,
    sympy_polynomials,
    time_zones,
    torch_operators,
    training_logs,
    typing_constructs,
    url_opener,
    widgets,
    wrappers,
)
from nls_jupyter.saved_state.hash_cycles import may_lead_back
from nls_jupyter.saved_state.kinds import maker_of, name_of
from nls_jupyter.saved_state.late import hashes_in_python
from nls_jupyter.saved_state.looks import builtins_of, home_of, importable, own_globals, owner_in_a_module
from nls_jupyter.saved_state.reasons import reason_for
from nls_jupyter.saved_state.regions import NAMESPACE, HostMemory, Regions, refuse
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable, Iterator, Mapping

    from nls_jupyter.saved_state.libraries import Looker

_PROTOCOL = 5


class Rules:
    """How objects of this process are pickled and looked at; for one save, since libraries may be imported later."""

    def __init__(self, namespaces: tuple[Mapping[str, Any], ...]) -> None:
        self.regions = Regions()
        self.namespaces = {id(namespace) for namespace in namespaces}
        self.libraries = libraries.loaded(self.regions)
        self.unsavable = tuple(reducers.unsavable_types())
        self.families = _families(self.regions)
        self.handlers: dict[type, Callable[[Any], Any] | None] = _own_handlers(self.regions)
        self.lookers: dict[type, Looker] = wrappers.lookers()
        for library in self.libraries:
            self.handlers.update(library.handlers())
            self.lookers.update(library.lookers())
        for kind, handler in self.handlers.items():
            if handler is not None and reducers.has_attributes(kind):
                self.handlers[kind] = functools.partial(reducers.reduce_instance, self.regions.note, handler)
        self.handlers.update(ipython_parts.handlers())
        self.lookers.update(ipython_parts.lookers())
        self.lookers.update(loguru_sinks.lookers())

    @property
    def leaves(self) -> tuple[type, ...]:
        """Types of which a walk does not look into instances: nothing behind these is the user's."""
        return (*(kind for kind, _ in self.unsavable), *(kind for kind, _ in handles.families()))

    def probing(self) -> Rules:
        """The same with regions of their own, for trying."""
        rules = Rules.__new__(Rules)
        rules.regions = Regions()
        rules.namespaces, rules.unsavable, rules.families = self.namespaces, self.unsavable, _families(rules.regions)
        rules.libraries = libraries.loaded(rules.regions)
        rules.handlers = _own_handlers(rules.regions)
        for library in rules.libraries:
            rules.handlers.update(library.handlers())
        rules.handlers.update(ipython_parts.handlers())
        return rules


def _families(regions: Regions) -> tuple[tuple[type, Callable[[Any], Any]], ...]:
    of_kinds = (widgets, handles, log_handlers, loggers, optimizers, figures, figure_widgets, plotly_figures)
    of_libraries = (
        *of_kinds,
        argument_parsers,
        cupy_kernels,
        kd_trees,
        numpy_functions,
        pint_quantities,
        soups,
        sqlalchemy_engines,
        sqlalchemy_sessions,
        sympy_polynomials,
        time_zones,
        torch_operators,
        training_logs,
        url_opener,
    )
    of_regions = (*keras_objects.families(regions), *pillow_images.families(regions.note))
    return (*(each for of_kind in of_libraries for each in of_kind.families()), *of_regions)


def _own_handlers(regions: Regions) -> dict[type, Callable[[Any], Any] | None]:

    of_regions = {**wrappers.handlers(regions), **figures.handlers(regions)}
    return {**reducers.HANDLERS, **typing_constructs.handlers(), **of_regions}


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle with array libraries, functions that keep the user's namespace, and reasons for refusals."""

    def __init__(self, file: Any, rules: Rules) -> None:
        # No bound method of this pickler here or among the handlers: in a cycle, its memo would keep all that the
        # user deletes afterwards, Gpu memory too, until the garbage collector comes by.
        super().__init__(file, protocol=_PROTOCOL, buffer_callback=functools.partial(_take_buffer, rules.regions))
        self._namespaces = rules.namespaces
        self._handlers = rules.handlers
        self._unsavable = rules.unsavable
        self._families = rules.families
        self._note = rules.regions.note
        self._regions = rules.regions
        #: Dicts that functions get back as their globals, by identity; they are in the stream, or come into it now.
        self.whole_globals: set[int] = set()
        #: Others, which nobody but functions can miss, and these have what they use.
        self.unheld_globals: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        """The pickler asks this for every object except those of the plain built-in types."""
        kind = type(obj)
        if kind is types.FunctionType:
            return self._reduce_function(obj)
        try:
            handler = self._handlers[kind]
        except KeyError:
            handler = copy_on_write.with_shares(kind, self._find_handler(kind))
            handler = held.by_place(kind, sentinels.by_name(kind, handler))
            if hashes_in_python(kind) and not issubclass(kind, type):
                handler = functools.partial(_with_hash, self._regions, handler)
            self._handlers[kind] = handler
        if handler is not None:
            return handler(obj)
        return self._reduce_class(obj) if issubclass(kind, type) else super().reducer_override(obj)

    def _find_handler(self, kind: type) -> Callable[[Any], Any] | None:
        if issubclass(kind, types.ModuleType):
            return reducers.reduce_module
        for unsavable, what in self._unsavable:
            if issubclass(kind, unsavable):
                return refuse(what)
        for base, reduce in self._families:
            if issubclass(kind, base):
                return self._with_attributes(kind, reduce)
        if issubclass(kind, BaseException):
            return self._with_attributes(kind, functools.partial(exceptions.reduce, self._note))
        if foreign_types.has_memory(kind):
            return self._with_attributes(kind, functools.partial(foreign_types.reduce_memory, self._note))
        if kind in self.dispatch_table:
            return None
        if (base := containers.base_of(kind)) is not None:
            return self._with_attributes(kind, functools.partial(containers.reduce, base))
        handler = self._plain_handler(kind)
        if (maker := making.base_of(kind)) is not None:
            handler = functools.partial(making.reduce, maker, handler)
        return self._with_attributes(kind, handler)

    def _with_attributes(self, kind: type, handler: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        """The handler, for instances whose attributes somebody else may hold."""
        return (
            functools.partial(reducers.reduce_instance, self._note, handler)
            if reducers.has_attributes(kind)
            else handler
        )

    def _plain_handler(self, kind: type) -> Callable[[Any], Any] | None:
        layouts = inline.layouts_of(kind) if reducers.has_attributes(kind) else None
        if layouts is not None:
            return _reduce_inline(layouts)
        if (found := slots.in_the_way_of_pickle(kind)) and maker_of(kind) is object:
            return functools.partial(slots.reduce, found)
        if reducers.names_itself(kind):
            return reducers.reduce_named
        if making.is_disguised(kind):
            return making.reduce_disguised
        return reducers.reduce_delegating if reducers.delegates(kind) else None

    def _reduce_class(self, kind: type) -> Any:
        # cloudpickle refers only to what somebody has imported.
        if not importable(kind):
            for reduce in (foreign_types.reduce, generic_models.reduce, sentinels.reduce_type):
                if (made := reduce(kind)) is not None:
                    return made
        if issubclass(kind, enum.Enum):
            return enumerations.reduce(kind)
        if not importable(kind):
            slots.refuse_private(kind)
        reduced = super().reducer_override(kind)
        if type(reduced) is not tuple or len(reduced) <= 2:
            return reduced
        reducers.refuse_mapped(kind)
        reducers.refuse_structs(kind)
        if name_of(kind) != kind.__name__:
            reduced[2][0].setdefault("__qualname__", name_of(kind))
        return classes.as_written(kind, reduced)

    def _reduce_function(self, function: types.FunctionType) -> Any:
        if (original := vars(function).get(TORCH_FUNCTION_FROM.name)) is not None:
            self._note("a compiled function is saved without its compiled code, and compiled again with the defaults")
            return compile_again, (original,)
        reduced = self._reduced(function)
        if reduced is NotImplemented:  # importable
            return reduced
        if (owner := owner_in_a_module(function)) is not None:
            return reducers.function_in, (owner, function.__name__)
        if reducers.attributes_are_held(function):
            self._note(reducers.APART)
        _, (code, base_globals, name, defaults, _), (attributes, slots), *_, fill = reduced
        make: Callable[..., types.FunctionType] = make_function
        first: tuple[Any, ...] = ()
        if id(function.__globals__) in self._namespaces:
            base_globals, slots["__globals__"] = NAMESPACE, {}
        elif (home := home_of(function)) is not None:
            base_globals, slots["__globals__"] = reducers.GlobalsOf(home), {}
        elif (own := own_globals(function)) is not None and id(own) in self.whole_globals:
            base_globals, slots["__globals__"] = own, {}
            make, first = make_function_in, (builtins_of(function),)
        elif own is not None and id(own) not in self.unheld_globals:
            self._note("functions come back with a copy of what they use of their globals, which cannot be saved whole")
        del slots["__annotations__"]
        slots.update([annotated.kept_by(function)])
        # The cells themselves, not their values: functions of one scope go on sharing its variables.
        slots["__closure__"] = None
        if variables := getattr(function, "__type_params__", ()):  # since Python 3.12
            slots["__type_params__"] = variables
        made_of = (*first, code, base_globals, name, defaults, function.__closure__)
        return make, made_of, (fill, (attributes, slots)), None, None, fill_function

    def _reduced(self, function: types.FunctionType) -> Any:
        reduce = FUNCTION_REDUCE.of(self)
        try:
            return reduce(function)
        except Exception:  # noqa: BLE001 - what its annotations run is the user's code
            return reduce(annotated.without_any(function))


def _with_hash(regions: Regions, handler: Callable[[Any], Any] | None, thing: Any) -> Any:
    if type(thing) not in regions.hashed and may_lead_back(thing):
        regions.hashed.add(type(thing))
    return NotImplemented if handler is None else handler(thing)


def _reduce_inline(layouts: inline.Layouts) -> Callable[[Any], Any]:
    def reduce(thing: Any) -> Any:
        found = layouts.of(thing)
        return NotImplemented if found is None else inline.reduce(thing, *found)

    return reduce


def compile_again(function: Any) -> Any:
    """`torch.compile` with its defaults; called by the unpickler."""
    import torch

    return torch.compile(function)


def make_function(
    code: types.CodeType,
    function_globals: dict[str, Any],
    name: str,
    defaults: tuple[Any, ...] | None,
    closure: tuple[types.CellType, ...] | None,
) -> types.FunctionType:
    """As cloudpickle does it, which puts a dict in the place of a notebook's module; called by the unpickler."""
    function_globals.setdefault("__builtins__", vars(builtins))
    return types.FunctionType(code, function_globals, name, defaults, closure)


def make_function_in(its_builtins: Any, code: types.CodeType, own: dict[str, Any], *more: Any) -> types.FunctionType:
    """One whose globals are a dict of somebody's, which may be empty by now: its builtins are those that it had.

    Called by the unpickler.
    """
    with _put_back(own):
        own["__builtins__"] = its_builtins
        return types.FunctionType(code, own, *more)


def fill_function(function: types.FunctionType, content: tuple[Callable[[Any, Any], None], Any]) -> None:
    """Give a function its attributes; see `make_function`."""
    fill, state = content
    with _put_back(function.__globals__):
        fill(function, state)


@contextlib.contextmanager
def _put_back(function_globals: dict[str, Any]) -> Iterator[None]:
    """What is there as builtins is so afterwards."""
    is_there, found = "__builtins__" in function_globals, function_globals.get("__builtins__")
    try:
        yield
    finally:
        function_globals["__builtins__"] = found
        if not is_there:
            del function_globals["__builtins__"]


def _take_buffer(regions: Regions, buffer: pickle.PickleBuffer) -> bool:
    try:
        content = buffer.raw()
    except BufferError:  # not contiguous: the pickler copies it into the stream
        return True
    regions.add_buffer(HostMemory(content, content.nbytes))
    return False


class Probe:
    """Tells whether further names can be pickled, without a trace in the stream's own memo.

    A name that fails costs the stream a copy of its whole memo; once one has failed, the others are tried here first.
    What the stream already holds is not tried again.
    """

    def __init__(self, known: dict[int, Any], rules: Rules, holders: list[Any]) -> None:
        self._rules = rules.probing()
        self._rules.regions.refused = rules.regions.refused
        self._pickler = _ProbePickler(_Nowhere(), self._rules, set(known))
        for library in self._rules.libraries:
            library.prepare(holders)
        self._alive: list[dict[int, Any]] = [known]  # an id means its object only while that lives

    def why_not(self, value: Any) -> str | None:
        """Why `value` cannot be pickled, or `None`; what it consists of is known from then on."""
        try:
            self._pickler.dump([value])
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - any object may raise anything; the user is told which and why
            # The error itself would keep all frames below its caller's, and be kept by that one.
            return reason_for(error, value)
        else:
            made = self._pickler.memo.copy()
            self._pickler.known.update(made)
            self._alive.append(made)
            return None
        finally:
            self._pickler.clear_memo()
            self._rules.regions.reset()


class _ProbePickler(Pickler):
    def __init__(self, file: Any, rules: Rules, known: set[int]) -> None:
        super().__init__(file, rules)
        self.known = known

    def persistent_id(self, obj: Any) -> int | None:
        return 0 if id(obj) in self.known else None


class _Nowhere:
    def write(self, content: Any) -> int:
        return len(content)
