"""What is said of a process that could not be started: one line, with what it died of; the rest is kept apart."""

from __future__ import annotations

import pytest

from nls_jupyter.supervisor.launch import LaunchFailed

NOTE = "NOTE: When using the `ipython kernel` entry point, Ctrl-C will not work.\n\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "kernel.py", line 1, in main\n    deeper()\n'


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (f"{NOTE}{TRACEBACK}ValueError: mmap length is greater than file size", "ValueError: mmap length is greater"),
        (f"{TRACEBACK}KeyError: 'a'\nDuring it another came:\n{TRACEBACK}OSError: b\n  more\nlast", "OSError: b"),
        (f"{NOTE}one sentence.\n\n", "one sentence."),
        (TRACEBACK, "deeper()"),
        ("x" * 5000, "x" * 200 + "…"),
    ],
    ids=["an exception", "one of two", "no exception", "a traceback that was cut", "a long line"],
)
def test_the_line_that_says_why_is_the_message(output: str, cause: str) -> None:
    failed = LaunchFailed("it exited with code 1", output)
    assert str(failed).startswith(f"it exited with code 1: {cause}")
    assert "\n" not in str(failed)
    assert failed.output == output


def test_where_nothing_was_written_the_reason_stands_alone() -> None:
    assert str(LaunchFailed("it exited with code 1")) == "it exited with code 1"
