from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING

from nls_jupyter.supervisor.lasting import _said

if TYPE_CHECKING:
    import pytest


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_the_log_has_no_room_for_is_on_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "__stderr__", FullDisk())
    assert _said("x is lost with the kernel.") == "x is lost with the kernel."
    assert capsys.readouterr().err == "[nls-jupyter] x is lost with the kernel.\n"
