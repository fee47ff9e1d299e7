from __future__ import annotations

import json

import pytest

from nls_scheduler.wire.errors import Problem, impossible, malformed, problem_in, unknown_workload


def test_a_problem_object_survives_the_wire() -> None:
    problem = Problem(503, "No GPU", "plug one in", "node")
    back = problem_in(503, problem.as_json().encode(), {})
    assert back.as_dict() == problem.as_dict()
    assert str(back) == "plug one in"


def test_a_problem_object_has_the_members_of_rfc_9457_and_says_who_is_at_fault() -> None:
    assert json.loads(malformed("x").as_json()) == {
        "type": "about:blank",
        "title": "Malformed request",
        "status": 400,
        "detail": "x",
        "fault": "client",
    }
    assert impossible("x").status == 422
    assert unknown_workload("w").status == 404


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"status": 1, "title": "", "detail": "", "fault": "nobody"}']
)
def test_an_answer_without_a_problem_object_is_the_servers_fault(body: bytes) -> None:
    problem = problem_in(502, body, {})
    assert (problem.status, problem.fault) == (502, "server")
