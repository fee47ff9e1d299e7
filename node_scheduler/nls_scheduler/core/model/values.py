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

    def __init__(self, compute: Callable[[Owner], Result], fields: frozenset[str] | None = None) -> None:
        self.__doc__ = compute.__doc__
        self.fields = fields
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


def computed_from(*fields: str) -> Callable[[Callable[[Owner], Result]], computed_once[Owner, Result]]:
    """As `computed_once`, from these fields and nothing else: `replace` keeps the value where none of them changes."""
    return lambda compute: computed_once(compute, frozenset(fields))


def replace(value: Value, **changes: object) -> Value:
    """As `dataclasses.replace`; the fields of a large value are copied at once, which costs a fifth."""
    kind = type(value)
    names = _copied(kind)
    if not names or not names.keys() >= changes.keys():
        return dataclasses.replace(value, **changes)
    new, old = object.__new__(kind), value.__dict__
    # What else the old one has computed from its fields stays with it.
    kept = {name: old[name] for name, fields in _kept(kind) if name in old and fields.isdisjoint(changes)}
    new.__dict__.update({name: old[name] for name in names}, **kept, **changes)
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


@cache
def _kept(kind: type[DataclassInstance]) -> tuple[tuple[str, frozenset[str]], ...]:
    """What of `kind` is computed from few of its fields, and those."""
    computed = ((name, of) for name, of in vars(kind).items() if isinstance(of, computed_once))
    return tuple((name, of.fields) for name, of in computed if of.fields is not None)
