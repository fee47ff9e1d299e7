"""Freezing by a real NVIDIA driver passes the contract."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from contract.checkpoint_contract import CheckpointContract
from nls_scheduler.drivers.checkpoint_trial import SUBJECT
from nls_scheduler.drivers.cuda_checkpoints import CudaCheckpoints
from nls_scheduler.drivers.nvml import NvmlDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nls_scheduler.core.model.ids import ProcessId

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


class TestCudaCheckpoints(CheckpointContract):
    """The first Gpu of this machine."""

    @pytest.fixture
    def node(self) -> Iterator[NvmlDriver]:
        driver = NvmlDriver()
        if not driver.discover():
            driver.close()
            pytest.skip(driver.trouble() or "there is no GPU")
        yield driver
        driver.close()

    @pytest.fixture
    def driver(self, node: NvmlDriver) -> CudaCheckpoints:
        pytest.importorskip("cuda.core")
        checkpoints = CudaCheckpoints()
        assert node.discover()
        assert checkpoints.refusal(None) is None
        return checkpoints

    @pytest.fixture
    def subject_code(self) -> str:
        return SUBJECT

    @pytest.fixture
    def environment(self, node: NvmlDriver) -> Mapping[str, str]:
        return {**os.environ, **node.environment([node.discover()[0].uuid])}

    @pytest.fixture
    def held_by(self, node: NvmlDriver) -> Callable[[ProcessId], int]:
        def held(process: ProcessId) -> int:
            samples = node.sample().values()
            return sum((sample.processes or {}).get(process, 0) or 0 for sample in samples)

        return held
