"""What is carried in an arena, put back into a namespace, with the settings and outputs that lie beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import figures, recipes
from nls_jupyter.saved_state.blobs import read_blob
from nls_jupyter.saved_state.decoder import Into, RestoreReport, decode
from nls_jupyter.saved_state.manifest import MissingName, describe, is_beside
from nls_jupyter.saved_state.store import Reader
from nls_jupyter.saved_state.watchdog import SaveEndsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nls_jupyter.saved_state.arena import Arena
    from nls_jupyter.saved_state.carried import Carried, CarriedComponent
    from nls_jupyter.saved_state.interpreter import Interpreter
    from nls_jupyter.saved_state.manifest import ChangedName
    from nls_jupyter.saved_state.store import Contents
    from nls_jupyter.saved_state.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class BringingBack:
    """Puts back what is carried; what cannot be put back stays carried, with its reason.

    Attributes:
        namespace: the user's.
        carried: what is not back.
        arena: where it lies.
        interpreter: what is kept beside the names; `None` for nothing.
        on_component: gets the key of each component that is brought back now, and `None` once none is.
    """

    namespace: dict[str, Any]
    carried: Carried
    arena: Arena
    interpreter: Interpreter | None
    on_component: Callable[[str | None], None]

    def everything(
        self, content: Mapping[str, Any], contents: Contents, deaths: Mapping[str, int], watchdog: Watchdog
    ) -> RestoreReport:
        """A whole committed state.

        Args:
            content: its index.
            contents: what the index refers to.
            deaths: see `Saver.restore`.
            watchdog: bounds what other people's code may take.
        """
        stored = _read_stored(contents, content["interpreter"]) if self.interpreter is not None else None
        missing = self._apply(stored, early=True)
        for component in self.carried.components:
            if component.key in deaths:
                component.leave_out(deaths[component.key])
        report = self.what_is_due(contents.progress, lambda one: one.key not in deaths and not one.waits)
        with watchdog.patient(recipes.PATIENCE_S):
            computed, failed = recipes.compute(content["recipes"], self.namespace, watchdog.progress)
        missing += self._apply(stored, early=False)
        missing += [*report.missing, *failed]
        return replace(report, restored=(*report.restored, *computed), missing=tuple(missing))

    def what_is_due(self, progress: Callable[[], None], due: Callable[[CarriedComponent], bool]) -> RestoreReport:
        """The components that are `due`; `progress` is called now and then."""
        restored: list[str] = []
        missing: list[MissingName] = []
        changed: list[ChangedName] = []
        into = Into(self.namespace, self.carried.alive)
        for component in self.carried.components:
            progress()
            if not due(component):
                missing += component.left_out()
                continue
            self.on_component(component.key)
            wanted, shown = set(component.reasons), figures.shown()
            report = decode(Reader(self.arena, component.stored, progress), into, component.names, wanted)
            if not report.restored:
                figures.close_all_but(shown)  # they were made with what has failed, and would be with each try
            beside, refused = self._put_beside(report.restored)
            lost = [*report.missing, *refused]
            component.reasons = {name.name: name.reason for name in lost}
            changed += [*component.apart(wanted), *report.changed]
            restored += [name for name in report.restored if name not in beside]
            missing += lost
        self.on_component(None)
        self.carried.forget(())
        carried = tuple(name.name for name in self.carried.names())
        return RestoreReport(tuple(restored), tuple(missing), carried, tuple(changed))

    def _put_beside(self, names: Iterable[str]) -> tuple[Mapping[str, Any], list[MissingName]]:
        """What is no name of the user's gets to its own place; all of it, and what could not be put there."""
        if self.interpreter is None:
            return {}, []
        beside = {name: self.namespace.pop(name) for name in names if is_beside(name)}
        return beside, self.interpreter.put_outputs(beside)

    def _apply(self, stored: bytes | None, *, early: bool) -> list[MissingName]:
        """What of the settings could not be applied; they never cost the names."""
        if self.interpreter is None or not stored:
            return []
        try:
            return list(self.interpreter.apply(stored, early=early))
        except SaveEndsError:
            raise
        except BaseException as error:  # noqa: BLE001 - an extension of the user's may raise anything; it is named
            return [MissingName("settings", "setting", describe(error))]


def _read_stored(contents: Contents, entry: list[int] | None) -> bytes | None:
    if entry is None:
        return None
    blob = contents.blob(entry)
    stored = bytearray(blob.size_bytes)
    read_blob(contents.arena, blob, memoryview(stored), contents.progress)
    return bytes(stored)
