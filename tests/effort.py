"""How many examples properties try: NLS_EFFORT is a factor, such as 0.05 where time is short or 10 for a night."""

from __future__ import annotations

import os

_EFFORT = float(os.environ.get("NLS_EFFORT", "1"))


def examples(usual: int) -> int:
    """`usual`, or more or less of it; at least one."""
    return max(1, round(usual * _EFFORT))
