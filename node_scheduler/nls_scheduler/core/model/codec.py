"""The core's values as JSON and back: frozen dataclasses, enumerations, tuples and mappings with any keys.

A value written by an older version lacks newer fields and gets their defaults, and has sentences where reasons are
values now; one written by a newer version is refused (`UnknownValueError`), never guessed at.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from nls_scheduler.core.model import (
    allocations,
    commands,
    events,
    gpu,
    ids,
    policy,
    pools,
    queues,
    reasons,
    spec,
    state,
    topology,
    workload,
)

_TYPE: Final = "$"
_MAP: Final = "map"
_KINDS: Final[dict[str, type]] = {
    name: kind
    for module in (
        state,
        ids,
        gpu,
        spec,
        workload,
        allocations,
        policy,
        pools,
        queues,
        reasons,
        events,
        commands,
        topology,
    )
    for name, kind in vars(module).items()
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum))
}
_REASONS: Final[dict[type, frozenset[str]]] = {
    kind: frozenset(field.name for field in fields(kind) if field.type in ("Why", "Why | None"))
    for kind in _KINDS.values()
    if is_dataclass(kind)
}
"""The fields of each type that hold nothing but a reason."""
_FIELDS: Final[dict[type, tuple[str, ...]]] = {
    kind: tuple(field.name for field in fields(kind) if field.compare) for kind in _KINDS.values() if is_dataclass(kind)
}
_PLAIN: Final = frozenset({type(None), str, int, float, bool})


class UnknownValueError(ValueError):
    """A type or field that this version does not know: written by a newer one, or damaged."""


def encode(value: Any) -> Any:
    """`value` as what `json.dumps` takes, without fields that make no difference. Raises TypeError for other values."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if (names := _FIELDS.get(kind)) is not None:
        return {_TYPE: kind.__name__, **{name: encode(getattr(value, name)) for name in names}}
    if isinstance(value, Enum):
        return {_TYPE: kind.__name__, "value": value.value}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return {_TYPE: "set", "items": sorted(encode(item) for item in value)}
    if hasattr(value, "items"):
        return {_TYPE: _MAP, "items": [[encode(key), encode(item)] for key, item in value.items()]}
    raise TypeError(f"{value!r} is not a value of the core")


def decode(encoded: Any) -> Any:
    """The inverse of `encode`; lists become tuples. Raises UnknownValueError."""
    if isinstance(encoded, list):
        return tuple(decode(item) for item in encoded)
    if not isinstance(encoded, dict):
        return encoded
    name = encoded.get(_TYPE)
    if name == _MAP:
        return {decode(key): decode(item) for key, item in encoded["items"]}
    if name == "set":
        return frozenset(decode(item) for item in encoded["items"])
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UnknownValueError(f"{name!r} is not a type that this version knows")
    try:
        if issubclass(kind, Enum):
            return kind(encoded["value"])
        return kind(**{key: _field(kind, key, item) for key, item in encoded.items() if key != _TYPE})
    except (TypeError, ValueError, KeyError) as error:
        raise UnknownValueError(f"{name} has fields or values that this version does not know: {error}") from error


def _field(kind: type, name: str, encoded: Any) -> Any:
    if isinstance(encoded, str) and name in _REASONS[kind]:
        return reasons.said_before(encoded)
    return decode(encoded)
