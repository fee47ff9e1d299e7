"""Parts of an object of the API as they are written; what is missing or of another kind is empty. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def mapping(value: object, *path: str) -> Mapping[str, Any]:
    """The object at `path` below `value`."""
    for name in path:
        value = mapping(value).get(name)
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """A text."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> dict[str, str]:
    """Labels, annotations, resources; a number is what YAML made of an unquoted text."""
    items = mapping(value).items()
    return {k: str(v) for k, v in items if isinstance(v, str | int | float) and not isinstance(v, bool)}


def words(value: object) -> tuple[str, ...]:
    """The texts of a list, each once."""
    return tuple(dict.fromkeys(each for each in value if text(each))) if isinstance(value, list) else ()
