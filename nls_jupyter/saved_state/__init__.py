"""Saved state: a notebook's variables outside its GPU process, in shared memory that the kernel owns.

A GPU process has one `Saver`, which writes what changed since its last save into the same files; their descriptors go
to the kernel. A new GPU process gets them back and goes on with them. The kernel between them only ever reads the
manifest.
"""

from __future__ import annotations

from nls_jupyter.saved_state.arena import NoRoomError, SavedStateDamagedError
from nls_jupyter.saved_state.aside import DONE, STOPPED
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
from nls_jupyter.saved_state.widgets import BACK as COMM_BACK
from nls_jupyter.saved_state.widgets import reconnect

__all__ = [
    "COMM_BACK",
    "DEAD_GPU",
    "DONE",
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
    "read_manifest",
    "reconnect",
    "user_names",
    "why_dead",
]
