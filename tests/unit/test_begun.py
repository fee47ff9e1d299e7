"""What the GPU process began last is known in the kernel's process, also after the end."""

from __future__ import annotations

import os

from nls_jupyter.between.begun import BegunCell


def test_the_last_cell_that_began_is_known_on_the_other_side_and_after_the_end() -> None:
    kernel = BegunCell.create()
    assert not kernel.is_last("first")
    child = os.fork()
    if child == 0:
        kernel.note("first")
        kernel.note("second")
        os._exit(0)
    os.waitpid(child, 0)
    assert kernel.is_last("second")
    assert not kernel.is_last("first")
    kernel.close()
    assert kernel.is_last("second")
    kernel.close()
