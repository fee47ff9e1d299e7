"""Numbers what the GPU process puts out, so that a reply can say what came before it, and needs no idle behind it."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.lane import OUTPUTS
from nls_jupyter.between.seams import FLUSH_PENDING
from nls_jupyter.saved_state.kinds import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# As long as ipykernel waits for a flush; behind what takes longer comes an idle.
_SENT_WITHIN_S = 10.0


class Outputs:
    """Follows one `IOPubThread`, whose thread sends everything that cells put out, in one order.

    ipykernel has that thread flush its streams four times for each cell, and waits for it. Where nothing was put out
    since all was sent last, that is left out.
    """

    def __init__(self, thread: Any) -> None:
        self._pid = os.getpid()
        self._streams: list[Any] = []
        self._sent = 0
        self._answered: set[str] = set()
        # What was handed to the thread last, and what was when all had been sent: numbers would be lost among threads.
        self._last: object = None
        self._all_sent_at: object = object()
        self._send = thread.socket.send_multipart
        thread.socket.send_multipart = self._send_numbered
        self._schedule = thread.schedule
        thread.schedule = self._schedule_noted

    def follow(self, stream: Any) -> None:
        """One of the streams that the thread sends what was printed of."""
        self._streams.append(stream)
        stream.flush = _Flush(stream, self._nothing_new)

    def take_back(self) -> None:
        """Put a stream back that a cell has replaced by one that cannot be flushed.

        ipykernel flushes both behind each message: that would raise before the answer, without which the notebook waits
        for ever.
        """
        failures = []
        for own in self._streams:
            try:
                stream = getattr(sys, own.name)
                if stream is not own and stream is not None:
                    stream.flush()
            except Exception as error:  # noqa: BLE001 - whatever the user's own stream raises
                setattr(sys, own.name, own)
                why = f"{type(error).__name__}: {text_of(error)}".rstrip(".")
                failures.append(f"sys.{own.name} could not be flushed ({why})")
        for failure in failures:
            print(f"GPU: {failure}, and is the notebook's again.", file=sys.stderr)  # noqa: T201 - where users look

    def told(self, msg_id: str) -> Mapping[str, int]:
        """For the reply's metadata, once the cell's streams were flushed: no idle is needed then."""
        if not self._nothing_new() and not self._waited():
            return {}
        self.answered(msg_id)
        return {OUTPUTS: self._sent}

    def answered(self, msg_id: str) -> None:
        """Its answer needs no idle behind it."""
        self._answered.add(msg_id)

    def over(self, msg_id: str | None) -> bool:
        """Whether this message was answered so. Asked once."""
        if msg_id not in self._answered:
            return False
        self._answered.discard(msg_id)
        return True

    def _send_numbered(self, frames: list[Any], *args: Any, **options: Any) -> Any:
        """In the publishing thread."""
        tracker = self._send([b"%d" % (self._sent + 1), *frames], *args, **options)
        self._sent += 1
        return tracker

    def _schedule_noted(self, work: Callable[[], object]) -> None:
        self._last = object()
        self._schedule(work)

    def _nothing_new(self) -> bool:
        return self._all_sent_at is self._last and os.getpid() == self._pid

    def _waited(self) -> bool:
        """Until the thread has sent what it was handed so far; False where that takes too long."""
        last = self._last
        pending = any(FLUSH_PENDING.of(stream, None) is not False for stream in self._streams)
        passed = threading.Event()
        self._schedule(passed.set)
        if not passed.wait(_SENT_WITHIN_S):
            return False
        if not pending:
            self._all_sent_at = last
        return True


class _Flush:
    """A stream's own `flush`, where there may be anything to flush.

    Whoever has it under a name, as bars of tqdm do, has that of the same stream in the next process.
    """

    def __init__(self, stream: Any, nothing_new: Callable[[], bool]) -> None:
        self._stream, self._flush, self._nothing_new = stream, stream.flush, nothing_new

    def __call__(self) -> None:
        if not self._nothing_new():
            self._flush()

    def __reduce__(self) -> Any:
        return getattr, (self._stream, "flush")
