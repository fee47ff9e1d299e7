"""A defect of the daemon is told to everybody who asks, and what it was about to nobody but its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NoReturn

import pytest

from nls_scheduler.core.model.events import TimerFired
from nls_scheduler.daemon import loop
from nls_scheduler.wire.errors import Problem


def test_what_a_defect_was_about_is_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def step(*_: object) -> NoReturn:
        raise RuntimeError("Workload(name='layoffs.ipynb')")

    monkeypatch.setattr(loop, "step", step)
    daemon = SimpleNamespace(state=None)
    with pytest.raises(Problem) as caught:
        loop.Loop._apply(daemon, TimerFired(1.0))  # type: ignore[arg-type]
    assert caught.value.detail == daemon._defect
    assert daemon._defect == "A defect of the daemon, please report it with its log: RuntimeError"
    assert "layoffs.ipynb" in caplog.text
