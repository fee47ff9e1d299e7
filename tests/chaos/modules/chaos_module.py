"""What notebooks of the chaos suite import: slow or absent while a file of that name lies in `$CHAOS_FLAGS`."""

import os
import time
from pathlib import Path

_flags = Path(os.environ["CHAOS_FLAGS"])
_ends = time.monotonic() + 60
while (_flags / "slow").exists() and time.monotonic() < _ends:
    time.sleep(0.02)
if (_flags / "absent").exists():
    raise ModuleNotFoundError("No module named 'chaos_module' for now", name="chaos_module")


class Thing:
    """An object whose class has to be imported."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen
