"""A daemon that is older than its client lacks fields: that is said in a sentence, whatever the client does."""

from __future__ import annotations

import json

import pytest

from nls_scheduler.cli import main
from nls_scheduler.cli.exit_codes import NO_DAEMON
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import Problem
from nls_scheduler.wire.protocol import ViewMessage, parse_daemon_message
from nls_scheduler.wire.told import read_told

OF_BEFORE = {"workloads": [{"id": "a1", "name": "notebook-1"}], "gpus": []}


def test_a_field_that_an_older_daemon_does_not_tell_is_a_problem_that_says_so() -> None:
    told = read_told(json.dumps(OF_BEFORE))
    assert told == OF_BEFORE
    assert told["workloads"][0].get("own") is None
    with pytest.raises(Problem, match=r"older version .*'own': start it again"):
        told["workloads"][0]["own"]


def test_so_is_one_of_a_workload_that_a_supervisor_is_told() -> None:
    message = parse_daemon_message(json.dumps({"view": OF_BEFORE["workloads"][0]}))
    assert isinstance(message, ViewMessage)
    with pytest.raises(Problem, match="older version"):
        message.view["phase"]


@pytest.mark.parametrize("command", ["suspend notebook-1", "status", "explain notebook-1", "migrate notebook-1 --to 0"])
def test_no_command_ends_with_a_traceback(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def status(_: object) -> object:
        return read_told(json.dumps(OF_BEFORE))

    async def connect(*_: object, **__: object) -> DaemonClient:
        return DaemonClient(None)

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(DaemonClient, "status", status)
    monkeypatch.setattr(DaemonClient, "connect", connect)
    assert main(command.split()) == NO_DAEMON
    assert "older version" in capsys.readouterr().err
