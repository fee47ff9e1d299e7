from __future__ import annotations

import io
import logging
import threading

import pytest

from nls_scheduler.daemon.log_lines import (
    LINES_AT_ONCE,
    LINES_KEPT,
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    Bounded,
    OneLine,
    Unhurried,
)


class Log:
    """What the daemon's log would be, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(OneLine("%(levelname)s %(message)s"))
        handler.addFilter(Bounded(lambda: self.now_s))
        self.logger = logging.Logger("test", logging.DEBUG)
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_what_users_write_is_one_line_that_looks_like_no_other(log: Log) -> None:
    log.logger.warning("of %s", "x\n2026 ERROR forged\x1b[2J\r\x85\u2028\u202e\ud800 ü")
    assert log.lines == [r"WARNING of x\n2026 ERROR forged\x1b[2J\r\x85\u2028\u202e\ud800 ü"]


def test_a_message_is_bounded_in_length(log: Log) -> None:
    log.logger.warning("of %s", "\n" * 10**6)
    assert len(log.stream.getvalue()) < 3 * MESSAGE_LIMIT


def test_a_traceback_is_told_to_its_end_and_no_line_of_it_looks_like_a_message(log: Log) -> None:
    try:
        raise ValueError("x" * 10**6 + "\nERROR forged\x1b the end")
    except ValueError:
        log.logger.exception("a defect")
    first, *rest = log.lines
    assert first == "ERROR a defect"
    assert rest[-1] == r"  ERROR forged\x1b the end"
    assert all(line.startswith("  ") for line in rest)
    assert len(log.stream.getvalue()) < 2 * TRACEBACK_LIMIT


def test_who_has_one_line_told_without_end_keeps_no_other_from_being_told(log: Log) -> None:
    for number in range(LINES_AT_ONCE + 7):
        log.logger.info("again %d", number)
    log.logger.info("another")
    assert log.lines[LINES_AT_ONCE - 1 :] == [f"INFO again {LINES_AT_ONCE - 1}", "INFO another"]


def test_it_goes_on_slowly_and_says_how_many_were_left_out(log: Log) -> None:
    def told() -> None:
        for _ in range(LINES_AT_ONCE + 3):
            log.logger.info("again %s", "%")

    told()
    log.now_s = 1.5
    told()
    assert log.lines[LINES_AT_ONCE:] == ["INFO again % (and 3 more of the kind before)"]
    log.now_s = 10_000.0
    told()
    assert len(log.lines) == 2 * LINES_AT_ONCE + 1


def test_each_request_is_told_to_who_asks_for_that(log: Log) -> None:
    for _ in range(LINES_AT_ONCE + 3):
        log.logger.debug("a request")
    assert len(log.lines) == LINES_AT_ONCE + 3


class NobodyReads(io.StringIO):
    """A terminal after Ctrl-S, or a pipe that is full: who writes waits."""

    def __init__(self) -> None:
        super().__init__()
        self.writes, self.goes_on = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.writes.set()
        assert self.goes_on.wait(60)
        return super().write(text)


def test_where_nobody_reads_the_log_nobody_waits_and_what_was_not_told_is_counted() -> None:
    stream = NobodyReads()
    handler = Unhurried(stream)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.warning("first")
    assert stream.writes.wait(60)
    for number in range(LINES_KEPT + 3):
        logger.warning("line %d", number)
    stream.goes_on.set()
    while handler._untold or not handler._lines.empty():
        handler.flush()
    handler.flush()
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["first", "line 0"]
    assert lines[2] == "(3 lines were not told, as nobody read them)"
    assert lines[-1] == f"line {LINES_KEPT - 1}"
