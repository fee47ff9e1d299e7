"""What the demo prints of the history."""

from __future__ import annotations

import pytest

from nls_scheduler.demo.screen import Screen


@pytest.mark.parametrize(
    ("event", "reason", "told"),
    [
        ("exited", "was killed by SIGTERM", "training exited: was killed by SIGTERM"),
        ("queued", "GPU 1 is held by alice", "training queued: GPU 1 is held by alice"),
        ("released", "", "training released"),
    ],
)
def test_an_event_and_its_reason_read_as_english(
    capsys: pytest.CaptureFixture[str], event: str, reason: str, told: str
) -> None:
    Screen(as_json=False).event({"name": "training", "event": event, "reason": reason})
    assert capsys.readouterr().out.split(maxsplit=2)[2] == f"{told}\n"
