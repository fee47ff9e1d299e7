"""The second attempt at a stream in which some object cannot be made: put a placeholder in its place and go on.

The memo of a pickle stream counts what was made, so a name cannot just be skipped: every operation takes place, and
then whoever leads to a placeholder is lost. Only used after the ordinary unpickler failed: it is about fifty times
slower.
"""

from __future__ import annotations

import gc
import operator
import pickle
import types
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from nls_jupyter.between.seams import PYTHON_UNPICKLER
from nls_jupyter.saved_state import containers, making, reducers
from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.late import LEADS_BACK, ONLY_REFERS, Late, container, is_container
from nls_jupyter.saved_state.looks import held_by_array, importable, own_globals
from nls_jupyter.saved_state.lost import Lost, NotMadeError, Why, why
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


_LEAD_NOWHERE = (str, bytes, int, float, types.ModuleType, Lost)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType)


class _NoUnpickler:
    """In the place of Python's own where there is none: whoever wants one is told."""

    dispatch: ClassVar[dict[int, Any]] = {}

    def __init__(self, *_: Any, **__: Any) -> None:
        PYTHON_UNPICKLER.here()


_PythonUnpickler: Any = PYTHON_UNPICKLER.here(_NoUnpickler)


class TolerantUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """The standard library's Python unpickler, with every operation that runs other people's code guarded."""

    def __init__(self, file: Any, buffers: Iterable[Any]) -> None:
        super().__init__(file, buffers=buffers)
        #: Objects that were made but not filled, by id (kept alive here), with the reason.
        self.broken: dict[int, tuple[Any, Why]] = {}
        #: Whether all was made and filled.
        self.whole = True
        self._late = Late()

    def load(self) -> Any:
        """The next frame, with all that had to wait for the end of it."""
        frame = super().load()
        for target, reason in self._late.settle():
            self._break(target, reason)
        return frame

    def _attempt(self, make: Callable[[], Any], args: tuple[Any, ...] = ()) -> Any:
        for part in args:
            if type(part) is Lost:
                return Lost(part.why, args)
        try:
            return make()
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - the reason is told with each name that leads here
            self.whole = False
            return Lost(why(error, args), args)

    def _load_stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.append(self._attempt(lambda: self.find_class(module, name)))

    def _load_reduce(self) -> None:
        args, function = self.stack.pop(), self.stack[-1]
        self.stack[-1] = self._attempt(lambda: self._made(function, args), (function, *args))

    def _made(self, function: Any, args: tuple[Any, ...]) -> Any:
        """What `function` makes of `args`: other people's code does not get to see a container that is to be filled."""
        if function is containers.fill and self._fills_late(*args):
            return None
        if function is reducers.SHARES and args[1][0] is containers.fill and self._fills_late(args[0], args[1][1]):
            return function(args[0], (None, None, args[1][2]))
        if _only_fills(function):
            made = function(*args)
            if function is containers.new and args[2] is not None and self._late.waits_for(args[2]):
                self._late.frozen(made, args[2])
            elif function in {containers.new, making.new}:
                self._late.made(made)
            elif args:
                self._late.built(args[0])
            return made
        waits = None if any(function is one for one in ONLY_REFERS) else self._late.among(args)
        hashes = bool(args) and type(args[0]) in {list, dict} and self._late.waits_for(args[0])
        try:
            if waits is None and not (hashes and is_container(function)):
                made = function(*args)
                self._late.made(made)
                if hashes and is_of(made, frozenset):
                    self._late.frozen(made, args[0])
                return made
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - the members of a container may be what it is about
            waits = why(error, args)
        if (found := container(function, args)) is None:
            raise NotMadeError(waits or LEADS_BACK)
        empty, put = found
        self._late.fill(empty, args[0], put, waits)
        return empty

    def _fills_late(self, thing: Any, content: tuple[Any, list[Any], Any, tuple[Any, ...]]) -> bool:
        """Whether an instance that is a container has got its attributes now, and its members have to wait."""
        base, items, state, made_with = content
        members = [key for key, _ in items] if issubclass(base, dict) else [] if base in containers.LINES else items
        if not self._late.waits_for(members):
            return False
        containers.begin(thing, base, made_with)
        self._late.fill(thing, members, lambda: containers.put(base, thing, items))
        own_way = hasattr(thing, "__setstate__")
        if not own_way or not self._late.state(thing, state, lambda: containers.give(thing, state)):
            containers.give(thing, state)
            self._late.built(thing)
        return True

    def _load_newobj(self) -> None:
        args, kind = self.stack.pop(), self.stack.pop()
        self._new(self._attempt(lambda: kind.__new__(kind, *args), (kind, *args)))

    def _load_newobj_ex(self) -> None:
        options, args, kind = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self._new(self._attempt(lambda: kind.__new__(kind, *args, **options), (kind, *args, *options.values())))

    def _new(self, made: Any) -> None:
        self._late.made(made)
        self.append(made)

    def _load_build(self) -> None:
        state, target = self.stack[-1], self.stack[-2]
        own_way = type(target) is not Lost and type(state) is not Lost and _has_own_way(target)
        if own_way and self._late.state(target, state, lambda: target.__setstate__(state)):
            del self.stack[-1]
        else:
            self._fill(super().load_build, target, [state])
            self._late.built(target)

    def _load_append(self) -> None:
        self._fill(super().load_append, self.stack[-2], self.stack[-1:])

    def _load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key], [value], lambda target: operator.setitem(target, key, value))

    def _load_appends(self) -> None:
        self._fill_marked(super().load_appends)

    def _load_setitems(self) -> None:
        items = self.pop_mark()

        def fill(target: Any) -> None:
            for key, value in zip(items[::2], items[1::2], strict=True):
                target[key] = value

        self._put(items[::2], items[1::2], fill)

    def _load_additems(self) -> None:
        items = self.pop_mark()

        def fill(target: Any) -> None:
            for item in items:
                target.add(item)

        self._put(items, [], fill)

    def _put(self, members: list[Any], values: list[Any], fill: Callable[[Any], None]) -> None:
        """Put members into the container on the stack, now or late; it may be done again after it failed half-way."""
        target = self.stack[-1]
        if type(target) is Lost:
            return
        if self._late.holds(target) or self._late.waits_for(members):
            self._late.fill(target, members, lambda: fill(target))
            return
        try:
            fill(target)
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - the reason is told with each name that leads here
            reason = why(error, (*members, *values))
            if any(type(one) is Lost for one in (*members, *values)):
                self._break(target, reason)
            else:
                self._late.fill(target, members, lambda: fill(target), reason)

    def _load_frozenset(self) -> None:
        items = self.pop_mark()
        made = self._attempt(lambda: frozenset(items))
        if type(made) is frozenset and self._late.waits_for(items):
            self._late.frozen(made, items)
        self.append(made)

    def _load_readonly_buffer(self) -> None:
        buffer = self.stack[-1]
        self.stack[-1] = self._attempt(lambda: memoryview(buffer).toreadonly(), (buffer,))

    def _load_pop(self) -> None:
        # A state setter was called as `setter(object, state)`, and its result is dropped here.
        top = self.stack[-1] if self.stack else None
        if type(top) is Lost and len(top.args) > 1:
            self._break(top.args[1], top.why)
        super().load_pop()

    def _fill(self, fill: Callable[[], None], target: Any, operands: list[Any]) -> None:
        height = len(self.stack) - len(operands)
        self._guard(fill, target, operands)
        del self.stack[height:]

    def _fill_marked(self, fill: Callable[[], None]) -> None:
        marks = len(self.metastack)
        self._guard(fill, self.metastack[-1][-1], self.stack)
        if len(self.metastack) == marks:  # nothing took the operands
            self.pop_mark()

    def _guard(self, fill: Callable[[], None], target: Any, operands: list[Any]) -> None:
        if type(target) is Lost:
            return
        try:
            fill()
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - the reason is told with each name that leads here
            self._break(target, why(error, operands))

    def _break(self, target: Any, why: Why) -> None:
        self.whole = False
        self.broken.setdefault(id(target), (target, why))

    dispatch = _PythonUnpickler.dispatch | {
        pickle.STACK_GLOBAL[0]: _load_stack_global,
        pickle.REDUCE[0]: _load_reduce,
        pickle.NEWOBJ[0]: _load_newobj,
        pickle.NEWOBJ_EX[0]: _load_newobj_ex,
        pickle.BUILD[0]: _load_build,
        pickle.APPEND[0]: _load_append,
        pickle.SETITEM[0]: _load_setitem,
        pickle.APPENDS[0]: _load_appends,
        pickle.SETITEMS[0]: _load_setitems,
        pickle.ADDITEMS[0]: _load_additems,
        pickle.FROZENSET[0]: _load_frozenset,
        pickle.READONLY_BUFFER[0]: _load_readonly_buffer,
        pickle.POP[0]: _load_pop,
    }


