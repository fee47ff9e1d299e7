"""Who holds a socket's lock, as /proc tells it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nls_scheduler.daemon.http.ownership import Ownership
from nls_scheduler.wire import locate
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.holder import Holder, holder_of

if TYPE_CHECKING:
    from pathlib import Path


def test_the_holder_is_seen_as_long_as_it_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "nls.sock"
    assert holder_of(path) is None
    with Ownership(path, str):
        assert holder_of(path) == Holder(os.getpid(), stopped=False)
        away = locate.silent(path, "start one")
        assert (str(away).startswith(f"The daemon at {path} does not answer: its process"), away.may_come) == (
            True,
            True,
        )
    assert holder_of(path) is None


def test_a_lock_file_that_nobody_holds_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "nls.sock.lock").touch()
    assert holder_of(tmp_path / "nls.sock") is None
    away = locate.silent(tmp_path / "nls.sock", "start one")
    assert isinstance(away, DaemonUnreachable)
    assert (str(away), away.may_come) == (f"No daemon answers at {tmp_path / 'nls.sock'}: start one.", False)
