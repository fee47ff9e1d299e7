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
    """As `dataclasses.replace`; all of a large value is copied at once, which costs a sixth."""
    kind = type(value)
    names = _copied(kind)
    if not names or not changes.keys() <= names:
        return dataclasses.replace(value, **changes)
    new = object.__new__(kind)
    content = new.__dict__
    content.update(value.__dict__)
    # What the old one has computed stays with the old one, but for what follows from fields that are the same.
    from_all, from_some = _computed(kind)
    for name in from_all:
        if name in content:
            del content[name]
    for name, fields in from_some:
        if name in content and not fields.isdisjoint(changes):
            del content[name]
    content.update(changes)
    return new


def updated(value: Value, **changes: object) -> Value:
    """As `replace`, but `value` itself where nothing changes, which is the rule and costs a tenth."""
    for name, new in changes.items():
        if getattr(value, name) != new:
            return replace(value, **changes)
    return value


@cache
def _copied(kind: type[DataclassInstance]) -> frozenset[str]:
    """The fields of `kind`, if all there is to making one is setting them; else none."""
    if hasattr(kind, "__slots__") or hasattr(kind, "__post_init__"):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(kind))


@cache
def _computed(kind: type[DataclassInstance]) -> tuple[tuple[str, ...], tuple[tuple[str, frozenset[str]], ...]]:
    """What is computed from all that a `kind` is, and what from some of its fields, with those."""
    found = ((name, getattr(kind, name)) for name in dir(kind))
    computed = {name: of.fields for name, of in found if isinstance(of, computed_once)}
    some = tuple((name, fields) for name, fields in computed.items() if fields is not None)
    return tuple(name for name, fields in computed.items() if fields is None), some
