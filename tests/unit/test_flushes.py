from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ipykernel.iostream import IOPubThread, OutStream
from jupyter_client.session import Session

from nls_jupyter.between.seams import FLUSH_PENDING
from nls_jupyter.notebook.flushes import leave_out_idle_flushes

if TYPE_CHECKING:
    from collections.abc import Callable


class Published(IOPubThread):
    """A kernel's stream, how often its publishing thread was woken, and what that has sent."""

    def __init__(self) -> None:
        self.woken = 0
        self.texts: list[str] = []
        self.thread: Any = SimpleNamespace(ident=-1, is_alive=lambda: True)
        self.io_loop: Any = SimpleNamespace(call_later=lambda *_: None)
        session: Any = Session()
        self.stream: Any = OutStream(session, self, "stdout", watchfd=False)  # type: ignore[no-untyped-call]
        session.send = self._sent

    def schedule(self, work: Callable[[], object]) -> None:
        self.woken += 1
        work()

    def _sent(self, _: object, message: Any, **__: object) -> None:
        self.texts.append(message["content"]["text"])


@pytest.fixture
def published() -> Published:
    return Published()


def test_a_flush_with_nothing_to_send_waits_for_nobody(published: Published) -> None:
    leave_out_idle_flushes([published.stream])
    published.stream.flush()
    assert published.woken == 0


def test_what_was_written_is_sent_when_the_flush_returns(published: Published) -> None:
    leave_out_idle_flushes([published.stream])
    for text in ("one", "two"):
        published.stream.write(text)
        published.stream.flush()
        published.stream.flush()
        assert published.texts[-1] == text
    assert published.texts == ["one", "two"]


def test_asked_for_twice_it_looks_once(published: Published) -> None:
    leave_out_idle_flushes([published.stream])
    first = published.stream.flush
    leave_out_idle_flushes([published.stream])
    assert published.stream.flush is first


def test_a_stream_that_no_longer_says_whether_anything_waits_is_always_flushed(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_idle_flushes([published.stream])
    monkeypatch.delattr(published.stream, FLUSH_PENDING.name)
    published.stream._flush = lambda: None
    published.stream.flush()
    assert published.woken > 0


def test_other_streams_stay_as_they_are() -> None:
    captured = io.StringIO()
    leave_out_idle_flushes([captured, None])
    assert not vars(captured)
