"""Which component of a saved state the GPU process brings back, in memory that outlives it.

An object can end its process while it is made: native code that crashes, memory without end. What the process was at
then is left out by the next one, so that the notebook gets the rest.
"""

from __future__ import annotations

from nls_jupyter.between.shared_bytes import SharedBytes

#: Tells the notebook's kernel of a comm that is back: its `comm_id` and `target_name`.
COMM_BACK = "nls_comm_back"


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
