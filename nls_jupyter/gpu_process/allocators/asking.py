"""Asks the daemon, by way of the notebook's kernel, for memory that an allocation in a running cell has not got."""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The daemon answers sooner; who is silent for so long does not answer at all.
ANSWER_WITHIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether another try is worth it; `reason` is a sentence's end for the user."""

    granted: bool
    reason: str


class Asking:
    """The questions of this GPU process. Thread-safe: `answer` comes from the control channel's thread."""

    def __init__(self, send: Callable[[Mapping[str, object]], None], timeout_s: float = ANSWER_WITHIN_S) -> None:
        """`send` puts a question on its way to the kernel, from any thread."""
        self._send = send
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[threading.Event, list[Answer]]] = {}
        self._pid = os.getpid()
        self._one_at_a_time = threading.Lock()

    def ask(self, gpu: str, size_bytes: int, held_bytes: int) -> Answer:
        """Wait for the answer; a Ctrl-C ends the wait of the main thread. Never raises anything of its own.

        Args:
            gpu: UUID of the Gpu.
            size_bytes: what could not be allocated.
            held_bytes: what this process holds there, context included.
        """
        if os.getpid() != self._pid:
            return Answer(granted=False, reason="a forked process has no say about the notebook's memory")
        with self._one_at_a_time:
            return self._ask(gpu, size_bytes, held_bytes)

    def _ask(self, gpu: str, size_bytes: int, held_bytes: int) -> Answer:
        number, answered, answers = next(self._numbers), threading.Event(), list[Answer]()
        self._waiting[number] = (answered, answers)
        try:
            self._send({"number": number, "gpu": gpu, "bytes": size_bytes, "held_bytes": held_bytes})
            if not answered.wait(self._timeout_s):
                return Answer(granted=False, reason=f"the scheduler did not answer within {self._timeout_s:g} s")
            return answers[0]
        finally:
            del self._waiting[number]

    def answer(self, number: int, answer: Answer) -> None:
        """The kernel has the answer; one that nobody waits for any more is dropped."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting[1].append(answer)
            waiting[0].set()
