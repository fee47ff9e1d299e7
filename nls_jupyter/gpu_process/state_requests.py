"""What the notebook's kernel asks of the user's names in the GPU process: saved, restored, copied in and out."""

from __future__ import annotations

import functools
import itertools
import os
from typing import TYPE_CHECKING, Any

from nls_jupyter import saved_state
from nls_jupyter.between import held_signals
from nls_jupyter.between.packed import pack_named, unpack
from nls_jupyter.between.restoring import COMM_BACK
from nls_jupyter.between.save_stops import SaveStops
from nls_jupyter.between.state_socket import StateSocket
from nls_jupyter.gpu_process import warm_imports
from nls_jupyter.gpu_process.save_points import SavePointBudget
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_jupyter.saved_state.saver import Saver

# What a save after a cell may keep the next one waiting.
_BUDGET_S = 0.03


class StateRequests:
    """Each method that takes the content of a request returns that of its reply, in the main thread.

    Args:
        shell: of the process's kernel.
        saver: saves and restores its names.
        publish: sends a message of this kind and content on iopub; called from any thread.
        awaited: whether a request has come that nobody has read.

    Attributes:
        budget: when a save point may be taken.
    """

    def __init__(
        self, shell: Any, saver: Saver, publish: Callable[[str, Mapping[str, Any]], None], awaited: Callable[[], bool]
    ) -> None:
        self._shell = shell
        self._saver = saver
        self._publish = publish
        self._awaited = awaited
        self._state_socket = StateSocket.inherited()
        self._stops = SaveStops.inherited()
        saver.drops = self._stops.drops
        self._save_numbers = itertools.count(1)
        self._imports = warm_imports.Imports()
        self.budget = SavePointBudget()

    def save(self, content: dict[str, Any]) -> dict[str, Any]:
        """After a cell, or now. Raises `SaveStoppedError` where it was stopped."""
        after_cell = content.get("within_budget", False)
        budget_s = _BUDGET_S if after_cell else None
        stop = functools.partial(_stop_where_asked, self._stops, content["number"])
        return self.write(content["cell"], budget_s=budget_s, stop=stop, after_cell=after_cell)

    def look(self) -> None:
        """Once a save is told: nobody waits for this, unless for the next cell."""
        self._saver.look(
            saved_state.user_names(self._shell.user_ns, self._shell.user_ns_hidden),
            stop=functools.partial(self._give_way, monotonic_s()),
        )

    def _give_way(self, began_s: float) -> None:
        if monotonic_s() - began_s > _BUDGET_S and self._awaited():
            raise saved_state.SaveStoppedError("a request waits")

    def save_aside(self, content: dict[str, Any]) -> dict[str, Any]:
        """Have a copy of this process save; it goes on alone after the reply."""
        number = next(self._save_numbers)
        names = saved_state.user_names(self._shell.user_ns, self._shell.user_ns_hidden)
        self._saver.save_aside(
            names,
            cell=content["cell"],
            stop=functools.partial(_stop_where_asked, self._stops, content["number"]),
            committed=lambda: self._state_socket.send(number, self._saver.descriptors(), announced=False),
            over=functools.partial(self._tell_saved_aside, number),
        )
        return {"number": number, "modules": self._imports.names(names), "environment": self._imports.environment()}

    def _tell_saved_aside(self, number: int, how: str) -> None:
        """From a thread of its own, also in mid-cell."""
        told = {"number": number, "how": how, "can_be_copied": self._saver.why_not_aside() is None}
        self._publish("nls_saved_aside", told)

    @held_signals.held()
    def write(
        self,
        cell: str | None,
        *,
        stop: Callable[[], None],
        budget_s: float | None = None,
        save_point: bool = False,
        after_cell: bool = False,
    ) -> dict[str, Any]:
        """Save the user's names and send the file. Returns what the kernel has to know about it."""
        stop()
        began_s = monotonic_s()
        names = saved_state.user_names(self._shell.user_ns, self._shell.user_ns_hidden)
        manifest = self._saver.save(names, cell=cell, budget_s=budget_s, stop=stop, after_cell=after_cell)
        number = next(self._save_numbers)
        self._state_socket.send(number, self._saver.descriptors(), announced=not save_point)
        self.budget.saved(began_s, monotonic_s())
        return {
            "number": number,
            "manifest": manifest.to_json(),
            "modules": self._imports.names(names),
            "environment": self._imports.environment(),
            "can_be_copied": self._saver.why_not_aside() is None,
        }

    def restore(self, content: dict[str, Any]) -> dict[str, Any]:
        """What an earlier process had saved."""
        descriptors = self._state_socket.receive(content["number"])
        try:
            report = self._saver.restore(descriptors, self._shell.user_ns, content["deaths"])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return self._reconnected(report)

    def _reconnected(self, report: saved_state.RestoreReport) -> dict[str, Any]:
        """Widgets that are back go on with the page."""
        saved_state.reconnect(functools.partial(self._publish, COMM_BACK), all_back=not report.missing)
        return report.to_json()

    def try_again(self, content: dict[str, Any]) -> dict[str, Any]:
        """What could not be restored, before the next cell."""
        return self._reconnected(self._saver.try_again(self._shell.user_ns, asked=content["asked"]))

    def forget(self, content: dict[str, Any]) -> dict[str, Any]:
        """`%gpu forget`."""
        self._saver.forget(content["names"])
        return {}

    def recipe(self, content: dict[str, Any]) -> dict[str, Any]:
        """`%gpu recompute`."""
        name, expression = content["name"], content["expression"]
        if expression:
            saved_state.check_recipe(name, expression)
            self._saver.recipes[name] = expression
        else:
            self._saver.recipes.pop(name, None)
        return {"recipes": self._saver.recipes}

    def give(self, content: dict[str, Any]) -> dict[str, Any]:
        """`%%gpu -i`."""
        (descriptor,) = self._state_socket.receive(content["number"])
        try:
            self._shell.push(unpack(descriptor))
        finally:
            os.close(descriptor)
        return {}

    def take(self, content: dict[str, Any]) -> dict[str, Any]:
        """`%%gpu -o`."""
        descriptor = pack_named(self._shell.user_ns, content["names"], "the GPU process", tensors=content["tensors"])
        number = next(self._save_numbers)
        try:
            self._state_socket.send(number, (descriptor,))
        finally:
            os.close(descriptor)
        return {"number": number}


def _stop_where_asked(stops: SaveStops, number: int) -> None:
    """For a save that the notebook's kernel asked for."""
    if stops.asked(number):
        raise saved_state.SaveStoppedError("the notebook's kernel had the save stopped")
