"""What the exit codes mean."""

from typing import Final

CANNOT_WRITE: Final = 1
USAGE: Final = 2
NO_DAEMON: Final = 3
EVICTED: Final = 75
"""`nls run`: the command was stopped by the scheduler (EX_TEMPFAIL of sysexits.h); the last line on stderr says why."""
NO_GPU_IN_TIME: Final = 124
"""`nls run --max-wait`: there was no GPU within that time (as timeout(1))."""
START_FAILED: Final = 125
CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143
"""`nls top`: its terminal has gone, or somebody ended it by SIGTERM; `nls wait-for-gpus`: its pod is deleted."""
