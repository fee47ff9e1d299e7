"""Names that could not be brought back: what was saved of them is carried over from save to save until they are.

A module may take long to import, or be missing for a moment; that must not cost what was saved. The whole component
stays as it lies in the arena, for the sake of the names in it that are not back.

A component that ends the process is tried once more, in a process that has everything else; if that dies too, it waits
until its user asks for it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.alive import Alive
from nls_jupyter.saved_state.manifest import ChangedName, Manifest, MissingName, SavedName

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from nls_jupyter.saved_state.blobs import Chunk, Table
    from nls_jupyter.saved_state.store import Contents, Stored


#: Why a component was left out, and why it is not tried again unasked.
DIED = "the GPU process died while it was brought back"
WAITS = "the GPU process died twice while it was brought back; %gpu request tries once more"


@dataclass(slots=True)
class CarriedComponent:
    """A component of an earlier save.

    Attributes:
        stored: where it lies.
        names: all of its stream, in order.
        reasons: why each of those that are not back is not.
    """

    stored: Stored
    names: Sequence[SavedName]
    reasons: dict[str, str]

    @property
    def key(self) -> str:
        """What tells it from the others also in another process: 16 bytes in hexadecimal."""
        names = "\0".join(saved.name for saved in self.names)
        return hashlib.blake2b(names.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @property
    def waits(self) -> bool:
        """Whether it is tried only if its user asks for it."""
        return WAITS in self.reasons.values()

    def leave_out(self, deaths: int) -> None:
        """So many processes died of it since it was saved."""
        why = WAITS if self.waits or deaths > 1 else DIED
        self.reasons = dict.fromkeys(self.reasons, why)

    def left_out(self) -> list[MissingName]:
        """Those of its names that are not back, with their reasons."""
        names = (saved for saved in self.names if saved.name in self.reasons)
        return [MissingName(saved.name, saved.type_name, self.reasons[saved.name]) for saved in names]

    def apart(self, tried: Container[str]) -> list[ChangedName]:
        """Of names of `tried` that are back, later than others of the component: what they shared with those."""
        before = [saved.name for saved in self.names if saved.name not in tried]
        if not before:
            return []
        change = f"it came back later than {', '.join(before)}: what they shared, it has a copy of"
        returned = (saved for saved in self.names if saved.name in tried and saved.name not in self.reasons)
        return [ChangedName(saved.name, saved.type_name, change) for saved in returned]


class Carried:
    """All that is carried over at a time, and what is back of it: later tries leave that as it is by then."""

    def __init__(self) -> None:
        self.components: list[CarriedComponent] = []
        self.alive = Alive()

    def forget(self, names: Container[str]) -> None:
        """Their names are bound again, or nobody wants them back."""
        for component in self.components:
            component.reasons = {name: why for name, why in component.reasons.items() if name not in names}
        self.components = [component for component in self.components if component.reasons]

    def names(self) -> tuple[SavedName, ...]:
        """For the manifest."""
        return tuple(
            replace(saved, not_back=component.reasons[saved.name])
            for component in self.components
            for saved in component.names
            if saved.name in component.reasons
        )

    def chunks(self) -> list[Chunk]:
        """All that has to stay in the arena for it."""
        return [chunk for component in self.components for chunk in component.stored.chunks()]

    def to_index(self, table: Table) -> list[dict[str, Any]]:
        """For the index."""
        return [
            {
                "names": [saved.to_json() for saved in component.names],
                "reasons": component.reasons,
                **component.stored.to_index(table),
            }
            for component in self.components
        ]

    @classmethod
    def of_index(cls, content: Mapping[str, Any], contents: Contents) -> Carried:
        """All of a committed state: what it saved, of which nothing is back yet, and what it had carried over itself.

        In this order: what both lead to is as it was saved last.

        Args:
            content: its index.
            contents: what the index refers to.
        """
        carried = cls()
        saved = iter(Manifest.from_json(content["manifest"]).saved)
        for entry in content["components"]:
            names = list(islice(saved, entry["names"]))
            reasons = dict.fromkeys((name.name for name in names), "not tried yet")
            carried.components.append(CarriedComponent(contents.stored(entry), names, reasons))
        for entry in content["carried"]:
            names = [SavedName(**name) for name in entry["names"]]
            carried.components.append(CarriedComponent(contents.stored(entry), names, dict(entry["reasons"])))
        return carried
