"""What the daemon tells, as its clients read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping


class Told(dict[str, Any]):
    """An object in an answer. A field that it lacks is told by daemons of another version."""

    def __missing__(self, name: str) -> Any:
        """Raises Problem."""
        detail = (
            f"The daemon is of an older version than this client, and does not say {name!r}: start it again "
            "(`nls down`, then `nls up`, or its service). GPU processes go on meanwhile."
        )
        raise Problem(409, "Daemon too old", detail, "server")


def how_many_gpus(workload: Mapping[str, Any]) -> int:
    """On how many Gpus a workload is, or is to be; `workload`: its status entry."""
    return len(workload["gpus"]) or int(workload["gpu_count"])


def read_told(text: str | bytes) -> Any:
    """An answer's JSON. Raises ValueError where it is none."""
    return json.loads(text, object_hook=Told)