def losses(roots: list[Any], broken: dict[int, tuple[Any, Why]], namespace: dict[str, Any]) -> list[Why | None]:
    """Per root why it leads to something that could not be made, or `None`.

    One walk over all that the roots reach, then back from what was lost to whoever refers to it.
    """
    referrers: dict[int, list[int]] = {}
    reasons: dict[int, Why] = {}

    def met(node: Any, children: list[Any]) -> None:
        if type(node) is Lost:
            reasons[id(node)] = node.why
        elif id(node) in broken:
            reasons[id(node)] = broken[id(node)][1]
        for child in children:
            referrers.setdefault(id(child), []).append(id(node))

    alive = reached(roots, namespace, met)
    spreading = list(reasons)
    while spreading:
        node_id = spreading.pop()
        for referrer in referrers.get(node_id, ()):
            if referrer not in reasons:
                reasons[referrer] = reasons[node_id]
                spreading.append(referrer)
    del alive  # an id means its object only while that lives
    return [reasons.get(id(root)) for root in roots]


def reached(
    roots: Iterable[Any], namespace: dict[str, Any], met: Callable[[Any, list[Any]], object] = lambda *_: None
) -> dict[int, Any]:
    """All that they lead to, but for the namespace, by identity; `met` gets each with its children."""
    found: dict[int, Any] = {}
    todo = list(roots)
    while todo:
        node = todo.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        children = [child for child in children_of(node) if child is not namespace]
        met(node, children)
        todo += children
    return found


