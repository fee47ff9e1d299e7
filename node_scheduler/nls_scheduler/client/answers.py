"""What the daemon refuses, in the one form in which its clients raise it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.wire.errors import Problem, problem_in

if TYPE_CHECKING:
    from tornado.httpclient import HTTPClientError

_NO_ANSWER: Final = 599
"""By which Tornado's clients say that there was none."""


def refusal_in(error: HTTPClientError, received: bytes = b"") -> Problem | None:
    """What the daemon answered, with when to try again; `None` where it has not answered.

    `received`: the body, where the caller took it as it came.
    """
    answer = error.response
    if answer is None or error.code == _NO_ANSWER:
        return None
    return problem_in(error.code, received or answer.body, answer.headers)
