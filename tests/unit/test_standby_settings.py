from __future__ import annotations

import pytest

from nls_jupyter.supervisor import standby_settings
from nls_jupyter.supervisor.standby_settings import StandbySettings, parse_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "left", "budget"),
    [("0.05", 20 * GIB, GIB), ("2GiB", 20 * GIB, 2 * GIB), ("0", 20 * GIB, 0), ("0.05", GIB - 1, 0)],
)
def test_the_budget_of_a_standby(memory: str, left: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_settings, "memory_left_bytes", lambda: left)
    assert StandbySettings(parse_memory(memory)).budget_bytes() == budget
