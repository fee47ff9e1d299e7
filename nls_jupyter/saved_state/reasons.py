"""What the user reads where a name is not saved."""

from __future__ import annotations

import pickle
import re
from typing import Any

from nls_jupyter.saved_state.arena import NoRoomError
from nls_jupyter.saved_state.kinds import is_of, name_of, text_of
from nls_jupyter.saved_state.manifest import MissingName, describe, type_name
from nls_jupyter.saved_state.regions import NoRoomForError, UnsavableError
from nls_jupyter.saved_state.watchdog import StuckError

# What pickle says of types that give it no way.
_REFUSED = re.compile(r"can(?:not|'t) pickle '?([\w.]+)'?")


def missing_name(name: str, value: Any, error: BaseException) -> MissingName:
    """What a manifest says of a name that is not saved, as `error` came of it."""
    no_room = is_of(error, NoRoomError) or is_of(error, NoRoomForError)
    return MissingName(name, type_name(value), reason_for(error, value), no_room=no_room)


def reason_for(error: BaseException, value: Any) -> str:
    """Why `value` is not saved, for the user."""
    if is_of(error, UnsavableError):
        return error.reason_for(value)
    if is_of(error, NoRoomError):
        return f"it does not fit in what is left for saved state ({error.why_no_spill})"
    if issubclass(type(error), (RecursionError, pickle.PicklingError)) and "recursion" in text_of(error):
        return "it is nested too deeply to be saved"
    if is_of(error, StuckError):
        return str(error)
    if (refused := _REFUSED.search(text_of(error))) is not None:
        inside, own = (name.rpartition(".")[2] for name in (refused[1], name_of(type(value))))
        return f"it{'' if inside == own else f' holds a {inside}, which'} cannot be pickled"
    return f"it cannot be pickled ({describe(error)})"
