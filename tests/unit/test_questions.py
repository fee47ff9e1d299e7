from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.notebook import questions
from nls_jupyter.notebook.questions import Questions
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied
from nls_jupyter.supervisor.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator

DEBUG = {"seq": 4, "type": "request", "command": "threads", "arguments": {}}


class Process:
    """A GPU process that answers, does not, or dies."""

    def __init__(self, answers: str) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def request(self, msg_type: str, content: Any, *, channel: str = "shell", timeout_s: float) -> Any:
        self.asked.append(f"{msg_type} on {channel}")
        if self.answers == "dies":
            raise GpuProcessDied(ExitStatus(returncode=3, signal=None))
        if self.answers == "hangs":
            async with asyncio.timeout(timeout_s):
                await asyncio.Event().wait()
        return {"status": "ok", "asked": content}


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("test")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.05)
    monkeypatch.setattr(questions, "_DEBUGGED_WITHIN_S", 0.05)


def asking(thread: LoopThread, process: Process | None, *, executing: bool = False, usable: bool = True) -> Questions:
    keeper = SimpleNamespace(process=process, executing=executing, still_usable=lambda: usable)
    return Questions(thread, SimpleNamespace(keeper=keeper))  # type: ignore[arg-type]


def test_the_gpu_process_answers(thread: LoopThread) -> None:
    process = Process("at once")
    assert asking(thread, process).ask("complete_request", {"code": "x"}) == {"status": "ok", "asked": {"code": "x"}}
    assert process.asked == ["complete_request on shell"]


def test_without_a_process_or_while_its_cell_runs_nobody_is_asked(thread: LoopThread) -> None:
    process = Process("hangs")
    assert asking(thread, None).ask("complete_request", {}) is None
    assert asking(thread, process, executing=True).ask("complete_request", {}) is None
    assert asking(thread, process, usable=False).ask("complete_request", {}) is None
    assert process.asked == []


@pytest.mark.parametrize("answers", ["hangs", "dies"])
def test_an_answer_that_does_not_come_holds_nothing_up(thread: LoopThread, answers: str) -> None:
    began = time.monotonic()
    assert asking(thread, Process(answers)).ask("inspect_request", {}) is None
    assert time.monotonic() - began < 5


def test_the_debugger_is_asked_on_control_while_a_cell_runs_too(thread: LoopThread) -> None:
    process = Process("at once")
    reply = asyncio.run(asking(thread, process, executing=True).debug(DEBUG))
    assert reply == {"status": "ok", "asked": DEBUG}
    assert process.asked == ["debug_request on control"]


@pytest.mark.parametrize(
    ("answers", "why"), [("dies", "the GPU process exited with code 3"), ("hangs", "did not answer within")]
)
def test_a_debugger_that_does_not_answer_is_a_refusal_that_says_why(thread: LoopThread, answers: str, why: str) -> None:
    reply = asyncio.run(asking(thread, Process(answers)).debug(DEBUG))
    assert reply is not None
    assert (reply["request_seq"], reply["command"], reply["success"]) == (4, "threads", False)
    assert why in reply["message"]


def test_without_a_process_there_is_no_debugger(thread: LoopThread) -> None:
    assert asyncio.run(asking(thread, None).debug(DEBUG)) is None
