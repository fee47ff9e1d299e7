"""Imports that stand by, on a real Gpu: importing touches nothing, using does, and the mask is read at first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

USES = {"torch": "torch.zeros(1, device='cuda')", "cupy": "cupy.zeros(1)"}
COUNTS = {"torch": "torch.cuda.device_count()", "cupy": "cupy.cuda.runtime.getDeviceCount()"}
BEGINS = """
import os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
from nls_jupyter.gpu_process.warm_imports import adopt, cuda_touched, import_quietly
assert import_quietly([{library!r}]) == []
assert cuda_touched() is None, cuda_touched()
import {library}
"""


def ends_well(library: str, code: str) -> None:
    module = pytest.importorskip(library)
    if not module.cuda.is_available():
        pytest.skip(f"no GPU for {library}")
    done = subprocess.run(
        [sys.executable, "-c", BEGINS.format(library=library) + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("library", USES)
def test_importing_a_library_leaves_the_gpu_alone_and_using_it_is_noticed(library: str) -> None:
    ends_well(library, f"{USES[library]}\nassert cuda_touched() is not None\n")


@pytest.mark.parametrize("library", COUNTS)
def test_the_mask_of_an_adopted_process_counts(library: str) -> None:
    """A mask that names no Gpu hides all of them, however many the machine has."""
    code = (
        "adopt({'CUDA_VISIBLE_DEVICES': 'GPU-00000000-0000-0000-0000-000000000000'}, '/')\n"
        f"try:\n    seen = {COUNTS[library]}\nexcept Exception:\n    seen = 0\nassert seen == 0\n"
    )
    ends_well(library, code)
