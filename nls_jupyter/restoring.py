"""Which component of a saved state the GPU process brings back, in memory that outlives it.

An object can end its process while it is made: native code that crashes, memory without end. What the process was at
then is left out by the next one, so that the notebook gets the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_jupyter.shared_bytes import SharedBytes

if TYPE_CHECKING:
    from collections.abc import Mapping


class RestoredComponent(SharedBytes):
    """The GPU process writes, the kernel reads."""

    variable = "NLS_RESTORED_COMPONENT_FD"
    size_bytes = 16

    def note(self, key: str | None) -> None:
        """This component (see `CarriedComponent.key`) is brought back now; `None`: none is."""
        self.write(bytes(self.size_bytes) if key is None else bytes.fromhex(key))

    @property
    def key(self) -> str | None:
        """Of the component that is brought back now, or was when the process ended."""
        content = self.read()
        return content.hex() if any(content) else None


class Deaths:
    """How often processes died of their own while they brought back a component; for the saved state that stands."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """By component."""
        return dict(self._counts)

    def note(self, key: str | None) -> None:
        """A process has died while it was at this component; `None`: at none."""
        if key is not None:
            self._counts[key] = self._counts.get(key, 0) + 1

    def forget(self) -> None:
        """There is another saved state, which says itself what is not tried again."""
        self._counts.clear()
