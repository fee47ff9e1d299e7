"""The points lie in a folder of their own, which each process of the suite has on its path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "hooks"), str(Path(__file__).parents[2] / "benchmarks")]
