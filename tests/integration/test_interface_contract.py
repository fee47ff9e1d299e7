"""schemathesis against the real daemon over its Unix socket: what OpenAPI promises holds for whatever is sent."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
import requests
import schemathesis
import urllib3
from hypothesis import HealthCheck, Phase, settings
from requests.adapters import HTTPAdapter
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from openapi_contract import SPEC, check_response, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from schemathesis import Case

    from daemon_process import DaemonProcess

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
    openapi_checks.unsupported_method,
]
# A stream that does not end, and a WebSocket: both have tests of their own.
schema = schemathesis.openapi.from_dict(SPEC).exclude(operation_id=["events", "supervise"])


class _UnixConnection(urllib3.connection.HTTPConnection):
    path = ""

    def _new_conn(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        connection.connect(self.path)
        return connection


class _UnixAdapter(HTTPAdapter):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._pool = urllib3.HTTPConnectionPool("nls")
        self._pool.ConnectionCls = type("_Connection", (_UnixConnection,), {"path": str(path)})

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> Any:
        return self._pool

    def close(self) -> None:
        self._pool.close()


@pytest.fixture(scope="module")
def session(shared_daemon: DaemonProcess) -> Iterator[requests.Session]:
    with requests.Session() as made:
        made.mount("http://nls", _UnixAdapter(shared_daemon.socket))
        yield made


@pytest.fixture(scope="module")
def living(shared_daemon: DaemonProcess) -> Iterator[str]:
    """A workload of this process that is there all the time, so that not every id is unknown."""
    code, view = shared_daemon.request("POST", "/v1/workloads", b'{"kind": "notebook", "name": "living"}')
    assert code == 201
    yield view["id"]
    shared_daemon.request("DELETE", f"/v1/workloads/{view['id']}")


@schema.parametrize()
@settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
def test_whatever_is_sent_the_answer_is_what_the_contract_promises(
    case: Case, session: requests.Session, living: str
) -> None:
    if case.path_parameters.get("id") and len(case.path_parameters["id"]) % 2 and case.method != "DELETE":
        case.path_parameters["id"] = living
    response = case.call(base_url="http://nls", session=session)
    case.validate_response(response, checks=CHECKS)
    body, asked = response.content, response.request
    headers = {name: ", ".join(values) for name, values in response.headers.items()}
    check_response(str(asked.method), str(asked.url), response.status_code, headers, body)
    if response.status_code == 201:
        made = json.loads(body)["id"]
        assert session.delete(f"http://nls/v1/workloads/{made}").status_code == 202


def test_every_route_of_the_daemon_is_in_the_contract_and_the_other_way_round(shared_daemon: DaemonProcess) -> None:
    code, served = shared_daemon.request("GET", "/v1/openapi.json")
    assert (code, served) == (200, SPEC)
    for path, operations in SPEC["paths"].items():
        concrete = path.replace("{id}", "nobody").replace("{gpu}", "99")
        for method in ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"):
            if path == "/v1/events" and method == "GET":
                continue
            code, _ = shared_daemon.request(method, concrete)
            assert (code == 405) == (method.lower() not in operations), f"{method} {path} answered {code}"
    assert path_of("/v1/elsewhere") is None


def test_a_wrong_method_is_told_the_right_ones(shared_daemon: DaemonProcess) -> None:
    with shared_daemon.connection() as connection:
        connection.sendall(b"POST /v1/workloads/x HTTP/1.1\r\nHost: nls\r\nConnection: close\r\n\r\n")
        assert b"\r\nAllow: PUT, PATCH, DELETE\r\n" in connection.recv(65536)


def test_the_history_s_last_entries_alone_can_be_asked_for(shared_daemon: DaemonProcess) -> None:
    whole = b'{"kind": "notebook", "name": "whole", "request": "1.0"}'
    made = [shared_daemon.request("POST", "/v1/workloads", whole)[1]["id"] for _ in range(4)]
    for workload_id in made:
        shared_daemon.request("DELETE", f"/v1/workloads/{workload_id}")
    entries = shared_daemon.request("GET", "/v1/history")[1]["entries"]
    assert len(entries) > 1, "two have waited"
    code, answer = shared_daemon.request("GET", "/v1/history?limit=1")
    assert (code, answer["entries"]) == (200, entries[-1:])
    assert shared_daemon.request("GET", "/v1/history?limit=2000")[1]["entries"] == entries


@pytest.mark.parametrize("said", ["x", "-1", "0", "", "1.5", "2001", "9" * 5000, "%D9%A1", "1&limit=x"])
def test_a_number_of_entries_that_is_none_is_refused(shared_daemon: DaemonProcess, said: str) -> None:
    code, problem = shared_daemon.request("GET", f"/v1/history?limit={said}")
    assert code == 400
    assert problem["detail"].startswith("limit is a whole number from 1 to 2000, not ")
    assert len(problem["detail"]) < 200


@pytest.mark.parametrize("said", ["x", "-1"])
def test_a_protocol_in_the_query_that_is_no_number_is_refused_by_its_name(
    shared_daemon: DaemonProcess, said: str
) -> None:
    code, problem = shared_daemon.request("GET", f"/v1/status?protocol={said}")
    assert code == 400
    assert problem["detail"] == f"protocol is a whole number such as 1, not '{said}'."
