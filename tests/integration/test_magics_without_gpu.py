"""`%gpu` on a node without any GPU."""

from __future__ import annotations

import pytest

from daemon_process import NLS
from nls_scheduler.drivers.nvml import NvmlDriver
from notebooks import Bench

HOW_TO_TRY = "nls up --simulate 2x16GiB"


def has_gpus() -> bool:
    driver = NvmlDriver()
    try:
        return bool(driver.discover())
    finally:
        driver.close()


@pytest.mark.skipif(has_gpus(), reason="this machine has GPUs")
def test_without_a_gpu_every_way_says_why_and_what_to_do_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("none")
    bench = Bench(directory, "1x1GiB")
    bench.daemon._command = [*NLS, "--state-dir", str(directory / "state"), "up"]
    with bench:
        book = bench.open()
        status = book.run("%gpu").result or ""
        assert "There is no NVIDIA driver on this machine" in status
        assert HOW_TO_TRY in status
        for cell in ("%%gpu\n1", "%%gpu --timeout 60\n1", "%gpu request 0.5"):
            failed = book.fails(cell)
            assert failed.ename == "GpuUnavailable"
            assert "There is no NVIDIA driver on this machine" in failed.evalue
            assert HOW_TO_TRY in failed.evalue
        assert book.run("1 + 1").result == "2"
        book.close()
