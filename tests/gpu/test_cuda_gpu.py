"""The real libcuda passes the contract that the stub passes."""

from __future__ import annotations

import pytest

from contract.cuda_contract import CudaContract

pytestmark = pytest.mark.gpu


class TestCuda(CudaContract):
    @pytest.fixture
    def environment(self, idle: str) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": idle}
