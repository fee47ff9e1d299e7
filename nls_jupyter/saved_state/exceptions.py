"""Exceptions come back as they are: no code of their class's runs for it, as that has done what it does with a new one.

pickle calls the class with `args`. These are what its `__init__` gave to the one of its base, or what it was called
with by position, and rarely what it can be called with again.
"""

from __future__ import annotations

import builtins
import contextlib
import copyreg
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.kinds import content_of, line_of, maker_of, name_of, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Field = tuple[type, str, Any]

# What an error of an attribute was looked for in may be anything, and is left out by pickle, too.
_NOT_KEPT = (AttributeError, "obj")
_WRITTEN = "characters_written"


def reduce(note: Callable[[str], None], error: BaseException) -> Any:
    """What it is made of, unless its class has a way of its own to be pickled."""
    if (error.__traceback__, error.__cause__, error.__context__) != (None, None, None):
        note("an exception comes back without its traceback and without what caused it")
    kind = type(error)
    if not _is_left_to_python(kind):
        return NotImplemented
    if issubclass(kind, AttributeError) and _read(*_NOT_KEPT, error) is not None:
        note("an error of an attribute comes back without the object that it was looked for in")
    maker: Any = maker_of(kind)
    of_groups = ("message", "exceptions") if issubclass(kind, BaseExceptionGroup) else ()
    made_of = (_read(BaseExceptionGroup, name, error) for name in of_groups)
    state = _args_of(error), list(_fields(error)), dict(vars(error))
    return maker.__new__, (kind, *made_of), state, None, None, fill


def _is_left_to_python(kind: type) -> bool:
    """Whether one is made, and pickled, by what Python's own exceptions have for it."""
    reduce, maker = owner_of(kind, "__reduce__"), maker_of(kind)
    return (
        kind not in copyreg.dispatch_table
        and owner_of(kind, "__reduce_ex__") is object
        and all(base is not None and _is_builtin(base) for base in (reduce, maker))
    )


def _is_builtin(kind: type) -> bool:
    return vars(builtins).get(name_of(kind)) is kind


def _args_of(error: BaseException) -> tuple[Any, ...]:
    args: tuple[Any, ...] = content_of(BaseException)["args"].__get__(error)
    return args


def _fields(error: BaseException) -> Iterator[Field]:
    """What it has beside its arguments and its attributes: in slots, and where C code looks for it."""
    for base in line_of(type(error)):
        for name, found in content_of(base).items():
            if (type(found) is types.MemberDescriptorType or name == _WRITTEN) and (base, name) != _NOT_KEPT:
                with contextlib.suppress(AttributeError):  # there is nothing
                    yield base, name, _read(base, name, error)


def _read(base: type, name: str, error: BaseException) -> Any:
    return content_of(base)[name].__get__(error)


def fill(error: BaseException, state: tuple[tuple[Any, ...], list[Field], dict[str, Any]]) -> None:
    """Give an exception what it had; called by the unpickler."""
    args, fields, attributes = state
    with contextlib.suppress(TypeError, ValueError):  # they have been changed since, and the fields tell the rest
        _init_of(type(error))(error, *args)
    content_of(BaseException)["args"].__set__(error, args)
    for base, name, value in fields:
        if not _has(base, name, error, value):
            content_of(base)[name].__set__(error, value)
    if owner_of(type(error), "__setstate__") is BaseException:
        vars(error).update(attributes)
    elif attributes:
        error.__setstate__(attributes)


def _init_of(kind: type) -> Callable[..., None]:
    found = (content_of(base).get("__init__") for base in line_of(kind))
    init: Callable[..., None] = next(init for init in found if type(init) is types.WrapperDescriptorType)
    return init


def _has(base: type, name: str, error: BaseException, value: Any) -> bool:
    """Whether it has that already; what it has not is `None` too, and would be taken for something if it were set."""
    try:
        return _read(base, name, error) is value
    except AttributeError:
        return False
