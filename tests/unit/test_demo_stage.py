"""On which GPUs the demo plays."""

from __future__ import annotations

import pytest

from nls_scheduler.demo.stage import which_gpus


@pytest.mark.parametrize(
    ("asked", "idle", "plays"),
    [
        pytest.param(None, [], (2, "--simulate"), id="two are simulated where none is idle"),
        pytest.param(None, ["GPU-a"], (1, "GPU-a"), id="one that is idle is enough for a story"),
        pytest.param(None, ["GPU-a", "GPU-b", "GPU-c"], (2, "GPU-a,GPU-b"), id="two of those that are idle"),
        pytest.param(1, ["GPU-a", "GPU-b"], (1, "GPU-a"), id="one, as asked for"),
        pytest.param(1, [], (1, "--simulate"), id="one is simulated, as asked for"),
        pytest.param(2, ["GPU-a"], (2, "--simulate"), id="two are simulated where one is idle and two are asked for"),
    ],
)
def test_which_gpus_the_demo_plays_on(asked: int | None, idle: list[str], plays: tuple[int, str]) -> None:
    count, arguments, told = which_gpus(asked, idle)
    assert count == plays[0]
    assert plays[1] in arguments
    assert ("SIMULATED" in told) == ("--simulate" in arguments), "simulation is never chosen silently"
