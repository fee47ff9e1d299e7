"""Makes the test process itself a GPU process on simulated Gpus."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

GIB = 2**30
CONTEXT = 256 << 20


@contextmanager
def simulated_gpus(
    directory: Path, monkeypatch: pytest.MonkeyPatch, gpus: str = "2x16GiB"
) -> Iterator[SimulatedDriver]:
    """Two Gpus unless told otherwise, visible in discovery order; what the test forgot is collected at the end."""
    driver = SimulatedDriver(directory / "simulation", SimulationSpec.parse(gpus), CONTEXT)
    for name, value in driver.environment([gpu.uuid for gpu in driver.discover()]).items():
        monkeypatch.setenv(name, value)
    yield driver
    gc.collect()
    driver.close()
