"""Frozen values, changed: the same with other fields. Pure."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")
Owner = TypeVar("Owner")
Result = TypeVar("Result")


class computed_once(Generic[Owner, Result]):  # noqa: N801 - used as `property` is
    """As `functools.cached_property`, without the lock that it takes before Python 3.12: it costs more than the value.

    A value that is computed twice by two threads is the same twice.
    """

    def __init__(self, compute: Callable[[Owner], Result]) -> None:
        self.__doc__ = compute.__doc__
        self._compute = compute
        self._name = compute.__name__

    @overload
    def __get__(self, instance: None, owner: type[Owner]) -> computed_once[Owner, Result]: ...
    @overload
    def __get__(self, instance: Owner, owner: type[Owner]) -> Result: ...
    def __get__(self, instance: Owner | None, owner: type[Owner]) -> computed_once[Owner, Result] | Result:
        """Asked for once: what is in the instance's `__dict__` comes before this."""
        if instance is None:
            return self
        result = instance.__dict__[self._name] = self._compute(instance)
        return result


def replace(value: Value, **changes: object) -> Value:
    """As `dataclasses.replace`; the fields of a large value are copied at once, which costs a fifth."""
    kind = type(value)
    names = _copied(kind)
    if not names or not names.keys() >= changes.keys():
        return dataclasses.replace(value, **changes)
    new, old = object.__new__(kind), value.__dict__
    # What the old one has computed from its fields stays with it.
    new.__dict__.update({name: old[name] for name in names}, **changes)
    return new


def updated(value: Value, **changes: object) -> Value:
    """As `replace`, but `value` itself where nothing changes, which is the rule and costs a tenth."""
    for name, new in changes.items():
        if getattr(value, name) != new:
            return replace(value, **changes)
    return value


@cache
def _copied(kind: type[DataclassInstance]) -> dict[str, None]:
    """The fields of `kind`, if all there is to making one is setting them; else none."""
    if hasattr(kind, "__slots__") or hasattr(kind, "__post_init__"):
        return {}
    return {field.name: None for field in dataclasses.fields(kind)}
