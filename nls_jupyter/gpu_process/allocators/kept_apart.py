"""A library that keeps its memory to itself: JAX, TensorFlow, RMM. It is held from its start on, or by samples only.

None can be asked what it holds before it uses its GPU without making it do so, and none gives memory back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_jupyter.gpu_process.allocators.library import LacksError

if TYPE_CHECKING:
    from nls_jupyter.gpu_process.allocators.library import Allowance


class KeptApart:
    """Tells the user once what `name` cannot follow, when there is something to follow."""

    def __init__(self, name: str, follower: Allowance) -> None:
        self._name = name
        self._follower = follower
        self._first_bytes: int | None = None
        self._told = False

    def devices(self) -> set[int]:
        """None that is known."""
        return set()

    def held_bytes(self, device: int) -> int:  # noqa: ARG002 - nobody can ask it
        """Nothing that is known: it shows in the driver's samples only."""
        return 0

    def follow(self) -> None:
        """Nothing follows; where less is allowed than when it was imported, the user is told so."""
        allowance_bytes = self._follower.allowance_bytes
        if allowance_bytes is None or self._told:
            return
        if self._first_bytes is None:
            self._first_bytes = allowance_bytes
        if allowance_bytes < self._first_bytes:
            self._told = True
            told = (
                f"{self._name} cannot follow how much of the GPU this notebook may use at the moment, nor give memory "
                "back: where others are owed it, the notebook moves or is suspended instead."
            )
            self._follower.failed(self._name, LacksError(told))

    def trim(self) -> int:
        """Nothing can be given back."""
        return 0

    def explain(self, error: BaseException) -> None:
        """Nothing to add: what it raises was not asked of the scheduler."""
