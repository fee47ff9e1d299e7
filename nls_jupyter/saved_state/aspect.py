"""One thing that is kept of a process beside the names: a value that can be read, and set in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.manifest import NotKeptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing to keep.

    Attributes:
        name: for the user.
        capture: its value now; `None` for nothing to keep. What it raises is what the user reads of it.
        apply: the inverse, in a new process.
        module: whose state it is; without it being imported there is none.
        early: needed before objects are made.
        again: once more when they are made, as what they import changes it.
        always: kept also when it is as it was when the process started, or as the module's import left it.
    """

    name: str
    capture: Callable[[], Any]
    apply: Callable[[Any], Any]
    module: str | None = None
    early: bool = False
    again: bool = False
    always: bool = False


def of_mapping(
    name: str, get: Callable[[], dict[Any, Any]], put: Callable[[Mapping[Any, Any]], object], module: str
) -> Aspect:
    """Settings in a mapping: `put` takes those that differ, of what the library's version has."""

    def apply(kept: Mapping[Any, Any]) -> None:
        now = get()
        if changed := {key: value for key, value in kept.items() if key in now and now[key] != value}:
            put(changed)

    return Aspect(name, get, apply, module)


def only_named(name: str, ending: Callable[[], Iterable[str]], again: str, module: str | None = None) -> Aspect:
    """What ends with its process, and is never kept; `again`: the verb for what its user can do (`start`)."""

    def refuse() -> None:
        if lost := sorted(ending()):
            one = len(lost) == 1
            said = f"ends with its process; {again} it again" if one else f"end with their process; {again} them again"
            raise NotKeptError(f"{', '.join(lost)} {said}")

    return Aspect(name, refuse, lambda _: None, module)