#: Types of which `children_of` does not just say what the garbage collector does; beside NumPy's arrays.
ONE_BY_ONE = (*_LEAD_NOWHERE, *_CODE, weakref.ref)


def children_of(node: Any, *, without_globals: bool = False) -> Iterator[Any]:
    """What an object leads to, but for what is imported; perhaps without the globals of any function."""
    if issubclass(type(node), _LEAD_NOWHERE):
        return
    if issubclass(type(node), _CODE) and _importable(node):
        return
    outside = None
    if is_of(node, types.FunctionType) and (without_globals or own_globals(node) is None):
        outside = node.__globals__
    if issubclass(type(node), weakref.ref):
        yield weakref.ref.__call__(node)  # whoever refers to what is lost has lost it, too
    yield from held_by_array(node)
    for child in gc.get_referents(node):
        if child is not outside:
            yield child


def _has_own_way(target: Any) -> bool:
    """Whether it takes its state itself; one whose own code fails when it is asked is asked once more, under guard."""
    try:
        return hasattr(target, "__setstate__")
    except SaveEndsError:
        raise
    except BaseException:  # noqa: BLE001 - the same again is what is told
        return False


def _only_fills(function: Any) -> bool:
    """Whether it is one of those by which an object that was made gets its attributes."""
    return str(getattr(function, "__module__", "")).startswith(("nls_jupyter.saved_state.", "cloudpickle."))


def _importable(node: Any) -> bool:
    try:
        return importable(node)
    except SaveEndsError:
        raise
    except BaseException:  # noqa: BLE001 - whoever raises when asked where it is from is looked into
        return False
