"""Low priority for a process that stands by, and back to what it was when it is needed."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

_NICE = 10


def lower() -> None:
    """Let everybody else go first: nice 10 where that can be taken back, else as batch work.

    Raising one's niceness is everybody's right, lowering it again only of the privileged: a GPU process that stayed
    nice would run slowly for ever.
    """
    if _can_be_undone():
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    else:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def restore() -> None:
    """Priority as of any process, for every thread of this one: threads inherited the low one."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            if os.sched_getscheduler(int(thread.name)) == os.SCHED_BATCH:
                os.sched_setscheduler(int(thread.name), os.SCHED_OTHER, os.sched_param(0))
            if os.getpriority(os.PRIO_PROCESS, int(thread.name)) == _NICE:
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def _can_be_undone() -> bool:
    """Tried out on a thread of its own: on Linux each has its own niceness."""
    outcome: list[bool] = []

    def attempt() -> None:
        thread = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, thread) != 0:
            return  # whoever made the notebook nice knows why
        try:
            os.setpriority(os.PRIO_PROCESS, thread, _NICE)
            os.setpriority(os.PRIO_PROCESS, thread, 0)
        except PermissionError:
            return
        outcome.append(True)

    tried = threading.Thread(target=attempt)
    tried.start()
    tried.join()
    return bool(outcome)
