"""Saved state: a notebook's variables outside its GPU process, in shared memory that the kernel owns.

A GPU process has one `Saver`, which writes what changed since its last save into the same files; their descriptors go
to the kernel. A new GPU process gets them back and goes on with them. The kernel between them only ever reads the
manifest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nls_jupyter.saved_state.arena import NoRoomError, SavedStateDamagedError, empty
    from nls_jupyter.saved_state.aside import DONE, FAILED, STOPPED
    from nls_jupyter.saved_state.carried import WAITS
    from nls_jupyter.saved_state.dead_gpu import DEAD_GPU, why_dead
    from nls_jupyter.saved_state.decoder import RestoreReport
    from nls_jupyter.saved_state.index import read_manifest
    from nls_jupyter.saved_state.interpreter import Interpreter
    from nls_jupyter.saved_state.manifest import ChangedName, Manifest, MissingName, SavedName, user_names
    from nls_jupyter.saved_state.recipes import check as check_recipe
    from nls_jupyter.saved_state.room import MachineRoom
    from nls_jupyter.saved_state.saver import Saver
    from nls_jupyter.saved_state.watchdog import OverBudgetError, SaveStoppedError
    from nls_jupyter.saved_state.widgets import reconnect

__all__ = [
    "DEAD_GPU",
    "DONE",
    "FAILED",
    "STOPPED",
    "WAITS",
    "ChangedName",
    "Interpreter",
    "MachineRoom",
    "Manifest",
    "MissingName",
    "NoRoomError",
    "OverBudgetError",
    "RestoreReport",
    "SaveStoppedError",
    "SavedName",
    "SavedStateDamagedError",
    "Saver",
    "check_recipe",
    "empty",
    "read_manifest",
    "reconnect",
    "user_names",
    "why_dead",
]

# Module and name there. The notebook's kernel, which reads manifests, needs few of them.
_WHERE = {
    "ChangedName": ("manifest", "ChangedName"),
    "DEAD_GPU": ("dead_gpu", "DEAD_GPU"),
    "DONE": ("aside", "DONE"),
    "FAILED": ("aside", "FAILED"),
    "Interpreter": ("interpreter", "Interpreter"),
    "MachineRoom": ("room", "MachineRoom"),
    "Manifest": ("manifest", "Manifest"),
    "MissingName": ("manifest", "MissingName"),
    "NoRoomError": ("arena", "NoRoomError"),
    "OverBudgetError": ("watchdog", "OverBudgetError"),
    "RestoreReport": ("decoder", "RestoreReport"),
    "STOPPED": ("aside", "STOPPED"),
    "SaveStoppedError": ("watchdog", "SaveStoppedError"),
    "SavedName": ("manifest", "SavedName"),
    "SavedStateDamagedError": ("arena", "SavedStateDamagedError"),
    "Saver": ("saver", "Saver"),
    "WAITS": ("carried", "WAITS"),
    "check_recipe": ("recipes", "check"),
    "empty": ("arena", "empty"),
    "read_manifest": ("index", "read_manifest"),
    "reconnect": ("widgets", "reconnect"),
    "user_names": ("manifest", "user_names"),
    "why_dead": ("dead_gpu", "why_dead"),
}


def __getattr__(name: str) -> Any:
    """Imports what `name` is in. Raises AttributeError."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, its_name = _WHERE[name]
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), its_name)
    return found
