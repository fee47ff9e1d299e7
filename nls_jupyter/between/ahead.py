"""How a GPU process that was started ahead is told what it is for: once, by its lane, before any other message."""

from __future__ import annotations

import json
import os
import select
import socket
from typing import TYPE_CHECKING

from nls_jupyter.between import lane

if TYPE_CHECKING:
    from collections.abc import Mapping

# Says that the process is to wait for its order; what it begins with is room for what it is told.
VARIABLE = "NLS_AHEAD"
ROOM_BYTES = 4096
ENVIRONMENT = {VARIABLE: " " * ROOM_BYTES}


def as_first_environment(environment: Mapping[str, str | None]) -> bytes:
    """What stands in place of the room: the variables, each behind a NUL as /proc shows them, and one for the rest.

    Raises `OSError` where there is not room enough.
    """
    set_now = [f"{name}={value}" for name, value in environment.items() if value is not None]
    block = "\0".join(["", *set_now, f"{VARIABLE}="]).encode("utf-8", "surrogateescape")
    if len(block) > ROOM_BYTES:
        raise OSError(f"the environment takes {len(block)} bytes, more than {ROOM_BYTES}")
    return block.ljust(ROOM_BYTES)


def give_order(end: lane.Lane, environment: Mapping[str, str | None], cwd: str) -> None:
    """Have the process go on, with this environment beside its own (`None` removes one). Raises `OSError`."""
    as_first_environment(environment)
    end.send([json.dumps({"environment": dict(environment), "cwd": cwd}).encode()])


def await_order() -> tuple[Mapping[str, str | None], str]:
    """In the process: the environment and the working directory. Raises `OSError` where the kernel is gone."""
    shared = socket.socket(fileno=os.dup(int(os.environ[lane.VARIABLE])))
    end = lane.Lane(shared)
    try:
        while True:
            end.wait_for(select.POLLIN)
            for frames in end.arrived():
                order = json.loads(frames[0])
                return order["environment"], order["cwd"]
    finally:
        end.close()
