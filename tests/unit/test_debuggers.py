"""What a debugger in the process does not get to see."""

from __future__ import annotations

import contextlib
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.processes import debuggers

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_what_is_started_meanwhile_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped: list[bool] = []

    @contextlib.contextmanager
    def skip() -> Iterator[None]:
        skipped.append(True)
        yield
        skipped.append(False)

    monkeypatch.setitem(sys.modules, "pydevd", SimpleNamespace(skip_subprocess_arg_patch=skip))
    with debuggers.not_followed():
        assert skipped == [True]
    assert skipped == [True, False]
    monkeypatch.delitem(sys.modules, "pydevd")
    with debuggers.not_followed():
        assert skipped == [True, False]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_nothing_in_a_forked_child_is_monitored() -> None:
    monitoring, seen = getattr(sys, "monitoring"), []  # noqa: B009 - not there before 3.12

    def traced() -> int:
        return 1

    monitoring.use_tool_id(monitoring.DEBUGGER_ID, "test")
    try:
        monitoring.register_callback(monitoring.DEBUGGER_ID, monitoring.events.LINE, lambda *_: seen.append(1))
        monitoring.set_local_events(monitoring.DEBUGGER_ID, traced.__code__, monitoring.events.LINE)
        traced()
        before = len(seen)
        child = debuggers.fork()
        if child == 0:
            debuggers.trace_nothing()
            traced()
            os._exit(len(seen) - before)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        monitoring.free_tool_id(monitoring.DEBUGGER_ID)
    assert before == 1
