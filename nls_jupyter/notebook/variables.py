"""`%gpu save`, `trim`, `vars` and `recompute`: what the notebook's variables are outside the GPU process, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_jupyter.between.errors import GpuUsageError
from nls_jupyter.saved_state import WAITS
from nls_jupyter.supervisor.notices import count
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_jupyter.saved_state import Manifest

_TRIED = "tried again before one of the next cells, and the first after a NameError for it; "
_GIVEN_UP = "%gpu forget gives it up"
_HOW = "write %gpu recompute NAME: expression, or NAME: alone to save it again"


def told_of_save(manifest: Manifest) -> str:
    """What `%gpu save` answers."""
    size = format_bytes(manifest.memory_bytes)
    return f"Saved {count(len(manifest.variables), 'variable')}, {size}{_otherwise(manifest)}."


def told_of_leaving(done: str, manifest: Manifest | None) -> str:
    """What `%gpu suspend` and `%gpu release` answer; `manifest` is of what was saved for it, if anything was."""
    if manifest is None or not (manifest.variables or manifest.missing or manifest.carried or manifest.recomputed):
        return f"{done}; there are no variables."
    if not manifest.missing + manifest.changed:
        return f"{done}: the variables are in host memory and come back with the next GPU cell."
    of_all = count(len(manifest.variables), "variable")
    return f"{done}: {of_all} in host memory, to come back with the next GPU cell{_otherwise(manifest)}."


def _otherwise(manifest: Manifest) -> str:
    """What does not come back as it is, in clauses."""
    missing = "".join(f"; not saved: {lost.name} ({lost.reason})" for lost in manifest.missing)
    return missing + "".join(f"; {name.name} comes back changed: {name.change}" for name in manifest.changed)


def told_of_trim(freed_bytes: int | None) -> str:
    """What `%gpu trim` answers."""
    if freed_bytes is None:
        return "There is no GPU process that could give anything back now."
    if freed_bytes <= 0:
        return "Nothing was cached: all GPU memory of this notebook is in use by its variables."
    return f"Gave back {format_bytes(freed_bytes)} of GPU memory that was cached."


def table(
    manifest: Manifest | None,
    not_back: Mapping[str, str],
    made_in: Callable[[str], str | None],
    why_not: str | None = None,
) -> str:
    """What `%gpu vars` answers: each name, where, how large, or why not.

    Args:
        manifest: of what was saved last.
        not_back: why each name that is saved could not be restored.
        made_in: the cell that made a name, if that is known.
        why_not: why the last save failed; `None`: it did not.
    """
    if manifest is None and why_not is not None:
        return f"Nothing is saved: the variables could not be saved ({why_not})."
    if manifest is None:
        return "Nothing is saved yet: the variables are saved after each %%gpu cell."
    since = "" if why_not is None else f"; what ran since could not be saved ({why_not})"
    lines = [f"Saved after cell {manifest.cell}, {format_bytes(manifest.memory_bytes)}{since}:"]
    changes = {name.name: f"  comes back changed: {name.change}" for name in manifest.changed}
    for name in (*manifest.saved, *manifest.carried):
        size = format_bytes(name.memory_bytes)
        why = not_back.get(name.name)
        tried = "" if why == WAITS else _TRIED
        state = name.where if why is None else f"saved, could not be restored: {why}; {tried}{_GIVEN_UP}"
        lines.append(f"  {name.name:<20} {name.type_name:<24} {size:>10}  {state}{changes.get(name.name, '')}")
    lines += [f"  {name:<20} {'':<24} recomputed: {expression}" for name, expression in manifest.recomputed]
    for lost in manifest.missing:
        cell = made_in(lost.name)
        origin = "" if cell is None else f"; made in cell {cell}"
        lines.append(f"  {lost.name:<20} {lost.type_name:<24} not saved: {lost.reason}{origin}")
    return "\n".join(lines)


def told_of_forgetting(names: Sequence[str], not_back: Mapping[str, str]) -> str:
    """What `%gpu forget` answers, once it is done. Raises GpuUsageError for names that nobody waits for."""
    unknown = [name for name in names if name not in not_back]
    if not names or unknown:
        what = f"{unknown[0]!r} is no such name" if unknown else "give the names"
        waited_for = f"these are: {', '.join(not_back)}" if not_back else "there is none now"
        raise GpuUsageError(f"%gpu forget takes names that are saved and could not be restored; {what}; {waited_for}.")
    return f"Given up: {', '.join(names)}."


def parse_recipe(text: str) -> tuple[str, str]:
    """Name and expression of `%gpu recompute NAME: expression`. Raises GpuUsageError."""
    name, colon, expression = text.partition(":")
    if not colon or not name.strip().isidentifier():
        raise GpuUsageError(f"{text.strip()!r} is no recipe: {_HOW}.")
    return name.strip(), expression.strip()


def told_of_recipes(recipes: Mapping[str, str]) -> str:
    """What `%gpu recompute` answers."""
    if not recipes:
        return f"Every variable is saved, none is recomputed: {_HOW}."
    lines = [f"  {name}: {expression}" for name, expression in recipes.items()]
    return "\n".join(["Computed again, instead of being saved, when the GPU process comes back:", *lines])
