"""What a client makes of the daemon's refusals is the same wherever it asks."""

from __future__ import annotations

from io import BytesIO

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.httputil import HTTPHeaders

from nls_scheduler.client.answers import refusal_in
from nls_scheduler.wire.errors import Problem

PROBLEM = Problem(429, "Too many", "wait")


@pytest.mark.parametrize("as_it_came", [True, False])
def test_a_refusal_says_why_and_when_to_try_again(as_it_came: bool) -> None:
    body, headers = PROBLEM.as_json().encode(), HTTPHeaders({"Retry-After": "7"})
    buffer = BytesIO(b"" if as_it_came else body)
    answer = HTTPResponse(HTTPRequest("http://nls"), 429, headers, buffer)
    problem = refusal_in(HTTPClientError(429, response=answer), body if as_it_came else b"")
    assert problem is not None
    assert (problem.status, str(problem), problem.retry_after_s) == (429, "wait", 7)


def test_what_was_not_answered_is_no_refusal() -> None:
    assert refusal_in(HTTPClientError(599)) is None
    assert refusal_in(HTTPClientError(400)) is None
