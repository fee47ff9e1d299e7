"""What one process knows of the copies of itself that save: the one at work, and why there may be no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aside import DONE, FAILED, REFUSED, SHARED, Aside, NotAsideError, why_not
from nls_jupyter.saved_state.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_jupyter.saved_state.manifest import Manifest
    from nls_jupyter.saved_state.one_save import OneSave


class Copies:
    """At most one copy at a time; and what the last save saw, of the process or a copy, which the next copy needs."""

    def __init__(self) -> None:
        self._at_work: Aside | None = None
        self._refused = self._failed = False
        self._seen: dict[str, int] = {}
        self._on_devices: set[str] = set()
        self._on_host: list[tuple[int, int]] = []
        self._has_mapped = False
        self._shared = SharedMemory()
        self._left_out: set[str] = set()

    def why_none(self) -> str | None:
        """Why there should be no copy now, as far as is known; `None` for nothing."""
        if self._refused:
            return "a copy of this process has refused"
        return "a copy of this process has failed before" if self._failed else why_not()

    def begin(
        self,
        work: Callable[[Callable[[], None]], None],
        over: Callable[[str], None],
        names: Mapping[str, Any],
        on_devices: set[str],
    ) -> None:
        """Make one that saves `names`; of these lead to memory of Gpus what `on_devices` has, or it refuses.

        For the others see `Aside`. Raises NotAsideError where the system refuses.
        """
        seen = _identities(names)

        def ended(how: str) -> None:
            self._failed |= how == FAILED
            self._refused |= how == REFUSED
            if how == DONE:
                self._seen, self._on_devices = seen, on_devices
            over(how)

        try:
            self._at_work = Aside(work, ended)
        except OSError as error:
            raise NotAsideError(f"this process cannot be copied: {error.strerror}") from error

    def end(self) -> bool:
        """Until none is at work. Whether one was made since the last time."""
        if self._at_work is None:
            return False
        self._at_work.end()
        self._at_work = None
        return True

    def noted(self, names: Mapping[str, Any], save: OneSave, manifest: Manifest) -> None:
        """The process itself has saved `names`."""
        self._seen = _identities(names)
        self._on_devices, self._left_out = save.on_devices, _left_out(manifest)
        self._on_host, self._has_mapped = save.on_host, save.has_mapped
        self._refused = False

    def refuse_shared(self) -> None:
        """Raises NotAsideError where names show shared memory, as far as the process's own last save tells.

        What was mapped since then they may show, too.
        """
        before, self._shared = self._shared, SharedMemory()
        self._has_mapped |= self._shared.has_more_than(before)  # until a save of the process tells
        if self._has_mapped or self._shared.holds_any(self._on_host):
            raise NotAsideError(SHARED)

    def perhaps_on_devices(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Those that led to memory of Gpus, then those that are new."""
        known = {name: value for name, value in names.items() if name in self._on_devices}
        new = {name: value for name, value in names.items() if self._seen.get(name) != id(value)}
        return {**known, **new}

    def refuse_losses(self, names: Mapping[str, Any], manifest: Manifest, *, but_new: bool) -> None:
        """In a copy: raises NotAsideError for a name that the process's own last save did not leave out.

        `but_new`: not for a name that has another value than in the save before.
        """
        lost = _left_out(manifest) - self._left_out
        if but_new:
            lost = {name for name in lost if name not in names or self._seen.get(name) == id(names[name])}
        if lost:
            raise NotAsideError(f"{', '.join(sorted(lost))} cannot be saved by a copy, or not at all")


def _identities(names: Mapping[str, Any]) -> dict[str, int]:
    return {name: id(value) for name, value in names.items()}


def _left_out(manifest: Manifest) -> set[str]:
    return {missing.name for missing in manifest.missing}
